"""Twins: the run of the same seed without growth, with the same first weights and the same batches."""

from functools import lru_cache

from esper.contracts import WAIT
from esper.environment.data import Splits
from esper.environment.episode import Episode, World
from esper.environment.tasks import Task
from esper.rewards import Twin


@lru_cache(maxsize=4096)
def twin_curve(task: Task, splits: Splits, seed: int, world: World) -> tuple[Twin, ...]:
    """The twin at every epoch, the untrained host first; shorter than the horizon if the governor ended it."""
    episode = Episode(task, splits, seed, world)
    curve = [_now(episode)]
    while not episode.done:
        episode.step(WAIT)
        curve.append(_now(episode))
    return tuple(curve)


def _now(episode: Episode) -> Twin:
    return Twin(episode.evaluation.quality, episode.evaluation.loss)
