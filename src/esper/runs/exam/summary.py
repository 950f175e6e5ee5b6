"""What an exam found: every policy of every task with intervals, and one of them against all others."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import msgspec
import numpy as np

from esper.contracts import nearest
from esper.runs.exam.statistics import (
    Bootstrap,
    Estimate,
    PolicyNotPlayed,
    Statistic,
    estimate,
    interquartile_mean,
    pairs_of,
    rows_of,
    share_above_zero,
)
from esper.telemetry.exam_row import ExamRow
from esper.telemetry.exam_rows import check_rows

T = TypeVar("T")

CONTROL = "none"
"""The policy without growth."""


@dataclass(frozen=True)
class Terms:
    """Who is compared with all others, and how intervals are made."""

    reference: str
    bootstrap: Bootstrap = field(default_factory=Bootstrap)


@dataclass(frozen=True)
class PolicySummary:
    """One policy on one task, or on all of them; numbers without an interval are plain means."""

    policy: str
    quality: Estimate
    told: Estimate
    """The metric in its own unit."""
    loss: float
    iqm: Estimate | None
    """The interquartile mean of qualities; of all tasks together, of normalised ones."""
    score: Estimate
    growth: float
    parameters: Estimate
    points_per_thousand: float | None
    """Quality points over the control, per thousand parameters more than it has; None without any more."""
    training_flops: Estimate
    relative_training_flops: float | None
    """Times those of the control."""
    inference_flops: float
    area: float
    rollbacks: int
    """Of all seeds together."""
    seconds: float
    kept: dict[str, int]
    """On how many seeds each architecture was left, the commonest first."""


@dataclass(frozen=True)
class Comparison:
    """The reference minus another policy on the same seeds, and how often it is better."""

    against: str
    quality: Estimate
    better: Estimate
    score: Estimate
    better_score: Estimate
    told: Estimate | None = None
    """Of the metric in its own unit; None over several tasks."""


@dataclass(frozen=True)
class Section:
    """One task, or all of them together."""

    title: str
    seeds: tuple[int, ...]
    host_parameters: int | None
    """None if the hosts differ."""
    judged_by: str | None
    """The metric; None if there are several."""
    rent: float | None
    """None if there are several."""
    policies: tuple[PolicySummary, ...]
    differences: tuple[Comparison, ...]


@dataclass(frozen=True)
class ExamSummary:
    """Everything that a report says, as numbers."""

    terms: Terms
    tasks: tuple[Section, ...]
    together: Section | None
    """The policies that were played on every task, if there are several; every seed of every task counts alike."""


def exam_summary(rows: Sequence[ExamRow], terms: Terms) -> dict[str, Any]:
    """What `summarise` finds, as JSON takes it."""
    return dict(msgspec.to_builtins(summarise(rows, terms)))


def summarise(rows: Sequence[ExamRow], terms: Terms) -> ExamSummary:
    """What the rows say, task by task, and of all tasks together if there are several.

    All policies of a task must have been played on the same seeds.
    """
    check_rows(rows)
    of_task = {task: [row for row in rows if row.task == task] for task in dict.fromkeys(row.task for row in rows)}
    for task, own in of_task.items():
        played = dict.fromkeys(row.policy for row in own)
        if terms.reference not in played:
            raise PolicyNotPlayed(
                f"no row of task '{task}' is of the reference policy '{terms.reference}'; "
                f"{nearest(terms.reference, played)}"
            )
    sections = tuple(_section(task, own, terms) for task, own in of_task.items())
    return ExamSummary(terms, sections, _together(rows, sections, terms) if len(sections) > 1 else None)


def _section(title: str, rows: Sequence[ExamRow], terms: Terms) -> Section:
    policies = list(dict.fromkeys(row.policy for row in rows))
    return Section(
        title=title,
        seeds=tuple(sorted({row.seed for row in rows})),
        host_parameters=_only({row.host_parameters for row in rows}),
        judged_by=_only({row.judged_by for row in rows}),
        rent=_only({row.rent for row in rows}),
        policies=tuple(_summary(rows, policy, terms) for policy in policies),
        differences=tuple(compare(rows, terms, other) for other in policies if other != terms.reference),
    )


def _only(values: set[T]) -> T | None:
    return next(iter(values)) if len(values) == 1 else None


def _together(rows: Sequence[ExamRow], sections: Sequence[Section], terms: Terms) -> Section:
    """The policies that were played on every task, over all tasks."""
    everywhere = set.intersection(*({each.policy for each in section.policies} for section in sections))
    shared = [row for row in rows if row.policy in everywhere]
    pooled = _section("All tasks together", shared, terms)
    scaled = _normalised(shared, sections) if CONTROL in everywhere else []
    policies = [replace(each, iqm=None) for each in pooled.policies]
    if scaled:
        policies = [replace(each, iqm=_iqm(rows_of(scaled, each.policy), terms)) for each in policies]
    return replace(pooled, policies=tuple(policies))


def _normalised(rows: Sequence[ExamRow], sections: Sequence[Section]) -> list[ExamRow]:
    """The rows with qualities on a scale that tasks share: 0 is the control's mean on the task, 1 the best policy's.

    None are left if nobody is better than the control on a task.
    """
    played, scaled = {row.policy for row in rows}, []
    for section in sections:
        means = {each.policy: each.quality.value for each in section.policies if each.policy in played}
        low, high = means[CONTROL], max(means.values())
        if high <= low:
            return []
        own = (row for row in rows if row.task == section.title)
        scaled += [replace(row, quality=(row.quality - low) / (high - low)) for row in own]
    return scaled


def _summary(rows: Sequence[ExamRow], policy: str, terms: Terms) -> PolicySummary:
    own = rows_of(rows, policy)
    pairs = pairs_of(rows, policy, CONTROL) if any(row.policy == CONTROL for row in rows) else []
    added = sum(one.parameters - other.parameters for one, other in pairs)
    gained = sum(one.quality - other.quality for one, other in pairs)
    spent = _mean([other for _, other in pairs], "training_flops") if pairs else 0.0
    return PolicySummary(
        policy=policy,
        quality=_estimate(np.mean, own, terms, lambda row: row.quality),
        told=_estimate(np.mean, own, terms, lambda row: row.told),
        loss=_mean(own, "loss"),
        iqm=_iqm(own, terms),
        score=_estimate(np.mean, own, terms, lambda row: row.score),
        growth=_mean(own, "growth"),
        parameters=_estimate(np.mean, own, terms, lambda row: row.parameters),
        points_per_thousand=100 * gained / (added / 1000) if added > 0 else None,
        training_flops=_estimate(np.mean, own, terms, lambda row: row.training_flops),
        relative_training_flops=_mean(own, "training_flops") / spent if spent > 0 else None,
        inference_flops=_mean(own, "inference_flops"),
        area=_mean(own, "area"),
        rollbacks=sum(row.rollbacks for row in own),
        seconds=_mean(own, "seconds"),
        kept=dict(Counter(row.kept for row in own).most_common()),
    )


def _mean(rows: Sequence[ExamRow], name: str) -> float:
    return float(np.mean([getattr(row, name) for row in rows]))


def _iqm(rows: Sequence[ExamRow], terms: Terms) -> Estimate:
    return _estimate(interquartile_mean, rows, terms, lambda row: row.quality)


def _estimate(
    statistic: Statistic, rows: Sequence[ExamRow], terms: Terms, read: Callable[[ExamRow], float]
) -> Estimate:
    return estimate(statistic, [read(row) for row in rows], [row.task for row in rows], terms.bootstrap)


def compare(rows: Sequence[ExamRow], terms: Terms, other: str) -> Comparison:
    """The reference against another policy, on every task and seed of the rows."""
    pairs = pairs_of(rows, terms.reference, other)
    tasks = [one.task for one, _ in pairs]
    quality = [one.quality - two.quality for one, two in pairs]
    told = [one.told - two.told for one, two in pairs]
    score = [one.score - two.score for one, two in pairs]
    return Comparison(
        against=other,
        quality=estimate(np.mean, quality, tasks, terms.bootstrap),
        told=estimate(np.mean, told, tasks, terms.bootstrap),
        better=share_above_zero(quality),
        score=estimate(np.mean, score, tasks, terms.bootstrap),
        better_score=share_above_zero(score),
    )
