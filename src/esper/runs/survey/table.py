"""What a survey found, as values: rows of trained networks, and what the host alone showed while it trained."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from esper.contracts import ObservationFields, SlotId

Array = NDArray[np.float64]
Seed = tuple[SlotId, str]
"""Where something was planted, and what."""


def named(structure: Sequence[Seed]) -> str:
    """The structure in one word.

    >>> named([("block0", "conv_heavy"), ("block2", "norm")]), named([])
    ('block0:conv_heavy+block2:norm', '')
    """
    return "+".join(f"{slot}:{blueprint}" for slot, blueprint in structure)


@dataclass(frozen=True)
class SurveyRow:
    """One network at the end of its training. Growth is that of what was kept, which may be less than was planted."""

    task: str
    seed: int
    structure: str
    """What was planted, as `named` says it; empty for the host alone."""
    rent: float
    evaluation_quality: float
    quality: float
    """On the test split."""
    host_parameters: int
    parameters: int

    @property
    def growth_log(self) -> float:
        return math.log(self.parameters / self.host_parameters)


@dataclass(frozen=True)
class HostCourse:
    """What the host alone showed after each of its first epochs; what was not measured is NaN.

    `host` has shape (epochs, features), `slot_features` (epochs, slots, features), `offers` (epochs, slots, blueprints,
    features). `qualities` are those after all epochs.
    """

    task: str
    seed: int
    slots: tuple[SlotId, ...]
    blueprints: tuple[str, ...]
    traits: dict[str, str]
    host: Array
    slot_features: Array
    offers: Array
    qualities: Array


@dataclass(frozen=True)
class TaskSurvey:
    """One task: the same structures on every seed."""

    task: str
    rent: float
    seeds: tuple[int, ...]
    courses: tuple[HostCourse, ...]
    """One per seed."""
    structures: tuple[str, ...]
    """The first is the host alone."""
    evaluation: Array
    """Quality on the evaluation split, (structures, seeds)."""
    test: Array
    growth_log: Array
    """Logarithm of growth, (structures, seeds)."""

    def scores(self, qualities: Array, rent: float | None = None) -> Array:
        """Quality minus rent, of every structure on every seed."""
        return qualities - (self.rent if rent is None else rent) * self.growth_log

    def gains(self, qualities: Array, rent: float | None = None) -> Array:
        """Score above that of the host alone on the same seed."""
        scores = self.scores(qualities, rent)
        return scores - scores[:1]

    @cached_property
    def singles(self) -> dict[Seed, int]:
        """The index of each structure of one seed."""
        alone = ((index, name) for index, name in enumerate(self.structures) if name and "+" not in name)
        return {(slot, blueprint): index for index, name in alone for slot, blueprint in [name.split(":")]}


@dataclass(frozen=True)
class SurveyTable:
    """A whole survey. `fields` are the names of the features in the courses."""

    fields: ObservationFields
    rows: tuple[SurveyRow, ...]
    courses: tuple[HostCourse, ...]

    @cached_property
    def tasks(self) -> tuple[TaskSurvey, ...]:
        """Task by task, with the structures that were trained on all seeds of the task."""
        of_task: dict[str, list[SurveyRow]] = {}
        for row in self.rows:
            of_task.setdefault(row.task, []).append(row)
        courses = {(course.task, course.seed): course for course in self.courses}
        return tuple(_task(task, rows, courses) for task, rows in of_task.items())


def _task(task: str, rows: Sequence[SurveyRow], courses: dict[tuple[str, int], HostCourse]) -> TaskSurvey:
    seeds = tuple(sorted({row.seed for row in rows}))
    found = {(row.structure, row.seed): row for row in rows}
    trained = dict.fromkeys(row.structure for row in rows)
    names = [name for name in trained if all((name, seed) in found for seed in seeds)]

    def array(read: str) -> Array:
        return np.array([[getattr(found[name, seed], read) for seed in seeds] for name in names])

    names.sort(key=lambda name: name != "")
    return TaskSurvey(
        task=task,
        rent=rows[0].rent,
        seeds=seeds,
        courses=tuple(courses[task, seed] for seed in seeds),
        structures=tuple(names),
        evaluation=array("evaluation_quality"),
        test=array("quality"),
        growth_log=array("growth_log"),
    )
