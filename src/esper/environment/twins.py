"""Twins: the run of the same seed without growth, with the same first weights and the same batches."""

from weakref import WeakKeyDictionary

from esper.contracts import WAIT
from esper.environment.data import Splits
from esper.environment.episode import Episode, World
from esper.environment.tasks import Task
from esper.rewards import Twin

KEPT = 4096
"""Curves that are kept of each set of data, for as long as somebody holds the data."""

Curve = tuple[Twin, ...]
_CURVES: "WeakKeyDictionary[Splits, dict[tuple[Task, int, World], Curve]]" = WeakKeyDictionary()


def twin_curve(task: Task, splits: Splits, seed: int, world: World) -> Curve:
    """The twin at every epoch, the untrained host first; shorter than the horizon if the governor ended it."""
    known, key = _CURVES.setdefault(splits, {}), (task, seed, world)
    if key not in known:
        if len(known) >= KEPT:
            known.pop(next(iter(known)), None)
        known[key] = _trained(task, splits, seed, world)
    return known[key]


def _trained(task: Task, splits: Splits, seed: int, world: World) -> Curve:
    episode = Episode(task, splits, seed, world)
    curve = [_now(episode)]
    while not episode.done:
        episode.step(WAIT)
        curve.append(_now(episode))
    return tuple(curve)


def _now(episode: Episode) -> Twin:
    return Twin(episode.evaluation.quality, episode.evaluation.loss)
