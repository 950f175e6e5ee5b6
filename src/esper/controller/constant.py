"""One-line controllers: always the same seed in the same place, or the best such rule for the rent."""

from dataclasses import dataclass
from importlib import resources
from typing import Literal

import msgspec
import numpy as np

from esper.contracts import ActionCodec, EsperError, ObservationFields, Topology
from esper.controller.planting import Planted, Planting
from esper.controller.policy import Arrays

Place = Literal["first", "middle", "last"]
PLACES: tuple[Place, ...] = ("first", "middle", "last")
LARGEST = "largest"
"""Instead of a blueprint's name: the one with the most parameters."""
PREFIX = "constant:"


class BadConstant(EsperError):
    """A rule that cannot be followed."""


class ByRent(msgspec.Struct, forbid_unknown_fields=True):
    """What to plant up to a rent; no place for nothing."""

    up_to: float
    place: Place | None
    blueprint: str


def place_of(slots: int, place: Place) -> int:
    """The index of the slot."""
    return {"first": 0, "middle": slots // 2, "last": slots - 1}[place]


@dataclass(frozen=True)
class Constant(Planting):
    """`constant:SLOT:BLUEPRINT`. SLOT is a slot's name, or first, middle or last; BLUEPRINT a name, or largest.

    Nothing is planted in a body that lacks the one or the other.
    """

    slot: str
    blueprint: str
    fields: ObservationFields

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"{PREFIX}{self.slot}:{self.blueprint}"

    @classmethod
    def from_name(cls, name: str, fields: ObservationFields) -> "Constant":
        """The rule that is written so.

        >>> fields = ObservationFields(host=(), slots=(), blueprints=())
        >>> Constant.from_name("constant:first:largest", fields).blueprint
        'largest'
        """
        slot, colon, blueprint = name.removeprefix(PREFIX).rpartition(":")
        if not (slot and colon and blueprint):
            raise BadConstant(f"'{name}' names no slot and blueprint; write {PREFIX}first:{LARGEST}, or names of both")
        return cls(slot, blueprint, fields)

    def decide(self, observation: Arrays, codec: ActionCodec, epoch: int) -> Planted | None:
        at = place_of(len(codec.slots), self.slot) if self.slot in PLACES else _index(codec.slots, self.slot)
        if at is None:
            return ()
        fits = observation["mask_slot_blueprint"][at] == 1
        costs = observation["blueprints"][at, :, self.fields.blueprints.index("cost")]
        largest = int(np.argmax(np.where(fits, costs, -1.0)))
        seed = largest if self.blueprint == LARGEST else _index(codec.blueprints, self.blueprint)
        return () if seed is None or not fits[seed] else ((codec.slots[at], codec.blueprints[seed]),)


def _index(names: tuple[str, ...], name: str) -> int | None:
    return names.index(name) if name in names else None


class ConstantByRent(Planting):
    """`constant`: the best constant of the training survey for the body's topology and the rent."""

    name = "constant"

    def __init__(self, fields: ObservationFields) -> None:
        self.fields = fields
        text = (resources.files("esper.controller") / "weights" / "constant.json").read_bytes()
        self.rules = msgspec.json.decode(text, type=dict[Topology, list[ByRent]])

    def decide(self, observation: Arrays, codec: ActionCodec, epoch: int) -> Planted | None:
        topology, rent = self._topology(observation), 10.0 ** float(observation["host"][self.fields.host.index("rent")])
        rules = self.rules.get(topology, [])
        rule = next((each for each in rules if rent <= each.up_to), None)
        if rule is None or rule.place is None:
            return ()
        return Constant(rule.place, rule.blueprint, self.fields).decide(observation, codec, epoch)

    def _topology(self, observation: Arrays) -> Topology:
        """Of the first slot's offers."""
        fits = int(np.argmax(observation["mask_slot_blueprint"][0]))
        offer = observation["blueprints"][0, fits]
        return max(Topology, key=lambda each: offer[self.fields.blueprints.index(f"topology_{each.value}")])
