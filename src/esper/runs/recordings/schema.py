"""What all episodes of a recording have in common, and the columns that they are written in."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import msgspec
import numpy as np

from esper.checked import BadValue, checked
from esper.contracts import CHOICES, ActionCodec, EsperError, Head, ObservationFields, Op
from esper.environment import FIELDS
from esper.runs.player import Game
from esper.runs.trajectory import About

VERSION = 1
HEADS = {head.value: len(CHOICES.get(head, ())) for head in Head}
"""How many choices each head has; 0 where that depends on the body."""

ABOUT = {str: "VARCHAR", int: "BIGINT", float: "DOUBLE", bool: "BOOLEAN"}
FACTS = {each.name: ABOUT[each.type] for each in fields(About)} | {  # type: ignore[index]  # types, not strings
    "slot_names": "VARCHAR[]",
    "blueprint_names": "VARCHAR[]",
    "checksum": "BIGINT",
}
"""Columns of one value or a few names per episode."""
CHOICE, LOG_PROB = "choice_", "log_prob_"
REAL, BIT = np.dtype(np.float32), np.dtype(np.int8)
SEEN = dict.fromkeys(("host", "slots", "blueprints"), REAL) | dict.fromkeys(
    (
        *("host_valid", "slots_valid", "blueprints_valid"),
        *(f"mask_{head}" for head in Head),
        *("mask_op_slot", "mask_slot_blueprint"),
    ),
    BIT,
)
"""The arrays of an observation."""
NUMBERS: Mapping[str, "np.dtype[Any]"] = {
    "rewards": np.dtype(np.float64),
    "expected": REAL,
    **{f"{CHOICE}{head}": np.dtype(np.int16) for head in Head},
    **{f"{LOG_PROB}{head}": REAL for head in Head},
    **SEEN,
}
"""Columns of many numbers per episode, one step behind the other."""
SQL = {"float64": "DOUBLE", "float32": "FLOAT", "int16": "SMALLINT", "int8": "TINYINT"}
COLUMNS = FACTS | {name: f"{SQL[kind.name]}[]" for name, kind in NUMBERS.items()}
"""Every column, with its type."""


class BadRecording(EsperError):
    """A file that is no recording, or not one that can be learned from."""


@dataclass(frozen=True)
class RecordingSchema:
    """What observations, choices and rewards mean. Episodes of different schemas are never mixed."""

    version: int
    fields: ObservationFields
    """The features of the observations, by name."""
    heads: dict[str, int]
    reward: str
    """The reward mode."""
    discount: float
    """That the rewards were shaped for."""
    rent: float | None
    """None for each task's own."""

    @classmethod
    def of(cls, game: Game) -> "RecordingSchema":
        """What is written today under these rules."""
        return cls(VERSION, FIELDS, HEADS, game.reward, game.discount, game.rent)

    @classmethod
    def from_json(cls, text: bytes | str | None) -> "RecordingSchema":
        """Raises `BadRecording` for anything but a schema that can be read today; the message lacks the file."""
        try:
            said = None if text is None else msgspec.json.decode(text)
            if not isinstance(said, dict):
                raise BadRecording("is no recording; give what 'esper record' wrote")
            if said.get("version") != VERSION:
                raise BadRecording(
                    f"is a recording of version {said.get('version')!r}, and this esper reads {VERSION}; record anew"
                )
            schema = checked(cls, said)
        except (msgspec.DecodeError, RecursionError, BadValue) as error:
            raise BadRecording(f"says of itself what cannot be read ({error}); record anew") from error
        if schema.heads != HEADS:
            raise BadRecording("has other heads, or other choices for them, than this esper; record anew")
        return schema

    def to_json(self) -> str:
        return msgspec.json.encode(asdict(self)).decode()

    def differences(self, other: "RecordingSchema") -> str:
        """What keeps the two apart, in words; empty if nothing does."""
        names = [each.name for each in fields(self) if getattr(self, each.name) != getattr(other, each.name)]
        plain = [f"{name} {getattr(self, name)!r}, not {getattr(other, name)!r}" for name in names if name != "fields"]
        return ", ".join([*plain, *(["other observations"] if "fields" in names else [])])

    def shapes(self, codec: ActionCodec) -> dict[str, tuple[int, ...]]:
        """Of every array of one observation of a body."""
        slots, blueprints = len(codec.slots), len(codec.blueprints)
        shown = {
            "host": (len(self.fields.host),),
            "slots": (slots, len(self.fields.slots)),
            "blueprints": (slots, blueprints, len(self.fields.blueprints)),
        }
        return {
            **shown,
            **{f"{name}_valid": shape for name, shape in shown.items()},
            **{f"mask_{head}": (size,) for head, size in zip(Head, codec.sizes, strict=True)},
            "mask_op_slot": (len(Op), slots),
            "mask_slot_blueprint": (slots, blueprints),
        }
