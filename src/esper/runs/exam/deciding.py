"""What an exam of deciding found: every policy over all tasks of a family, beside what there was to win in them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import msgspec
import numpy as np

from esper.environment import find_task
from esper.runs.exam.nested_bootstrap import means
from esper.runs.exam.statistics import Bootstrap, Estimate, Numbers, UnmatchedPairs, rows_of, share_above_zero
from esper.runs.exam.summary import CONTROL, Comparison, Terms
from esper.runs.exam.winnings import Winnings, oracle_gains
from esper.runs.survey import TaskSurvey, rent_band
from esper.telemetry.exam_row import ExamRow
from esper.telemetry.exam_rows import check_rows

TRAITS = ("host", "kernel", "data", "optimizer")
"""By which tasks are grouped, and by rent."""
Surveyed = Mapping[str, TaskSurvey]
"""What was surveyed of the tasks, on the seeds and at the rents of the exam: of all tasks of a family, or of none."""


@dataclass(frozen=True)
class PolicyGain:
    """One policy over all tasks and seeds; gains are above the control without growth."""

    policy: str
    score: Estimate
    quality: Estimate
    growth: float
    grew: float
    """Share of the episodes that kept anything."""
    oracle_share: Estimate | None
    """Of the oracle's gain; None without a survey, or if that gain is not clear of zero."""
    trainings: Estimate | None
    """Of random search that gain as much: 0 for fewer than 1, `MOST_TRAININGS` + 1 for more than those."""


@dataclass(frozen=True)
class Prize:
    """What there was to win, by the survey: score gains of who chooses on one seed and is scored on another."""

    oracle: Estimate
    """The best of all that was surveyed."""
    search: tuple[Estimate, ...]
    """The best of 1, 2, ... random single seeds."""
    host_quality: float
    """Of the hosts alone in the survey."""


@dataclass(frozen=True)
class Group:
    """Score gains over the tasks of one kind."""

    by: str
    kind: str
    tasks: int
    gains: dict[str, Estimate]
    """By policy."""
    oracle: Estimate | None


@dataclass(frozen=True)
class FamilySummary:
    """Everything that a report says about a family, as numbers."""

    title: str
    tasks: int
    seeds: tuple[int, ...]
    control_quality: float
    policies: tuple[PolicyGain, ...]
    """All but the control."""
    differences: tuple[Comparison, ...]
    """The reference minus every other policy. Better on a task is who is better on average over its seeds."""
    groups: tuple[Group, ...]
    prize: Prize | None


class Grid:
    """The rows as tables of shape (tasks, seeds), one for every policy."""

    def __init__(self, rows: Sequence[ExamRow]) -> None:
        check_rows(rows)
        self.tasks, self.seeds = sorted({row.task for row in rows}), sorted({row.seed for row in rows})
        self.policies = list(dict.fromkeys(row.policy for row in rows))
        self._rows = {(row.policy, row.task, row.seed): row for row in rows}
        for policy, task, seed in product(self.policies, self.tasks, self.seeds):
            if (policy, task, seed) not in self._rows:
                raise UnmatchedPairs(
                    f"policy '{policy}' has no row for seed {seed} of task '{task}'; play all policies on the same "
                    "seeds of the same tasks"
                )

    def table(self, policy: str, read: Callable[[ExamRow], float]) -> Numbers:
        return np.array([[read(self._rows[policy, task, seed]) for seed in self.seeds] for task in self.tasks])

    def kinds(self) -> Iterator[tuple[str, str, list[int]]]:
        """A way to group tasks, a kind of task, and the places of its tasks."""
        told = [kinds_of(task, self._rows[CONTROL, task, self.seeds[0]].rent) for task in self.tasks]
        for by in (*TRAITS, "rent"):
            for kind in sorted({each[by] for each in told if by in each}):
                yield by, kind, [place for place, each in enumerate(told) if each.get(by) == kind]


class Gains:
    """What every policy has of something above the control, which has 0 itself."""

    def __init__(self, grid: Grid, read: Callable[[ExamRow], float], bootstrap: Bootstrap) -> None:
        control = grid.table(CONTROL, read)
        self.tables = {policy: grid.table(policy, read) - control for policy in grid.policies}
        self.means = means(self.tables, bootstrap)

    def difference(self, one: str, other: str) -> Estimate:
        return (self.means[one] - self.means[other]).estimate()

    def better(self, one: str, other: str) -> Estimate:
        """On which share of the tasks, on average over their seeds."""
        return share_above_zero((self.tables[one] - self.tables[other]).mean(axis=1).tolist())


