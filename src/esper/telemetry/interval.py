"""The mean of a few numbers, and how far it may be off."""

from collections.abc import Sequence

import numpy as np
from scipy import stats


def mean(numbers: Sequence[float]) -> float:
    """The arithmetic mean."""
    return float(np.mean(numbers))


def interval(numbers: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the mean, from Student's distribution; the mean alone for a single number."""
    if len(numbers) < 2:
        return numbers[0], numbers[0]
    spread = stats.sem(numbers)
    low, high = stats.t.interval(0.95, len(numbers) - 1, loc=np.mean(numbers), scale=max(spread, 1e-12))
    return float(low), float(high)
