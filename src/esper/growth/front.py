"""The submodule in front of a slot, for what does not follow from its output alone."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from esper.contracts import SlotId
from esper.growth.attachment import attach, detach
from esper.growth.caches import ARGUMENTS, LAYER, NO_CACHE, CacheUse, cache_layers, layers_in, remembers
from esper.growth.copies import bare, hollow
from esper.growth.interface import NO_CALL, Call, features_in, parameters_of
from esper.growth.proof import EVALUATION, Example, in_mode, run


@dataclass(frozen=True)
class Front:
    """The submodule, its own parameters, and how it is called; `call` is one from the example, for one row.

    `looks_back` says whether a seed here can know of all earlier tokens, also of those that a host does not give again
    because it has cached them. A `block` adds to the features what it makes of them, so that one more can be added.
    """

    module: nn.Module = field(compare=False, repr=False)
    use: CacheUse = NO_CACHE
    call: Call = field(default=NO_CALL, compare=False, repr=False)
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
    layers = layers_in(module) if set(ARGUMENTS) & set(names) else set()
    host_layer = layers.pop() if len(layers) == 1 else None
    return Front(module, CacheUse(names, host_layer, cache_layers(host) + number))


def fronts_of(host: nn.Module, names: Sequence[SlotId], example: Example) -> dict[SlotId, Front]:
    """The submodules of a host without slots, with what running it on the example shows."""
    heard = _heard(host, names, example)
    forgetful = not remembers(host)
    fronts = {}
    for number, name in enumerate(names):
        front = front_of(host, name, number)
        heard_call, features = heard[name]
        call = front.use.without(heard_call)
        given = call.value(front.use.names[0], front.use.names) if front.use.names else None
        inner = isinstance(given, Tensor) and given.shape[:2] == features.shape[:2] and given.is_floating_point()
        looks_back = forgetful or (inner and front.use.fits(front.use.given(heard_call)))
        one_row = call.first_rows(1, of=len(features))
        block = looks_back and inner and all(_is_block(front, each) for each in (call, one_row))
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


def _is_block(front: Front, call: Call) -> bool:
    """Whether it is the identity without its weights: it adds to what it is given, and nothing comes after that.

    What cannot be called so is none; some blocks are given tensors that cannot be cut to fewer rows.
    """
    weights, given = dict(front.module.named_parameters()), call.value(front.use.names[0], front.use.names)
    if given.is_meta or not any(each.ndim > 1 for each in weights.values()):
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
