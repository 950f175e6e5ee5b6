"""A decision in words."""

from collections.abc import Mapping, Sequence
from enum import Enum

from esper.contracts import HEADS_OF, ActionCodec, Head, Op
from esper.telemetry.events import DecisionMade


def decision_made(
    epoch: int,
    codec: ActionCodec,
    choices: Sequence[int],
    *,
    forced: bool,
    refused: tuple[str, ...],
    value: float | None = None,
    probabilities: Mapping[str, tuple[float, ...]] | None = None,
) -> DecisionMade:
    """The event that tells of these choices; heads that their op does not use are None."""
    used = HEADS_OF[Op(choices[0])]
    words: dict[str, str | None] = {
        head.value: _word(codec.values(head)[index]) if head in used else None
        for head, index in zip(Head, choices, strict=True)
    }
    return DecisionMade(
        epoch,
        op=str(words["op"]),
        slot=words["slot"],
        blueprint=words["blueprint"],
        style=words["style"],
        tempo=words["tempo"],
        alpha_target=words["alpha_target"],
        alpha_speed=words["alpha_speed"],
        alpha_curve=words["alpha_curve"],
        forced=forced,
        refused=refused,
        value=value,
        probabilities=dict(probabilities or {}),
    )


def _word(value: object) -> str:
    return value.name if isinstance(value, Enum) else str(value)
