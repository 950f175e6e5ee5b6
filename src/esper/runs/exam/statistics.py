"""Numbers with 95 % intervals. Pure functions: the same rows in any order give the same numbers.

Intervals of means are percentiles of bootstrap resamples, every task resampled by itself. BCa intervals covered no
better on simulated qualities, and do not exist for data without spread. With few seeds all of these are too narrow:
on normal data the interval of a mean holds the truth in about 86 of 100 cases with 5 seeds, 91 with 10, 93 with 20,
95 with 50.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from esper.contracts import EsperError, nearest
from esper.telemetry.exam_row import ExamRow

LEVEL = 0.95
BATCH_NUMBERS = 4_000_000
"""Numbers drawn at once: bounds the memory."""

Numbers = npt.NDArray[np.float64]
Statistic = Callable[..., Any]
"""Called with an array and `axis`, like `numpy.mean`."""


class PolicyNotPlayed(EsperError):
    """No row is of that policy."""


class UnmatchedPairs(EsperError):
    """Two policies were not played on the same seeds of the same tasks, once each."""


@dataclass(frozen=True)
class Bootstrap:
    """How intervals are drawn. Every interval starts anew from `seed`, so none depends on what was drawn before."""

    seed: int = 0
    resamples: int = 9_999


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval."""

    value: float
    low: float
    high: float
    count: int
    """Rows, or pairs of rows, behind it."""
    is_point: bool = False
    """There is one seed only, or too few tasks, to tell the spread: the interval is the number itself."""

    @property
    def is_clear_of_zero(self) -> bool:
        """The interval does not touch zero; never so without an interval."""
        return not self.is_point and (self.low > 0 or self.high < 0)


def interquartile_mean(values: Numbers, axis: int = -1) -> Any:
    """The mean without the lowest and the highest quarter, each rounded down to whole values.

    >>> float(interquartile_mean(np.array([0.0, 1.0, 3.0, 100.0])))
    2.0
    """
    return stats.trim_mean(values, 0.25, axis=axis)


def estimate(statistic: Statistic, values: Sequence[float], tasks: Sequence[str], bootstrap: Bootstrap) -> Estimate:
    """The statistic of all values together, its interval from resampling the values of each task by itself.

    A task with a single value keeps it in every resample. If that is so of all tasks, the estimate is a point.
    """
    array, of = np.asarray(values, dtype=np.float64), np.asarray(tasks)
    strata = [array[of == task] for task in sorted(set(tasks))]
    value = float(statistic(np.concatenate(strata), axis=-1))
    movable = [each for each in strata if len(each) > 1]
    if all(np.ptp(each) == 0 for each in movable):
        return Estimate(value, value, value, len(array), is_point=not movable)
    fixed = np.concatenate([np.empty(0), *(each for each in strata if len(each) == 1)])

    def of_all_tasks(*samples: Numbers, axis: int) -> Any:
        rest = np.broadcast_to(fixed, (*samples[0].shape[:-1], len(fixed)))
        return statistic(np.concatenate([*samples, rest], axis=-1), axis=-1)

    found = stats.bootstrap(
        movable,
        of_all_tasks,
        n_resamples=bootstrap.resamples,
        batch=max(1, BATCH_NUMBERS // len(array)),
        vectorized=True,
        axis=-1,
        confidence_level=LEVEL,
        method="percentile",
        rng=np.random.default_rng(bootstrap.seed),
    ).confidence_interval
    return Estimate(value, float(found.low), float(found.high), len(array))


def share_above_zero(differences: Sequence[float]) -> Estimate:
    """How probably a difference is above zero; zero counts half.

    The interval is Wilson's, not a bootstrap: when all differences are above zero, no resample would ever show another,
    and the interval would claim certainty. Ties, and seeds stratified by task, make it wider than it need be.
    """
    count, z = len(differences), float(stats.norm.ppf(0.5 + LEVEL / 2))
    share = float(np.mean(0.5 * (1 + np.sign(differences))))
    centre = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return Estimate(share, max(0.0, float(centre - half)), min(1.0, float(centre + half)), count)


def rows_of(rows: Sequence[ExamRow], policy: str) -> list[ExamRow]:
    """The rows of a policy by task and seed."""
    own = [row for row in rows if row.policy == policy]
    if not own:
        played = dict.fromkeys(row.policy for row in rows)
        raise PolicyNotPlayed(f"no row is of policy '{policy}'; {nearest(policy, played)}")
    return sorted(own, key=lambda row: (row.task, row.seed))


def pairs_of(rows: Sequence[ExamRow], first: str, second: str) -> list[tuple[ExamRow, ExamRow]]:
    """The rows of two policies side by side, by task and seed."""
    ones, others = ({(row.task, row.seed): row for row in rows_of(rows, policy)} for policy in (first, second))
    alone = sorted(ones.keys() ^ others.keys())
    if alone:
        task, seed = alone[0]
        has, lacks = (first, second) if alone[0] in ones else (second, first)
        raise UnmatchedPairs(
            f"'{first}' and '{second}' cannot be paired: {len(alone)} of their rows stand alone, the first being "
            f"seed {seed} of task '{task}', which '{has}' has and '{lacks}' lacks; play both on the same seeds"
        )
    return [(ones[place], others[place]) for place in ones]