def kinds_of(task: str, rent: float) -> dict[str, str]:
    """The groups of a task; dense hosts have no kernel.

    >>> kinds_of("family:small-exam/1", rent=0.1)["rent"]
    '0.03 to 0.1'
    """
    traits = find_task(task).traits
    return {**{by: traits[by] for by in TRAITS if traits.get(by, "none") != "none"}, "rent": rent_band(rent)}


def deciding_summary(
    rows: Sequence[ExamRow], families: Mapping[str, Sequence[str]], terms: Terms, surveyed: Surveyed
) -> dict[str, Any]:
    """What `summarise_families` finds, as JSON takes it."""
    found = summarise_families(rows, families, terms, surveyed)
    return {"terms": msgspec.to_builtins(terms), "families": msgspec.to_builtins(found)}


def summarise_families(
    rows: Sequence[ExamRow], families: Mapping[str, Sequence[str]], terms: Terms, surveyed: Surveyed
) -> list[FamilySummary]:
    """What the rows say about each family, which is given by the names of its tasks."""
    return [
        summarise_family(title, [row for row in rows if row.task in tasks], terms, surveyed)
        for title, tasks in ((title, set(names)) for title, names in families.items())
    ]


def summarise_family(title: str, rows: Sequence[ExamRow], terms: Terms, surveyed: Surveyed) -> FamilySummary:
    """What the rows say about a family, if every policy was played on the same seeds of all its tasks."""
    for needed in (CONTROL, terms.reference):
        rows_of(rows, needed)
    grid, bootstrap = Grid(rows), terms.bootstrap
    known = [surveyed[task] for task in grid.tasks if task in surveyed]
    winnings = Winnings.of(known, bootstrap) if known else None
    score, quality = (Gains(grid, read, bootstrap) for read in (lambda row: row.score, lambda row: row.quality))
    others = [policy for policy in grid.policies if policy != terms.reference]
    return FamilySummary(
        title=title,
        tasks=len(grid.tasks),
        seeds=tuple(grid.seeds),
        control_quality=float(grid.table(CONTROL, lambda row: row.quality).mean()),
        policies=tuple(_gain(each, grid, score, quality, winnings) for each in grid.policies if each != CONTROL),
        differences=tuple(_difference(terms.reference, other, score, quality) for other in others),
        groups=tuple(_groups(grid, score, known, bootstrap)),
        prize=None if winnings is None else _prize(winnings, known),
    )


def _gain(policy: str, grid: Grid, score: Gains, quality: Gains, winnings: Winnings | None) -> PolicyGain:
    growth = grid.table(policy, lambda row: row.growth)
    gained = score.means[policy]
    return PolicyGain(
        policy=policy,
        score=gained.estimate(),
        quality=quality.means[policy].estimate(),
        growth=float(growth.mean()),
        grew=float((growth > 1).mean()),
        oracle_share=None if winnings is None else winnings.share(gained),
        trainings=None if winnings is None else winnings.trainings(gained),
    )


def _difference(one: str, other: str, score: Gains, quality: Gains) -> Comparison:
    return Comparison(
        against=other,
        quality=quality.difference(one, other),
        better=quality.better(one, other),
        score=score.difference(one, other),
        better_score=score.better(one, other),
    )


def _groups(grid: Grid, score: Gains, known: Sequence[TaskSurvey], bootstrap: Bootstrap) -> Iterator[Group]:
    best = oracle_gains(known) if known else None
    for by, kind, places in grid.kinds():
        own = means({policy: table[places] for policy, table in score.tables.items()}, bootstrap)
        yield Group(
            by=by,
            kind=kind,
            tasks=len(places),
            gains={policy: each.estimate() for policy, each in own.items() if policy != CONTROL},
            oracle=None if best is None else means({"": best[places]}, bootstrap)[""].estimate(),
        )


def _prize(winnings: Winnings, known: Sequence[TaskSurvey]) -> Prize:
    return Prize(
        oracle=winnings.oracle.estimate(),
        search=tuple(each.estimate() for each in winnings.search),
        host_quality=float(np.mean([task.test[0] for task in known])),
    )
