"""Proofs on an example: which submodules are called, and what a network puts out, in every mode that it is run in."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from esper.contracts import EsperError, SlotId
from esper.growth.attachment import attach, detach
from esper.growth.interface import Call

Example = Tensor | tuple[Any, ...] | Mapping[str, Any]
"""Inputs of a small batch, as the host takes them: one tensor, positional or keyword arguments."""

SEED = 0
"""Of the random numbers that a run on the example draws, so that two runs can be compared."""


class BadExample(EsperError):
    """The host cannot be run on the example in some mode."""


@dataclass(frozen=True)
class ForwardMode:
    """How a network is run."""

    training: bool
    gradients: bool

    def __str__(self) -> str:
        kind = "training" if self.training else "evaluation"
        return f"{kind} mode {'with' if self.gradients else 'without'} gradients"


Outputs = Mapping[ForwardMode, Sequence[Tensor]]
Calls = Mapping[ForwardMode, Mapping[SlotId, list[Any]]]

MODES = tuple(ForwardMode(training, gradients) for training, gradients in product((False, True), repeat=2))
EVALUATION, EVALUATION_WITH_GRADIENTS = MODES[:2]
"""The first without gradients."""


def arguments_of(example: Example) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments."""
    if isinstance(example, Mapping):
        return (), dict(example)
    return (example if isinstance(example, tuple) else (example,)), {}


@contextmanager
def in_mode(model: nn.Module, mode: ForwardMode) -> Iterator[None]:
    """Afterwards every submodule is in the mode it was in. Random numbers are drawn from a seed of their own."""
    before = {part: part.training for part in model.modules()}
    model.train(mode.training)
    try:
        with torch.random.fork_rng(), torch.set_grad_enabled(mode.gradients):
            torch.manual_seed(SEED)
            yield
    finally:
        for part, training in before.items():
            part.training = training


def run(model: nn.Module, example: Example, mode: ForwardMode) -> list[Tensor]:
    """The tensors that the model puts out; its buffers stay as they are. Lower precision is not used."""
    args, kwargs = arguments_of(example)
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    device = next((each.device.type for each in pytree.tree_leaves((args, kwargs)) if isinstance(each, Tensor)), "cpu")
    full = torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext()
    with in_mode(model, mode), full, _uncompiled(model):
        try:
            output = torch.func.functional_call(model, buffers, args, kwargs)
        except ValueError as error:
            raise BadExample(f"the example cannot be run in {mode} ({error}); give at least 2 samples") from error
    return [each.detach() for each in tensors_in(output)]


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors of an output, which may be nested in sequences, mappings and objects with attributes."""
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, Tensor):
            yield leaf
        elif hasattr(leaf, "__dict__") and not isinstance(leaf, nn.Module | type):
            yield from tensors_in(vars(leaf))


def _uncompiled(model: nn.Module) -> AbstractContextManager[Any]:
    """While this lasts, parts that were compiled in place run as they were written, since compilation rounds anew."""
    compiled = any(part._compiled_call_impl is not None for part in model.modules())
    return torch.compiler.set_stance("force_eager") if compiled else nullcontext()  # not always: it takes a second


def outputs(model: nn.Module, example: Example) -> Outputs:
    """What the model puts out in every mode."""
    return {mode: run(model, example, mode) for mode in MODES}


def first_difference(
    one: Mapping[ForwardMode, Sequence[Tensor]], other: Mapping[ForwardMode, Sequence[Tensor]]
) -> ForwardMode | None:
    """The first mode in which outputs differ in any bit; None if they are the same in all."""
    for mode in MODES:
        pairs = zip(one[mode], other[mode], strict=True)
        if not all(left.is_meta or _same(left, right) for left, right in pairs):
            return mode
    return None


def _same(left: Tensor, right: Tensor) -> bool:
    """Bit for bit, what is not a number included."""
    return left.shape == right.shape and bool(((left == right) | (left.isnan() & right.isnan())).all())


class Witness(nn.Module):
    """In a slot's place, sees what its submodule puts out. A hook would not do: fast paths step aside for hooks."""

    def __init__(self, name: SlotId, seen: dict[SlotId, list[Any]]) -> None:
        super().__init__()
        self.name, self.seen = name, seen

    def forward(self, features: Any, call: Call) -> Any:
        self.seen.setdefault(self.name, []).append(features)
        return features


def witnessed(
    model: nn.Module, names: Sequence[SlotId], example: Example, mode: ForwardMode
) -> dict[SlotId, list[Any]]:
    """What each named submodule puts out, call by call, in the order of the calls."""
    seen: dict[SlotId, list[Any]] = {}
    for name in names:
        attach(model.get_submodule(name), Witness(name, seen))
    try:
        run(model, example, mode)
    finally:
        for name in names:
            detach(model.get_submodule(name))
    return seen


def calls(model: nn.Module, names: Sequence[SlotId], example: Example) -> Calls:
    """What each named submodule puts out in every mode, call by call, in the order of the calls."""
    return {mode: witnessed(model, names, example, mode) for mode in MODES}
