"""What a survey says there is to win: pure functions of its tasks. Gains are scores above those of the host alone.

Whoever chooses looks at the evaluation split of one seed and is scored on the test split of another, so that nobody is
paid for luck.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import TypeAlias

import numpy as np

from esper.runs.survey.table import Array, TaskSurvey

RESAMPLES = 2_000
Choose: TypeAlias = Callable[[TaskSurvey, int], int]
"""Which structure is grown on a task, by what its seed of that index showed; 0 is the host alone."""


@dataclass(frozen=True)
class Interval:
    """A mean over tasks, with a 95 % interval over resampled tasks."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.mean:+.1f} ({100 * self.low:+.1f} to {100 * self.high:+.1f})"


def over_tasks(gains: Sequence[float] | Array) -> Interval:
    """Tasks are resampled, because it is tasks that a policy must carry over to."""
    values = np.asarray(gains, dtype=np.float64)
    draws = np.random.Generator(np.random.PCG64(0)).integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.percentile(values[draws].mean(axis=1), [2.5, 97.5])
    return Interval(float(values.mean()), float(low), float(high))


def gains_of(tasks: Iterable[TaskSurvey], choose: Choose) -> Array:
    """What the choice gains on each task: made on each seed, scored on the others."""
    found = []
    for task in tasks:
        scored = task.gains(task.test)
        seeds = range(len(task.seeds))
        pairs = list(permutations(seeds, 2)) or [(0, 0)]
        found.append(np.mean([scored[choose(task, seen), other] for seen, other in pairs]))
    return np.array(found)


def oracle(task: TaskSurvey, seed: int) -> int:
    """The best structure on that seed, the host alone included."""
    return int(np.argmax(task.gains(task.evaluation)[:, seed]))


@dataclass(frozen=True)
class Constant:
    """Always the same blueprint in the first, the middle or the last slot; nothing where it does not fit."""

    place: str
    blueprint: str

    def __str__(self) -> str:
        return f"{self.place}:{self.blueprint}"

    def __call__(self, task: TaskSurvey, seed: int) -> int:
        slots = task.courses[0].slots
        slot = slots[{"first": 0, "middle": len(slots) // 2, "last": -1}[self.place]]
        return task.singles.get((slot, self.blueprint), 0)


def constants_of(tasks: Sequence[TaskSurvey]) -> list[Constant]:
    """All that can be played on some of the tasks."""
    blueprints = dict.fromkeys(blueprint for task in tasks for _, blueprint in task.singles)
    return [Constant(place, blueprint) for place in ("first", "middle", "last") for blueprint in blueprints]


def best_constant(tasks: Sequence[TaskSurvey]) -> Constant | None:
    """The one that gains most on the evaluation split; None if none gains anything."""
    worth = {
        each: float(np.mean([task.gains(task.evaluation)[each(task, 0)].mean() for task in tasks]))
        for each in constants_of(tasks)
    }
    best = max(worth, key=lambda each: worth[each])
    return best if worth[best] > 0 else None


def search_gain(task: TaskSurvey, count: int, draws: int = 200) -> float:
    """What the best of `count` random single seeds gains, the host alone included, on average over draws."""
    generator = np.random.Generator(np.random.PCG64(count))
    seen, scored = task.gains(task.evaluation), task.gains(task.test)
    singles = np.array(sorted(task.singles.values()))
    total, pairs = 0.0, list(permutations(range(len(task.seeds)), 2)) or [(0, 0)]
    for _ in range(draws):
        tried = np.append(generator.choice(singles, min(count, len(singles)), replace=False), 0)
        total += float(np.mean([scored[tried[np.argmax(seen[tried, one])], other] for one, other in pairs]))
    return total / draws
