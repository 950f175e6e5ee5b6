"""One episode as the page tells it: from its events, whether it is over or still being played."""

from collections.abc import Iterable, Sequence
from typing import Any

from esper.contracts import (
    CHOICES,
    AlphaRetargeted,
    Event,
    Head,
    OperationRefused,
    RansomwareSuspected,
    RewardHackingSuspected,
    StageChanged,
)
from esper.telemetry import (
    DecisionMade,
    EpisodeFinished,
    EpisodeStarted,
    RewardPaid,
    RolledBack,
    spans,
)

Story = dict[str, Any]

MOST_EPOCHS = 5_000
"""Events of later ones are left out of the picture."""
MOST_SLOTS = 256
NEWS = (AlphaRetargeted, OperationRefused, RewardHackingSuspected, RansomwareSuspected, RolledBack, StageChanged)


def story_of(events: Sequence[Event]) -> Story:
    """Everything that a page shows of an episode. What was not measured is None; curves have a place per epoch."""
    events = [event for event in events if 0 <= getattr(event, "epoch", 0) < MOST_EPOCHS]
    began = next((event for event in events if isinstance(event, EpisodeStarted)), None)
    ended = next((event for event in events if isinstance(event, EpisodeFinished)), None)
    paid = {event.epoch: event for event in events if isinstance(event, RewardPaid)}
    played = paid or {event.epoch for event in events if isinstance(event, (*NEWS, DecisionMade))}
    epochs = 1 + max(played, default=-1)
    horizon = max(epochs, min(began.horizon, MOST_EPOCHS) if began else 0)
    slots = _slots(began, events)
    told = ended or began
    return {
        "task": told.task if told else None,
        "policy": told.policy if told else None,
        "purpose": told.purpose if told else None,
        "horizon": horizon,
        "epochs": epochs,
        "host_parameters": began.host_parameters if began else None,
        "slots": slots,
        "metric": vars(began.metric) if began and began.metric else None,
        "over": ended is not None,
        "panic": ended.panic if ended else None,
        "total": ended.total if ended else None,
        "end_quality": ended.quality if ended else None,
        "quality": _curve(paid, epochs, "quality"),
        "twin": _curve(paid, epochs, "twin_quality"),
        "growth": _curve(paid, epochs, "growth"),
        "paid": _curve(paid, epochs, "total"),
        "terms": _table(paid, epochs, "terms"),
        "alphas": _table(paid, epochs, "alphas", slots),
        "contributions": _table(paid, epochs, "contributions", slots),
        "spans": [
            {"slot": each.slot, "stage": each.stage.name, "begin": each.begin, "end": each.end}
            for each in spans(events, epochs)
            if each.slot in slots
        ],
        "decisions": [_decision(event, began) for event in events if isinstance(event, DecisionMade)],
        "news": [_news(event) for event in events if isinstance(event, NEWS)],
    }


def cells_of(story: Story) -> list[dict[str, Any]]:
    """A cell per slot for a table: the stage, blueprint and alpha that the slot has come to."""
    stages = {span["slot"]: span["stage"] for span in story["spans"] if span["end"] >= story["epochs"]}
    planted = {
        each["slot"]: each["blueprint"]
        for each in story["decisions"]
        if each["op"] == "GERMINATE" and not each["refused"] and each["slot"]
    }
    return [
        {
            "slot": slot,
            "stage": stages.get(slot, "DORMANT"),
            "blueprint": planted.get(slot) if slot in stages else None,
            "alpha": story["alphas"][slot][-1] if story["alphas"].get(slot) else None,
        }
        for slot in story["slots"]
    ]


def _slots(began: EpisodeStarted | None, events: Iterable[Event]) -> list[str]:
    """All that are named, in the order of the forward pass where that is known."""
    names = dict.fromkeys(began.slots if began else ())
    for event in events:
        if isinstance(event, StageChanged | AlphaRetargeted):
            names[event.slot] = None
        elif isinstance(event, RewardPaid):
            names |= dict.fromkeys(event.alphas or ())
    return list(names)[:MOST_SLOTS]


def _curve(paid: dict[int, RewardPaid], epochs: int, name: str) -> list[float | None]:
    return [getattr(paid[at], name) if at in paid else None for at in range(epochs)]


def _table(
    paid: dict[int, RewardPaid], epochs: int, name: str, only: Sequence[str] | None = None
) -> dict[str, list[float | None]]:
    """A curve for every key of a dict; None where an epoch lacks the key."""
    tables = {at: getattr(event, name) or {} for at, event in paid.items()}
    keys = dict.fromkeys(key for table in tables.values() for key in table)
    return {key: [tables.get(at, {}).get(key) for at in range(epochs)] for key in keys if only is None or key in only}


def _decision(event: DecisionMade, began: EpisodeStarted | None) -> dict[str, Any]:
    """What was chosen, and how likely every choice was, by name."""
    own = {Head.SLOT.value: began.slots, Head.BLUEPRINT.value: began.blueprints} if began else {}
    chances = {}
    for head, numbers in event.probabilities.items():
        known = [each.name for each in CHOICES[Head(head)]] if head in set(Head) and Head(head) in CHOICES else ()
        names = own.get(head) or known
        chances[head] = [
            [names[at] if at < len(names) else f"choice {at}", number] for at, number in enumerate(numbers)
        ]
    heads = {head.value: getattr(event, head.value) for head in Head if getattr(event, head.value) is not None}
    return {
        "epoch": event.epoch,
        "op": event.op,
        "slot": event.slot,
        "blueprint": event.blueprint,
        "heads": heads,
        "forced": event.forced,
        "refused": list(event.refused),
        "value": event.value,
        "probabilities": chances,
    }


def _news(event: Any) -> dict[str, Any]:
    """One line below the decisions."""
    match event:
        case StageChanged():
            words = f"{event.before.name} to {event.after.name}: {', '.join(event.reasons)}".rstrip(": ")
        case AlphaRetargeted():
            words = f"alpha from {event.alpha:.2f} to {event.target:.2f} in {event.ticks} epochs"
        case OperationRefused():
            words = f"{event.op} refused: {', '.join(event.reasons)}"
        case RolledBack():
            words = f"rolled back: {event.reason}"
        case RewardHackingSuspected():
            words = "suspected of reward hacking"
        case _:
            words = "the host depends on it without gain"
    return {
        "epoch": event.epoch,
        "kind": type(event).__name__,
        "slot": getattr(event, "slot", None),
        "words": words,
    }
