"""The stages of slots as spans of epochs."""

from collections.abc import Iterable
from dataclasses import dataclass

from esper.contracts import Event, SlotId, Stage, StageChanged


@dataclass(frozen=True)
class StageSpan:
    """A slot was in a stage from the beginning of one epoch to the beginning of another."""

    slot: SlotId
    stage: Stage
    begin: int
    end: int


def spans(events: Iterable[Event], horizon: int) -> list[StageSpan]:
    """All stages but DORMANT, in the order in which they ended; those that are open end at the horizon."""
    open_since: dict[SlotId, tuple[Stage, int]] = {}
    found: list[StageSpan] = []
    for event in events:
        if not isinstance(event, StageChanged):
            continue
        if event.slot in open_since:
            stage, begin = open_since.pop(event.slot)
            found.append(StageSpan(event.slot, stage, begin, event.epoch))
        if event.after is not Stage.DORMANT:
            open_since[event.slot] = (event.after, event.epoch)
    found += [StageSpan(slot, stage, begin, horizon) for slot, (stage, begin) in open_since.items()]
    return [span for span in found if span.end > span.begin]
