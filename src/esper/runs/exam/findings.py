"""What a report on an exam says: titles, sentences, tables and planes, in plain text that a page has yet to escape."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from esper.contracts import nearest
from esper.runs.exam.row import ExamRow
from esper.runs.exam.statistics import (
    Bootstrap,
    Estimate,
    PolicyNotPlayed,
    Quantity,
    Summary,
    compare,
    dominates,
    pareto_front,
    points_per_thousand_parameters,
    summarise_policies,
)
from esper.runs.exam.wording import ABSENT, count, listed, percent, points, ranges, times, with_prefix

CONTROLS = ("none", "no growth")
"""What the policy without growth is called, unless somebody says otherwise."""
COMMONEST = 3
FEW_SEEDS = 20
"""With fewer, bootstrap intervals are clearly too narrow."""
COSTS = {Quantity.PARAMETERS: "parameters", Quantity.TRAINING_FLOPS: "training FLOPs"}
"""The two planes: accuracy against these."""


@dataclass(frozen=True)
class Cell:
    """A text in a table, perhaps with an interval; a strong one stands out."""

    text: str
    interval: str = ""
    is_strong: bool = False


@dataclass(frozen=True)
class Table:
    """The first column names what a line is about; the others are numbers."""

    caption: str
    header: tuple[str, ...]
    lines: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class PlaneDot:
    """A policy in a plane: one dot per seed, and the means."""

    policy: str
    costs: tuple[float, ...]
    accuracies: tuple[float, ...]
    cost: Estimate
    accuracy: Estimate
    is_reference: bool
    is_control: bool
    is_on_front: bool


@dataclass(frozen=True)
class Plane:
    """Accuracy against a cost."""

    cost: str
    dots: tuple[PlaneDot, ...]
    sentence: str
    """The front in words."""


@dataclass(frozen=True)
class Section:
    """One task, or all of them together."""

    title: str
    lead: str
    tables: tuple[Table, ...]
    planes: tuple[Plane, ...]


@dataclass(frozen=True)
class Findings:
    """Everything that a report says, whatever it is written in."""

    title: str
    lead: str
    command: str
    sections: tuple[Section, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Terms:
    """What the policies are judged by: the rent, who is compared with all others, and who did not grow."""

    rent: float
    reference: str
    control: str | None
    bootstrap: Bootstrap


def find(rows: Sequence[ExamRow], terms: Terms, command: str) -> Findings:
    """What the rows say, task by task, and of all tasks together if there are several."""
    tasks = list(dict.fromkeys(row.task for row in rows))
    of_task = {task: [row for row in rows if row.task == task] for task in tasks}
    policies = list(dict.fromkeys(row.policy for row in rows))
    for task, own in of_task.items():
        played = dict.fromkeys(row.policy for row in own)
        if terms.reference not in played:
            raise PolicyNotPlayed(
                f"no row of task '{task}' is of the reference policy '{terms.reference}'; "
                f"{nearest(terms.reference, played)}"
            )
    sections = [_task_section(task, own, terms) for task, own in of_task.items()]
    if len(tasks) > 1:
        sections.append(_section_of_all(of_task, terms))
    return Findings(
        title="Exam: " + ", ".join(tasks),
        lead=f"{count(len(policies), 'policy', 'policies')} on the same held-out seeds of {count(len(tasks), 'task')}. "
        f"Compared with all others: '{terms.reference}'. Control without growth: "
        + (f"'{terms.control}'." if terms.control is not None else "none was played."),
        command=command,
        sections=tuple(sections),
        notes=_notes(rows, terms),
    )


def _task_section(task: str, rows: Sequence[ExamRow], terms: Terms) -> Section:
    found = summarise_policies(rows, terms.rent, terms.bootstrap)
    seeds = sorted({row.seed for row in rows})
    host = {row.host_parameters for row in rows}
    of_host = f", host of {min(host):,} parameters" if len(host) == 1 else ""
    differences = _differences_table(rows, list(found), terms)
    return Section(
        title=task,
        lead=f"{count(len(seeds), 'seed')} ({ranges(seeds)}){of_host}.",
        tables=(_policies_table(rows, found, terms), *differences, *_kept_table(rows, list(found))),
        planes=tuple(_plane(rows, found, cost, terms) for cost in COSTS),
    )


def _section_of_all(of_task: Mapping[str, Sequence[ExamRow]], terms: Terms) -> Section:
    """The policies that were played on every task, over all tasks."""
    everywhere = [
        policy
        for policy in dict.fromkeys(row.policy for rows in of_task.values() for row in rows)
        if all(any(row.policy == policy for row in rows) for rows in of_task.values())
    ]
    rows = [row for rows in of_task.values() for row in rows if row.policy in everywhere]
    found = summarise_policies(rows, terms.rent, terms.bootstrap)
    lines = tuple(
        (
            Cell(policy, is_strong=policy == terms.reference),
            Cell(*percent(summary[Quantity.ACCURACY].mean)),
            Cell(*percent(summary[Quantity.ACCURACY].iqm)),
            Cell(*percent(summary[Quantity.SCORE].mean)),
            Cell(times(summary[Quantity.GROWTH].mean.value)),
        )
        for policy, summary in found.items()
    )
    return Section(
        title="All tasks together",
        lead=f"{count(len(everywhere), 'policy', 'policies')} played on every task. Every seed of every task counts "
        "alike; resamples are drawn task by task.",
        tables=(
            Table("Policies", ("policy", "accuracy %", "IQM %", "score", "growth"), lines),
            *_differences_table(rows, everywhere, terms),
        ),
        planes=(),
    )


def _policies_table(rows: Sequence[ExamRow], found: Mapping[str, Mapping[Quantity, Summary]], terms: Terms) -> Table:
    header = (
        "policy",
        "accuracy %",
        "IQM %",
        "score",
        "growth",
        "parameters",
        "points per 1,000 added",
        "training FLOPs",
        "inference FLOPs",
        "area %",
        "rollbacks",
        "seconds",
    )
    return Table("Policies", header, tuple(_policy_line(rows, found, policy, terms) for policy in found))


def _policy_line(
    rows: Sequence[ExamRow], found: Mapping[str, Mapping[Quantity, Summary]], policy: str, terms: Terms
) -> tuple[Cell, ...]:
    mean = {metric: summary.mean for metric, summary in found[policy].items()}
    own = [row for row in rows if row.policy == policy]
    control = terms.control if terms.control in found else None
    spent = found[control][Quantity.TRAINING_FLOPS].mean.value if control is not None else 0.0
    gain = points_per_thousand_parameters(rows, policy, control) if control is not None else None
    judged = (mean[Quantity.ACCURACY], found[policy][Quantity.ACCURACY].iqm, mean[Quantity.SCORE])
    texts = (
        times(mean[Quantity.GROWTH].value),
        f"{mean[Quantity.PARAMETERS].value:,.0f}",
        ABSENT if gain is None else f"{gain:+.2f}",
        times(mean[Quantity.TRAINING_FLOPS].value / spent) if spent > 0 else ABSENT,
        with_prefix(mean[Quantity.INFERENCE_FLOPS].value),
        f"{100 * mean[Quantity.AREA].value:.1f}",
        str(sum(row.rollbacks for row in own)),
        f"{sum(row.seconds for row in own) / len(own):.1f}",
    )
    return (
        Cell(policy, is_strong=policy == terms.reference),
        *(Cell(*percent(each)) for each in judged),
        *map(Cell, texts),
    )


def _differences_table(rows: Sequence[ExamRow], policies: Sequence[str], terms: Terms) -> tuple[Table, ...]:
    """The reference against every other policy; nothing if there is no other."""
    others = [policy for policy in policies if policy != terms.reference]
    found = [compare(rows, terms.reference, other, terms.rent, terms.bootstrap) for other in others]
    header = ("against", "accuracy points", "more accurate on %", "score points", "better score on %")
    lines = tuple(
        (
            Cell(each.second),
            Cell(*points(each.accuracy), each.accuracy.is_clear_of_zero),
            Cell(*percent(each.more_accurate, digits=0)),
            Cell(*points(each.score), each.score.is_clear_of_zero),
            Cell(*percent(each.better_score, digits=0)),
        )
        for each in found
    )
    return (Table(f"{terms.reference} minus every other policy, seed by seed", header, lines),) if lines else ()


def _kept_table(rows: Sequence[ExamRow], policies: Sequence[str]) -> tuple[Table, ...]:
    """The architectures that each policy left most often; nothing if none kept anything."""
    lines = []
    for policy in policies:
        kept = [row.kept for row in rows if row.policy == policy]
        if any(kept):
            seeds = sum(len(each.split(", ")) for each in kept if each) / len(kept)
            common = Counter(kept).most_common(COMMONEST)
            texts = (f"{name or 'nothing'}: {count(times_seen, 'seed')}" for name, times_seen in common)
            lines.append((Cell(policy), Cell(f"{seeds:.2f}"), Cell("; ".join(texts))))
    header = ("policy", "kept on average", f"the {COMMONEST} most common results")
    return (Table("What was kept", header, tuple(lines)),) if lines else ()


def _plane(
    rows: Sequence[ExamRow], found: Mapping[str, Mapping[Quantity, Summary]], cost: Quantity, terms: Terms
) -> Plane:
    means = {
        policy: (summary[cost].mean.value, summary[Quantity.ACCURACY].mean.value) for policy, summary in found.items()
    }
    names = list(means)
    front = [names[index] for index in pareto_front(*zip(*means.values(), strict=True))]
    dots = []
    for policy, summary in found.items():
        own = sorted((row for row in rows if row.policy == policy), key=lambda row: row.seed)
        dots.append(
            PlaneDot(
                policy=policy,
                costs=tuple(float(getattr(row, cost.value)) for row in own),
                accuracies=tuple(row.accuracy for row in own),
                cost=summary[cost].mean,
                accuracy=summary[Quantity.ACCURACY].mean,
                is_reference=policy == terms.reference,
                is_control=policy == terms.control,
                is_on_front=policy in front,
            )
        )
    return Plane(COSTS[cost], tuple(dots), _front_in_words(COSTS[cost], means, front, terms.reference))


def _front_in_words(cost: str, means: Mapping[str, tuple[float, float]], front: Sequence[str], reference: str) -> str:
    """Who is on the front, cheapest first, and behind whom everybody else is: the reference, if it is so."""
    behind: dict[str, list[str]] = {}
    for policy in means:
        better = [other for other in front if dominates(means[other], means[policy])]
        if better:
            behind.setdefault(reference if reference in better else better[-1], []).append(policy)
    words = [
        f"Accuracy against {cost}: on the front {'is' if len(front) == 1 else 'are'} {listed(front)}",
        *(
            f"behind {listed([better])} {'is' if len(worse) == 1 else 'are'} {listed(worse)}"
            for better, worse in behind.items()
        ),
    ]
    return "; ".join(words) + "."


def _notes(rows: Sequence[ExamRow], terms: Terms) -> tuple[str, ...]:
    seeds = min(len({row.seed for row in rows if row.task == task}) for task in {row.task for row in rows})
    few: tuple[str, ...] = ()
    if seeds == 1:
        few = ("There is one seed only: means stand without an interval, and differences may be chance.",)
    elif seeds < FEW_SEEDS:
        few = (
            f"There are fewer than {FEW_SEEDS} seeds: intervals of means are too narrow (on normal data they hold the "
            "truth in 86 of 100 cases with 5 seeds, in 91 with 10).",
        )
    bootstrap = terms.bootstrap
    return (
        "Accuracy is that on the test split at the end, in percent. In brackets: 95 % intervals, percentiles of "
        f"{bootstrap.resamples:,} bootstrap resamples of the seeds (generator seed {bootstrap.seed}).",
        *few,
        "IQM is the mean without the lowest and the highest quarter of the seeds. Area is the mean accuracy on the "
        "evaluation split over all epochs.",
        f"Score is accuracy minus rent, in points: 100 · (accuracy - {terms.rent:g} · ln growth). Growth is all "
        "parameters over the host's.",
        "Points per 1,000 added: accuracy points over the control without growth, per thousand parameters more. "
        "Training FLOPs: times those of that control. Inference FLOPs: of one input. Rollbacks: of all seeds together. "
        f"Seconds: per episode, wall time. {ABSENT} where there is nothing to divide by.",
        "More accurate on, better score on: on how many of 100 seeds, ties counted half, with Wilson's 95 % interval. "
        "Bold differences have an interval clear of zero; no allowance is made for comparing with several policies.",
        "The fronts, cheapest first, are those of the means: who is behind another is, on average, no more accurate "
        "and no cheaper.",
    )
