"""The metrics of a run: one name for every curve, wherever it is drawn. docs/metrics.md has their units and meanings.

Names follow from the fields of events by one rule, so a new number in one of these events is a metric at once.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, is_dataclass
from pathlib import PurePath
from typing import get_args, get_origin, get_type_hints

from esper.contracts import Event
from esper.telemetry.events import AnomalyRaised, EvaluationMade, RoundFinished, UpdateMade

GROUPS: dict[type[Event], str] = {RoundFinished: "round", UpdateMade: "update", EvaluationMade: "evaluation"}
"""The events whose numbers are metrics, and how their names begin."""
NAMES = {"total": "return"}
"""Fields that have another name as a metric."""
OF_MAPS = {"ops": "share", "by_task": "return"}
"""What the numbers of a map are, where its field only says by what they are sorted."""
NUMBERS = (int, float, bool, int | None, float | None, bool | None)


@dataclass(frozen=True)
class Curve:
    """A curve; or where the name has a placeholder, one for every key of a map."""

    name: str
    path: tuple[str, ...]
    """The field of the event, and if that is a map of records, the field of these."""

    def read(self, event: Event) -> Iterator[tuple[str, float | None]]:
        """Its numbers by their full names; a text is a key that was met."""
        value = getattr(event, self.path[0])
        if isinstance(value, dict):
            for key, label in labels(value).items():
                each = value[key]
                yield self._labelled(label), getattr(each, self.path[1]) if self.path[1:] else each
        elif isinstance(value, str):
            yield self._labelled(labels([value])[value]), 1.0
        else:
            yield self.name, value

    def _labelled(self, label: str) -> str:
        return re.sub("<.*>", label, self.name)


def labels(keys: Iterable[str]) -> dict[str, str]:
    """Keys as parts of a name: letters, digits, `_`, `-` and `.`, which every sink takes as they are.

    A file goes by its name without the ending, unless another key is called the same.

    >>> labels(["digits", "mine/digits.toml", "mine/my task.toml", ".."])
    {'digits': 'digits', 'mine/digits.toml': 'mine_digits.toml', 'mine/my task.toml': 'my_task', '..': '_'}
    """
    short = {key: PurePath(key).stem if key.lower().endswith(".toml") else key for key in keys}
    times = Counter(short.values())
    chosen = {key: key if times[each] > 1 else each for key, each in short.items()}
    return {key: re.sub(r"[^\w.-]", "_", each).strip(".") or "_" for key, each in chosen.items()}


def metrics_of(event: type[Event], group: str) -> Iterator[Curve]:
    """The metrics of an event: its numbers, and those in its maps."""
    for field, kind in get_type_hints(event).items():
        key = field.removeprefix("by_").removesuffix("s")
        held = get_args(kind)[1] if get_origin(kind) is dict else None
        if kind in NUMBERS:
            yield Curve(f"{group}/{NAMES.get(field, field)}", (field,))
        elif isinstance(held, type) and is_dataclass(held):
            for inner, kind_within in get_type_hints(held).items():
                if kind_within in NUMBERS:
                    yield Curve(f"{group}/{key}/<{key}>/{NAMES.get(inner, inner)}", (field, inner))
        elif held in NUMBERS:
            ending = f"/{OF_MAPS[field]}" if field in OF_MAPS else ""
            yield Curve(f"{group}/{key}/<{key}>{ending}", (field,))


METRICS: dict[type[Event], tuple[Curve, ...]] = {
    **{event: tuple(metrics_of(event, group)) for event, group in GROUPS.items()},
    AnomalyRaised: (Curve("anomaly/<kind>", ("kind",)),),
}
"""Every metric, by the event that gives it."""


def figures_of(event: Event) -> dict[str, float]:
    """The numbers of an event that are worth a curve, by metric; none for most events.

    What was not measured is left out. What is not finite is kept.

    >>> figures_of(AnomalyRaised("kl_spike", "...", {"kl": 0.4}))
    {'anomaly/kl_spike': 1.0}
    """
    return {
        name: float(value)
        for metric in METRICS.get(type(event), ())
        for name, value in metric.read(event)
        if value is not None
    }
