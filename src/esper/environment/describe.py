"""docs/observation.md, rendered from the tables that build the arrays.

python -m esper.environment.describe > docs/observation.md
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from esper.contracts import CHOICES, Head, HostSnapshot, Op, SlotSnapshot, Snapshot, Topology
from esper.environment.observation import BLUEPRINT_FEATURES, HOST_FEATURES, SLOT_FEATURES, Feature, SlotView

SubjectT = TypeVar("SubjectT")

INTRODUCTION = """\
# What an agent sees

Rendered from the tables of `esper.environment` by `python -m esper.environment.describe`; a test compares.

An observation is a Dict of arrays. S is the number of slots, in the order of the task's list, and B that of the
blueprints that fit any of them; `codec.slots` and `codec.blueprints` have their names. Every number is finite and
within its bounds. Scales are fixed, nothing is normalised by running statistics: symlog(x) = sign(x) · ln(1 + |x|), and
time is relative to the horizon. What was not measured, or is NaN, is 0 **and** has a 0 among the validity bits; an
infinity was measured and is clipped. `FIELDS` has the names of all numbers, by which a policy finds their places."""

MASKS = """\
Masks come from the snapshot that the numbers come from, and from the judge that execution asks: an action is refused if
and only if they forbid it. The mask of one head says what some legal action can choose there, and is left open where no
legal action uses the head; the two masks over pairs say which choices go together."""


@dataclass(frozen=True)
class ArrayRow:
    """One array of an observation; in its shape, "S" stands for the slots and "B" for the blueprints."""

    name: str
    shape: tuple[int | str, ...]
    meaning: str


ARRAYS = (
    ArrayRow("host", (len(HOST_FEATURES),), "the training run"),
    ArrayRow("host_valid", (len(HOST_FEATURES),), "1 where the number in `host` was measured"),
    ArrayRow("slots", ("S", len(SLOT_FEATURES)), "each slot and the seed in it"),
    ArrayRow("slots_valid", ("S", len(SLOT_FEATURES)), "1 where the number in `slots` was measured"),
    ArrayRow(
        "blueprints",
        ("S", "B", len(BLUEPRINT_FEATURES)),
        "each blueprint as a seed of each slot; always measured, the same for a whole episode",
    ),
)


def _mask_row(head: Head, meaning: str) -> ArrayRow:
    size = {Head.SLOT: "S", Head.BLUEPRINT: "B"}.get(head) or len(CHOICES[head])
    return ArrayRow(f"mask_{head}", (size,), meaning)


def _names(head: Head) -> str:
    return ", ".join(choice.name for choice in CHOICES[head])


MASK_ARRAYS = (
    _mask_row(Head.OP, f"ops that are legal in some slot: {_names(Head.OP)}"),
    _mask_row(Head.SLOT, "slots in which some op other than WAIT is legal"),
    _mask_row(Head.BLUEPRINT, "blueprints that may germinate in some slot now"),
    *(_mask_row(head, f"always open: {_names(head)}") for head in CHOICES if head is not Head.OP),
    ArrayRow("mask_op_slot", (len(Op), "S"), "which op is legal in which slot; WAIT in all"),
    ArrayRow("mask_slot_blueprint", ("S", "B"), "which blueprint may germinate in which slot, the same for an episode"),
)


def render() -> str:
    """The whole page."""
    nothing = Snapshot(
        HostSnapshot(epoch=0, horizon=1, parameters=1, total_parameters=1),
        (SlotSnapshot("slot", Topology.CNN, channels=1, position=0, blueprints=("norm",)),),
    )
    view = SlotView(nothing.slots[0], nothing.host, slots=1)
    return "\n".join(
        (
            INTRODUCTION,
            *_section("Arrays", _arrays(ARRAYS)),
            *_section("`host`", _features(HOST_FEATURES, _gaps(HOST_FEATURES, nothing))),
            *_section("`slots`, for each slot", _features(SLOT_FEATURES, _gaps(SLOT_FEATURES, view))),
            *_section("`blueprints`, for each slot and blueprint", _features(BLUEPRINT_FEATURES, frozenset())),
            *_section("Masks", (MASKS, "", *_arrays(MASK_ARRAYS))),
            "",
        )
    )


def _section(title: str, lines: Iterable[str]) -> tuple[str, ...]:
    return ("", f"## {title}", "", *lines)


def _gaps(features: Sequence[Feature[SubjectT]], nothing: SubjectT) -> frozenset[str]:
    """The features that are missing when nothing was measured and nothing was planted."""
    return frozenset(feature.name for feature in features if feature.read(nothing) is None)


def _features(features: Sequence[Feature[SubjectT]], gaps: frozenset[str]) -> Iterator[str]:
    yield "| index | name | meaning | from | to | can be not measured |"
    yield "|---|---|---|---|---|---|"
    for index, feature in enumerate(features):
        missing = "yes" if feature.name in gaps else "no"
        yield f"| {index} | `{feature.name}` | {feature.meaning} | {feature.low:g} | {feature.high:g} | {missing} |"


def _arrays(rows: Sequence[ArrayRow]) -> Iterator[str]:
    yield "| array | shape | meaning |"
    yield "|---|---|---|"
    for row in rows:
        yield f"| `{row.name}` | ({', '.join(map(str, row.shape))}) | {row.meaning} |"


if __name__ == "__main__":
    print(render(), end="")
