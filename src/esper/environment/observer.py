"""What a policy sees of a body, and the codec by which it chooses: the same in the environment and anywhere else."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esper.contracts import ACCURACY_GRAIN, ActionCodec, SlotId, SlotSnapshot, Snapshot, Topology
from esper.environment.masks import masks_of
from esper.environment.observation import Array, Bits, Offer, describe_offers, observe
from esper.growth import Blueprint, Thresholds, blueprints_for

Observation = dict[str, NDArray[Any]]


class Observer:
    """Makes observations of the snapshots of one body, whose slots it is told once.

    A blueprint is named once, however many topologies have one of that name: in a slot the name stands for that of the
    slot's own topology. `grain` is the least difference in quality that is worth a decision.
    """

    def __init__(self, slots: Sequence[SlotSnapshot], thresholds: Thresholds, grain: float = ACCURACY_GRAIN) -> None:
        self.codec = ActionCodec(tuple(slot.slot for slot in slots), offered(slots), grain)
        self._thresholds = thresholds
        self._described: dict[SlotId, tuple[object, tuple[Array, Bits]]] = {}

    def observe(self, snapshot: Snapshot) -> Observation:
        """Numbers of host, slots and blueprints, their bits, and the masks."""
        blueprints, valid = zip(*(self._describe(slot, snapshot) for slot in snapshot.slots), strict=True)
        masks = masks_of(snapshot.slots, self.codec.blueprints, self._thresholds)
        return {
            **observe(snapshot),
            "blueprints": np.stack(blueprints),
            "blueprints_valid": np.stack(valid),
            **{f"mask_{name}": mask for name, mask in masks.items()},
        }

    def _describe(self, slot: SlotSnapshot, snapshot: Snapshot) -> tuple[Array, Bits]:
        """What the slot is offered. It is encoded anew only when its gains are, as most of an observation is this."""
        seen = (slot.topology, slot.channels, slot.blueprints, slot.gains, snapshot.host.parameters)
        if slot.slot not in self._described or self._described[slot.slot][0] != seen:
            offers = [offer_of(name, slot, snapshot.host.parameters) for name in self.codec.blueprints]
            self._described[slot.slot] = seen, describe_offers(offers)
        return self._described[slot.slot][1]


def offered(slots: Sequence[SlotSnapshot]) -> tuple[str, ...]:
    """The names of the blueprints that may germinate in any of the slots, in registration order, each once."""
    topologies = dict.fromkeys(slot.topology for slot in slots)
    wanted = {(slot.topology, name) for slot in slots for name in slot.blueprints}
    names = (
        each.name for topology in topologies for each in blueprints_for(topology) if (topology, each.name) in wanted
    )
    return tuple(dict.fromkeys(names))


def offer_of(name: str, slot: SlotSnapshot, host_parameters: int) -> Offer:
    """The blueprint of that name as a seed of the slot; one of another topology if the slot's has none."""
    found = _find(name, slot.topology)
    fits = found.topology is slot.topology and name in slot.blueprints
    gain = next((gain for gain in slot.gains if gain.blueprint == name), None) if fits else None
    parameters = found.parameters(slot.channels, slot.front_parameters)
    return Offer(found, parameters, host_parameters, fits, gain)


def _find(name: str, first: Topology) -> Blueprint:
    return next(each for topology in (first, *Topology) for each in blueprints_for(topology) if each.name == name)
