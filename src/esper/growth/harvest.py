"""From a body to a plain module: the host with what is delivered built in, and nothing that grows."""

import copy
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from esper.contracts import SlotId, Style, Topology
from esper.growth.blending import Seed, assemble
from esper.growth.blueprints import find_blueprint
from esper.growth.copies import bare, hollow
from esper.growth.front import Front, front_of
from esper.growth.interface import Call, features_in, with_features
from esper.growth.slot import Slot


@dataclass(frozen=True)
class Fossil:
    """What is delivered in one slot; a list of these is a grown architecture, without weights."""

    slot: SlotId
    topology: Topology
    channels: int
    blueprint: str
    style: Style
    alpha: float


class Grown(nn.Module):
    """A host submodule with a fossil behind it. Attributes of the submodule can be read through it."""

    def __init__(self, host: nn.Module, seed: Seed, fossil: Fossil) -> None:
        super().__init__()
        self.host = host
        self.seed = seed
        self.fossil = fossil

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = self.host(*args, **kwargs)
        return with_features(output, self.seed(features_in(output), self.fossil.alpha, Call(args, kwargs)))

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "host":
                raise
            return getattr(self.host, name)


def fossils_of(slots: Iterable[Slot]) -> tuple[Fossil, ...]:
    """The seeds of these slots as they are now."""
    return tuple(
        Fossil(slot.id, slot.site.topology, slot.site.channels, plan.blueprint, plan.style, slot.alpha)
        for slot in slots
        if (plan := slot.state.plan) is not None
    )


def plant(host: nn.Module, fossils: Iterable[Fossil]) -> nn.Module:
    """Build newborn seeds of the same architecture into `host`, which is changed and returned.

    This is how a grown architecture is trained from scratch; `load` builds in a grown network with its weights.
    """
    return build_in(host, [(each, newborn(each, front_of(host, each.slot, at))) for at, each in enumerate(fossils)])


def harvest(host: nn.Module, slots: Sequence[Slot], delivered: Sequence[Fossil]) -> nn.Module:
    """A copy of the host with copies of the delivered seeds built in; all others are left out."""
    plain = bare(host)
    seeds = {slot.id: slot.seed for slot in slots if slot.seed is not None}
    return build_in(plain, [(fossil, copy.deepcopy(seeds[fossil.slot])) for fossil in delivered])


def build_in(host: nn.Module, seeds: Sequence[tuple[Fossil, Seed]]) -> nn.Module:
    """Put each seed behind its submodule of `host`; of several behind the same one, the first ends up outermost."""
    outer_first = sorted(seeds, key=lambda each: each[0].slot.count("."))
    for fossil, seed in reversed(outer_first):  # so that a name is still valid when its turn comes
        parent_name, _, child = fossil.slot.rpartition(".")
        parent = host.get_submodule(parent_name)
        setattr(parent, child, Grown(parent.get_submodule(child), seed, fossil))
    return host


def newborn(fossil: Fossil, front: Front) -> Seed:
    """A seed as the fossil was at birth; of a copy, if the submodule in front of it had been as it is now."""
    delta = find_blueprint(fossil.blueprint, fossil.topology).newborn(fossil.channels, front)
    return assemble(delta, fossil.style.operator, fossil.channels, fossil.topology)


def grown_in(network: nn.Module) -> dict[str, Grown]:
    """The parts of a plain network that have a fossil, by name, outer ones first."""
    parts = network.named_modules(remove_duplicate=False)
    return {name: part for name, part in parts if isinstance(part, Grown)}


def ungrown(part: nn.Module) -> nn.Module:
    """A part of a plain network as it was before anything grew in it; its tensors have no values."""
    twin = hollow(part)
    for name, grown in reversed(grown_in(twin).items()):
        if name == "":
            return grown.host
        parent_name, _, child = name.rpartition(".")
        setattr(twin.get_submodule(parent_name), child, grown.host)
    return twin


def name_in_host(name: str, grown: Container[str]) -> str:
    """What a part of a network with fossils in the places `grown` was called before it grew.

    >>> name_in_host("block1.host.0.weight", {"block1"})
    'block1.0.weight'
    """
    parts = name.split(".")
    return ".".join(part for depth, part in enumerate(parts) if part != "host" or ".".join(parts[:depth]) not in grown)
