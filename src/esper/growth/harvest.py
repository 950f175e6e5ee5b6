"""From a body to a plain module: the host with its fossils built in, and nothing that grows."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from esper.contracts import SlotId, Stage, Style, Topology
from esper.growth.attachment import detach
from esper.growth.blending import Seed, assemble
from esper.growth.blueprints import find_blueprint
from esper.growth.slot import Slot


class Grown(nn.Module):
    """A host submodule with a fossil behind it. Attributes of the submodule can be read through it."""

    def __init__(self, host: nn.Module, seed: Seed, alpha: float) -> None:
        super().__init__()
        self.host = host
        self.seed = seed
        self.alpha = alpha

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        features: Tensor = self.seed(self.host(*args, **kwargs), self.alpha)
        return features

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "host":
                raise
            return getattr(self.host, name)


@dataclass(frozen=True)
class Fossil:
    """What was kept in one slot; a list of these is a grown architecture, without weights."""

    slot: SlotId
    topology: Topology
    channels: int
    blueprint: str
    style: Style
    alpha: float


def fossils_of(slots: Iterable[Slot]) -> tuple[Fossil, ...]:
    """What was kept, slot by slot."""
    return tuple(
        Fossil(slot.id, slot.site.topology, slot.site.channels, plan.blueprint, plan.style, slot.alpha)
        for slot in slots
        if slot.state.stage is Stage.FOSSILIZED and (plan := slot.state.plan) is not None
    )


def plant(host: nn.Module, fossils: Iterable[Fossil]) -> nn.Module:
    """Build newborn seeds of the same architecture into `host`, which is changed and returned.

    This is how a harvested model is rebuilt in another program before its weights are loaded, and how a grown
    architecture is trained from scratch.
    """
    seeds = {fossil.slot: (_newborn(fossil), fossil.alpha) for fossil in fossils}
    return _build_in(host, seeds)


def harvest(host: nn.Module, slots: Sequence[Slot]) -> nn.Module:
    """A copy of the host with copies of its fossils built in; seeds that were not kept are left out."""
    plain = copy.deepcopy(host, {id(slot): slot for slot in slots})
    for slot in slots:
        detach(plain.get_submodule(slot.id))
    seeds = {
        slot.id: (copy.deepcopy(slot.seed), slot.alpha)
        for slot in slots
        if slot.state.stage is Stage.FOSSILIZED and slot.seed is not None
    }
    return _build_in(plain, seeds)


def _build_in(host: nn.Module, seeds: Mapping[SlotId, tuple[Seed, float]]) -> nn.Module:
    # Deepest first, so that a name is still valid when its turn comes.
    for name in sorted(seeds, key=lambda name: name.count("."), reverse=True):
        parent_name, _, child = name.rpartition(".")
        parent = host.get_submodule(parent_name)
        seed, alpha = seeds[name]
        setattr(parent, child, Grown(parent.get_submodule(child), seed, alpha))
    return host


def _newborn(fossil: Fossil) -> Seed:
    delta = find_blueprint(fossil.blueprint, fossil.topology).build(fossil.channels)
    return assemble(delta, fossil.style.operator, fossil.channels, fossil.topology)
