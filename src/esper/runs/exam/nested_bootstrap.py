"""Means over the tasks of a family, with intervals from resampling tasks, and then the seeds of each drawn task.

A policy must carry over to other tasks of the family, so it is the tasks that make the intervals wide.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from esper.runs.exam.statistics import BATCH_NUMBERS, LEVEL, Bootstrap, Estimate, Numbers

Name = TypeVar("Name")

LEAST_TASKS = 5
"""Fewer say next to nothing about other tasks, and resamples of them claim too much."""


@dataclass(frozen=True, eq=False)
class Resampled:
    """A number, and what it is on every resample. Over as many tasks and seeds all are drawn alike, so they pair."""

    value: float
    draws: Numbers
    tasks: int
    count: int
    """Rows, or pairs of rows, behind it."""

    def estimate(self) -> Estimate:
        """With its 95 % interval; of too few tasks it is a point."""
        if self.tasks < LEAST_TASKS:
            return Estimate(self.value, self.value, self.value, self.count, is_point=True)
        low, high = np.quantile(self.draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return Estimate(self.value, float(low), float(high), self.count)

    def __sub__(self, other: "Resampled") -> "Resampled":
        return Resampled(self.value - other.value, self.draws - other.draws, self.tasks, self.count)

    def __truediv__(self, other: "Resampled") -> "Resampled":
        return Resampled(self.value / other.value, self.draws / other.draws, self.tasks, self.count)


def means(tables: Mapping[Name, Numbers], bootstrap: Bootstrap) -> dict[Name, Resampled]:
    """Of tables of shape (tasks, seeds)."""
    stacked = np.stack(list(tables.values()))
    tasks, seeds = stacked.shape[1:]
    flat = stacked.reshape(len(tables), tasks * seeds)
    draws = np.concatenate([weights @ flat.T for weights in _weights(tasks, seeds, bootstrap)])
    return {
        name: Resampled(float(flat[place].mean()), draws[:, place], tasks, tasks * seeds)
        for place, name in enumerate(tables)
    }


def _weights(tasks: int, seeds: int, bootstrap: Bootstrap) -> Iterator[Numbers]:
    """How much every row counts in each resample, in batches of resamples; they depend on nothing else."""
    generator, rows = np.random.default_rng(bootstrap.seed), tasks * seeds
    batch = max(1, BATCH_NUMBERS // rows)
    for first in range(0, bootstrap.resamples, batch):
        count = min(batch, bootstrap.resamples - first)
        drawn_tasks = generator.integers(tasks, size=(count, tasks, 1))
        drawn = drawn_tasks * seeds + generator.integers(seeds, size=(count, tasks, seeds))
        places = np.arange(count)[:, None] * rows + drawn.reshape(count, rows)
        yield np.bincount(places.ravel(), minlength=count * rows).reshape(count, rows) / rows
