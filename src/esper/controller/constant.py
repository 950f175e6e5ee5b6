"""One-line controllers: always the same seed in the same place, or one for every band of rents."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from esper.contracts import ActionCodec, EsperError, ObservationFields
from esper.controller.planting import Planted, Planting
from esper.controller.policy import Arrays, rent_in

Place = Literal["first", "middle", "last"]
PLACES: tuple[Place, ...] = ("first", "middle", "last")
LARGEST = "largest"
"""Instead of a blueprint's name: the one with the most parameters."""
PREFIX = "constant:"
BEST_BY_RENT: dict[float, str] = {0.03: "first:conv_heavy", 0.1: "first:depthwise", math.inf: "first:depthwise"}
"""The highest rent of each band, and the constant that gains most there on the survey of `small`."""


class BadConstant(EsperError):
    """A rule that cannot be followed."""


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


@dataclass(frozen=True)
class ConstantByRent(Planting):
    """`constant`: the best one for the rent, by what was surveyed of the tasks that controllers train on."""

    fields: ObservationFields
    name: str = "constant"

    def decide(self, observation: Arrays, codec: ActionCodec, epoch: int) -> Planted | None:
        best = next(each for most, each in BEST_BY_RENT.items() if rent_in(observation, self.fields) <= most)
        return Constant.from_name(f"{PREFIX}{best}", self.fields).decide(observation, codec, epoch)


def _index(names: tuple[str, ...], name: str) -> int | None:
    return names.index(name) if name in names else None
