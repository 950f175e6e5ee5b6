"""What there is to win in the tasks of a family, by a survey, and what a policy's gain is of that."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from esper.runs.exam.nested_bootstrap import Resampled, means
from esper.runs.exam.statistics import Bootstrap, Estimate, Numbers
from esper.runs.survey import TaskSurvey, gains_by_seed, oracle, search_by_seed

MOST_TRAININGS = 32
"""Of random search."""


@dataclass(frozen=True, eq=False)
class Winnings:
    """Score gains of who chooses on one seed of a task and is scored on the others."""

    oracle: Resampled
    """The best of all that was surveyed."""
    search: tuple[Resampled, ...]
    """The best of 1, 2, ... random single seeds."""

    @classmethod
    def of(cls, tasks: Sequence[TaskSurvey], bootstrap: Bootstrap) -> "Winnings":
        """In these tasks, all of them on the same seeds."""
        tables = {0: oracle_gains(tasks)}
        for count in range(1, MOST_TRAININGS + 1):
            tables[count] = np.stack([search_by_seed(task, count) for task in tasks])
        best, *search = means(tables, bootstrap).values()
        return cls(best, tuple(search))

    def share(self, gain: Resampled) -> Estimate | None:
        """Of the oracle's gain; None if that is not clear of zero."""
        best = self.oracle.estimate()
        return (gain / self.oracle).estimate() if best.is_clear_of_zero and best.value > 0 else None

    def trainings(self, gain: Resampled) -> Estimate:
        """How many trainings of search gain as much; see `reached`."""
        value = reached(np.array([gain.value]), np.array([[each.value for each in self.search]]))
        draws = reached(gain.draws, np.stack([each.draws for each in self.search], axis=1))
        return Resampled(float(value[0]), draws, gain.tasks, gain.count).estimate()


def oracle_gains(tasks: Sequence[TaskSurvey]) -> Numbers:
    """Of shape (tasks, seeds)."""
    return np.stack([gains_by_seed(task, oracle) for task in tasks])


def reached(gains: Numbers, curves: Numbers) -> Numbers:
    """Where each curve, a row that begins at 1, first comes up to its gain; between two points on a straight line.

    That is 0 if it begins above the gain, and one more than its length if it never comes up to it.

    >>> reached(np.array([2.5, 0.5, 9.0]), np.array([[1.0, 2.0, 4.0]] * 3))
    array([2.25, 0.  , 4.  ])
    """
    length, each = curves.shape[1], np.arange(len(gains))
    above = curves >= gains[:, None]
    first = np.where(above.any(axis=1), above.argmax(axis=1), length)
    end = np.clip(first, 1, length - 1)
    low, high = curves[each, end - 1], curves[each, end]
    with np.errstate(divide="ignore", invalid="ignore"):  # where the curve is not crossed
        between = end + (gains - low) / (high - low)
    return np.select([first == length, first > 0, gains == curves[:, 0]], [length + 1.0, between, 1.0], 0.0)
