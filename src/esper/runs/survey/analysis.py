"""What a survey says there is to win: pure functions of its tasks. Gains are scores above those of the host alone.

Whoever chooses looks at the evaluation split of one seed and is scored on the test split of another, so that nobody is
paid for luck.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy.special import comb

from esper.runs.survey.table import Array, TaskSurvey

RESAMPLES = 2_000
RENT_BANDS = {0.03: "0 to 0.03", 0.1: "0.03 to 0.1", math.inf: "above 0.1"}
"""The highest rent of each band, and its name. Families draw rents log-uniformly from 0.01 to 0.3."""
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
    """What the choice gains on each task."""
    return np.array([gains_by_seed(task, choose).mean() for task in tasks])


def gains_by_seed(task: TaskSurvey, choose: Choose) -> Array:
    """What the choice gains on each seed of a task, if it is made on the others."""
    scored = task.gains(task.test)
    seeds = range(len(task.seeds))
    return np.array([np.mean([scored[choose(task, seen), seed] for seen in _others(task, seed)]) for seed in seeds])


def _others(task: TaskSurvey, seed: int) -> list[int]:
    """The seeds to choose on; the same one if it is alone."""
    return [other for other in range(len(task.seeds)) if other != seed] or [seed]


def oracle(task: TaskSurvey, seed: int) -> int:
    """The best structure on that seed, the host alone included."""
    return int(np.argmax(task.gains(task.evaluation)[:, seed]))


@dataclass(frozen=True)
class ConstantChoice:
    """Always the same blueprint in the first, the middle or the last slot; nothing where it does not fit."""

    place: str
    blueprint: str

    def __str__(self) -> str:
        return f"{self.place}:{self.blueprint}"

    def __call__(self, task: TaskSurvey, seed: int) -> int:
        slots = task.courses[0].slots
        slot = slots[{"first": 0, "middle": len(slots) // 2, "last": -1}[self.place]]
        return task.singles.get((slot, self.blueprint), 0)


def constants_of(tasks: Sequence[TaskSurvey]) -> list[ConstantChoice]:
    """All that can be played on some of the tasks."""
    blueprints = dict.fromkeys(blueprint for task in tasks for _, blueprint in task.singles)
    return [ConstantChoice(place, blueprint) for place in ("first", "middle", "last") for blueprint in blueprints]


def best_constant(tasks: Sequence[TaskSurvey], rents: Sequence[float | None] = (None,)) -> ConstantChoice | None:
    """The one that gains most on the evaluation split, on average over the rents, None for each task's own.

    None if none gains anything.
    """
    gains = [np.mean([task.gains(task.evaluation, rent).mean(axis=1) for rent in rents], axis=0) for task in tasks]
    worths = {
        each: float(np.mean([gained[each(task, 0)] for task, gained in zip(tasks, gains, strict=True)]))
        for each in constants_of(tasks)
    }
    best = max(worths, key=lambda each: worths[each])
    return best if worths[best] > 0 else None


@dataclass(frozen=True)
class ConstantOf:
    """One constant for every kind of task; nothing for a kind without one."""

    kind: Callable[[TaskSurvey], str]
    best: Mapping[str, ConstantChoice | None]

    def __str__(self) -> str:
        return ", ".join(f"{kind} {best or 'nothing'}" for kind, best in self.best.items())

    def __call__(self, task: TaskSurvey, seed: int) -> int:
        best = self.best.get(self.kind(task))
        return 0 if best is None else best(task, seed)


def best_by_rent(tasks: Sequence[TaskSurvey]) -> ConstantOf:
    """The best constant for each band of rents: all tasks at the lowest, middle and highest rent of the band."""
    bounds = [0.01, *(bound for bound in RENT_BANDS if bound < math.inf), 0.3]
    bands = zip(RENT_BANDS.values(), bounds[:-1], bounds[1:], strict=True)
    best = {name: best_constant(tasks, (low, math.sqrt(low * high), high)) for name, low, high in bands}
    return ConstantOf(lambda task: rent_band(task.rent), best)


def best_by_host(tasks: Sequence[TaskSurvey]) -> ConstantOf:
    """The best constant for each kind of host: by its kernels, or dense."""
    kinds = sorted({kind_of_host(task) for task in tasks})
    best = {kind: best_constant([task for task in tasks if kind_of_host(task) == kind]) for kind in kinds}
    return ConstantOf(kind_of_host, best)


def rent_band(rent: float) -> str:
    """The name of the band that the rent is in.

    >>> rent_band(0.1), rent_band(0.11)
    ('0.03 to 0.1', 'above 0.1')
    """
    return next(name for most, name in RENT_BANDS.items() if rent <= most)


def kind_of_host(task: TaskSurvey) -> str:
    """By its kernels, or dense."""
    traits = task.courses[0].traits
    return traits["host"] if traits["kernel"] == "none" else f"kernel {traits['kernel']}"


def search_gain(task: TaskSurvey, count: int) -> float:
    """What the best of `count` random single seeds gains, the host alone included, on average over all draws."""
    return float(search_by_seed(task, count).mean())


def search_by_seed(task: TaskSurvey, count: int) -> Array:
    """What that search gains on each seed of a task, if it is made on the others."""
    seen, scored = task.gains(task.evaluation), task.gains(task.test)
    singles = np.array(sorted(task.singles.values()), dtype=np.intp)
    drawn = min(count, len(singles))
    worse = np.arange(len(singles))[::-1]  # than each single, from the best one on: they alone may be drawn beside it
    chances = comb(worse, drawn - 1) / comb(len(singles), drawn)

    def gain(one: int, other: int) -> float:
        ranked = singles[np.argsort(-seen[singles, one], kind="stable")]
        return float(chances @ np.where(seen[ranked, one] >= 0, scored[ranked, other], 0.0))

    seeds = range(len(task.seeds))
    return np.array([np.mean([gain(one, seed) for one in _others(task, seed)]) for seed in seeds])
