"""Breaking ground: what can be wrong is looked for, then the model gets its slots and the optimiser their groups."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim import LBFGS, Optimizer
from torch.utils import _pytree as pytree

from esper.contracts import Sink, SlotId
from esper.gardener.errors import ForeignOptimizer
from esper.gardener.places import Places, find_places
from esper.growth import Body, Thresholds, graft
from esper.growth.attachment import Attached
from esper.growth.graft import AlreadyCompiled, AlreadyGrafted
from esper.growth.proof import EVALUATION, BadExample, Example, run, tensors_in

ROWS = 2
"""Of an example. What a model does can be seen on as few as that."""


@dataclass(frozen=True)
class Ground:
    """A body whose seeds the optimiser trains; `outcomes` are the classes, if the model puts out one score for each."""

    body: Body
    optimizer: Optimizer
    places: Places
    outcomes: int | None

    def give_back(self) -> None:
        """Leave model and optimiser as they were."""
        slots = len(self.body.slots)
        self.body.ungraft()
        del self.optimizer.param_groups[len(self.optimizer.param_groups) - slots :]


def break_ground(
    model: nn.Module,
    optimizer: Optimizer,
    example: Example,
    at: str | Sequence[SlotId],
    thresholds: Thresholds,
    sink: Sink,
) -> Ground:
    """Find places in the model and give it slots there. If anything is wrong, nothing has been changed."""
    host, inner = _host_in(model), _optimizer_in(optimizer, model)
    small = _prepared(host, example)
    places = find_places(host, at, small)
    names = [place.slot for place in places.taken]
    topologies = {place.slot: place.topology.value for place in places.taken if len(place.shape) == 3}
    body = graft(host, names, small, topology=topologies, thresholds=thresholds, sink=sink)
    try:
        body.optimise_with(inner)
    except BaseException:
        body.ungraft()
        raise
    return Ground(body, inner, places, _outcomes(run(host, small, EVALUATION), small))


def _host_in(model: nn.Module) -> nn.Module:
    """The model itself, out of what distributes it."""
    if hasattr(model, "_orig_mod"):
        raise AlreadyCompiled("the model is compiled already; make the gardener of the model first, then compile it")
    host = model.module if isinstance(model, DistributedDataParallel | DataParallel) else model
    if any(isinstance(part, Attached) for part in host.modules()):
        raise AlreadyGrafted("the model has a gardener or a body already; use that one, or `ungraft()` it first")
    return host


def _optimizer_in(optimizer: Any, model: nn.Module) -> Optimizer:
    """PyTorch's own, out of what wraps it; it must train the model."""
    while isinstance(getattr(optimizer, "optimizer", None), Optimizer):
        optimizer = optimizer.optimizer
    if not isinstance(optimizer, Optimizer):
        raise ForeignOptimizer(f"the optimizer is a {type(optimizer).__name__}; give a torch.optim.Optimizer")
    if isinstance(optimizer, LBFGS):
        raise ForeignOptimizer("LBFGS cannot train parameters that come later; give another optimizer, such as AdamW")
    own = {id(parameter) for parameter in model.parameters()}
    held = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
    if own.isdisjoint(held):
        raise ForeignOptimizer(
            "the optimizer holds none of the model's parameters, so that it does not train it; make it of "
            "model.parameters(), after the model has been moved to its device"
        )
    return optimizer


def _prepared(model: nn.Module, example: Example) -> Example:
    """The example where the model is, and as few rows of it as show the same."""
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    here = _each(example, lambda tensor: tensor.to(device))
    sizes = {tensor.shape[0] for tensor in tensors_in(here) if tensor.ndim}
    if len(sizes) == 1 and sizes.pop() > ROWS:
        few = _each(here, lambda tensor: tensor[:ROWS] if tensor.ndim else tensor)
        if _mistake(model, few) is None:
            return few
    mistake = _mistake(model, here)
    if mistake is not None:
        raise BadExample(
            f"the model cannot be called on the example ({type(mistake).__name__}: {mistake!s:.300}); give a batch of "
            "its inputs: a tensor, a tuple of positional arguments or a dict of keyword arguments, without the labels "
            "unless the model takes them"
        ) from mistake
    return here


def _each(example: Example, change: Callable[[Tensor], Tensor]) -> Example:
    changed: Example = pytree.tree_map(lambda leaf: change(leaf) if isinstance(leaf, Tensor) else leaf, example)
    return changed


def _mistake(model: nn.Module, example: Example) -> Exception | None:
    """What running the model on the example raises."""
    try:
        run(model, example, EVALUATION)
    except Exception as error:  # anybody's code
        return error
    return None


def _outcomes(outputs: Sequence[Tensor], example: Example) -> int | None:
    """The classes, if there is one output with a number for each of several, for every row or every token of it."""
    given = [tensor.shape for tensor in tensors_in(example) if tensor.ndim]
    rows = next((shape[:1] for shape in given), None)
    tokens = next((shape for shape in given if len(shape) == 2), None)
    scores = [
        each for each in outputs if each.is_floating_point() and each.ndim > 1 and each.shape[:-1] in (rows, tokens)
    ]
    return scores[0].shape[-1] if len(scores) == 1 and scores[0].shape[-1] > 1 else None
