"""The submodule in front of a slot, for what does not follow from its output alone."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from esper.contracts import SlotId
from esper.growth.attachment import attach, detach
from esper.growth.caches import CACHE, LAYER, CacheUse, cache_layers, layers_in, remembers
from esper.growth.copies import bare, hollow
from esper.growth.interface import Call, features_in, parameters_of
from esper.growth.proof import EVALUATION, Example, in_mode, run


@dataclass(frozen=True)
class Front:
    """The submodule, its own parameters, and how it is called; `call` is one from the example, for one row.

    `looks_back` says whether a seed here can know of all earlier tokens, also of those that a host does not give again
    because it has cached them. A `block` adds to the features what it makes of them, so that one more can be added.
    """

    module: nn.Module = field(compare=False, repr=False)
    use: CacheUse = CacheUse()
    call: Call = field(default=Call(), compare=False, repr=False)
    parameters: int = 0
    looks_back: bool = False
    block: bool = False

    def hollow(self) -> "Front":
        """The same with a submodule and a call that have no values."""
        return replace(self, module=hollow(bare(self.module)), call=self.call.each(lambda each: each.to("meta")))


def front_of(host: nn.Module, name: SlotId, number: int) -> Front:
    """The submodule `name` of a host without slots; `number` tells it from others that have seeds."""
    module = host.get_submodule(name)
    names = parameters_of(module)
    layers = layers_in(module) if CACHE in names else set()
    return Front(module, CacheUse(names, min(layers, default=None), cache_layers(host) + number))


def fronts_of(host: nn.Module, names: Sequence[SlotId], example: Example) -> dict[SlotId, Front]:
    """The submodules of a host without slots, with what running it on the example shows."""
    heard = _heard(host, names, example)
    forgetful = not remembers(host)
    fronts = {}
    for number, name in enumerate(names):
        front = front_of(host, name, number)
        call, features = heard[name]
        call = front.use.without(call)
        looks_back = forgetful or front.use.host_layer is not None
        block = looks_back and _is_block(front, call, features)
        one_row = call.first_rows(1, of=len(features))
        parameters = sum(each.numel() for each in front.module.parameters())
        fronts[name] = Front(front.module, front.use, one_row, parameters, looks_back, block)
    return fronts


class Listener(nn.Module):
    """In a slot's place, notes how its submodule is called."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[tuple[Call, Tensor]] = []

    def forward(self, features: Tensor, call: Call) -> Tensor:
        self.heard.append((call, features))
        return features


def _heard(host: nn.Module, names: Sequence[SlotId], example: Example) -> dict[SlotId, tuple[Call, Tensor]]:
    listeners = {name: Listener() for name in names}
    for name, listener in listeners.items():
        attach(host.get_submodule(name), listener)
    try:
        run(host, example, EVALUATION)
    finally:
        for name in names:
            detach(host.get_submodule(name))
    return {name: listener.heard[0] for name, listener in listeners.items()}


def _is_block(front: Front, call: Call, features: Tensor) -> bool:
    """Whether it is the identity without its weights: it adds to the features, and nothing comes after that."""
    given = call.value(front.use.names[0], front.use.names) if front.use.names else None
    weights = dict(front.module.named_parameters())
    if not isinstance(given, Tensor) or given.shape != features.shape or given.is_meta:
        return False
    if len(layers_in(front.module)) > 1 or not any(each.ndim > 1 for each in weights.values()):
        return False
    still = {name: torch.zeros_like(each) for name, each in weights.items()}
    try:
        with in_mode(front.module, EVALUATION):
            output = torch.func.functional_call(repeated(front), still, call.args, call.kwargs)
    except Exception:  # anybody's code
        return False
    found = features_in(output)
    return isinstance(found, Tensor) and torch.equal(found, given)


def repeated(front: Front) -> nn.Module:
    """A copy of the submodule, with the weights that it has now and without what grew in it, which learns."""
    twin = bare(front.module)
    for parameter in twin.parameters():
        parameter.requires_grad_(parameter.is_floating_point())
    for part in twin.modules():
        if hasattr(part, LAYER):
            setattr(part, LAYER, front.use.own_layer)
    return twin
