"""The tables of a report on families, in plain text that a page has yet to escape."""

from collections.abc import Callable, Iterator

from esper.runs.exam.deciding import FamilySummary, PolicyGain
from esper.runs.exam.statistics import Estimate
from esper.runs.exam.tables import ABSENT, DIFFERENCES, Cell, Table, percent, points, times
from esper.runs.exam.winnings import MOST_TRAININGS

GAINS: dict[str, Callable[[PolicyGain], Cell]] = {
    "score points": lambda each: points(each.score),
    "quality points": lambda each: points(each.quality),
    "growth": lambda each: times(each.growth),
    "grew on %": lambda each: Cell(f"{100 * each.grew:.0f}"),
}
SHARES: dict[str, Callable[[PolicyGain], Cell]] = {
    "of the oracle's gain %": lambda each: percent(each.oracle_share, digits=0),
    "trainings of search it is worth": lambda each: trainings(each.trainings),
}
SEARCHES = (1, 2, 4, 8, 16, 32)
"""Trainings that the table of what there was to win tells."""


def trainings(number: Estimate | None) -> Cell:
    """How many trainings of search, and an interval.

    >>> trainings(Estimate(6.25, 0.0, 33.0, count=10))
    Cell(text='6.2', interval='[<1, >32]', is_strong=False)
    >>> trainings(Estimate(33.0, 9.5, 33.0, count=10))
    Cell(text='more than 32', interval='[9.5, >32]', is_strong=False)
    """
    if number is None:
        return Cell(ABSENT)
    interval = "" if number.is_point else f"[{_trainings(number.low, '<', '>')}, {_trainings(number.high, '<', '>')}]"
    return Cell(_trainings(number.value, "fewer than ", "more than "), interval)


def _trainings(number: float, fewer: str, more: str) -> str:
    if number < 1:
        return f"{fewer}1"
    return f"{more}{MOST_TRAININGS}" if number > MOST_TRAININGS else f"{number:.1f}"


def tables_of(family: FamilySummary, reference: str) -> Iterator[Table]:
    """The policies, what there was to win, and the reference against every other policy."""
    columns = {**GAINS, **(SHARES if family.prize else {})}
    lines = (
        (Cell(each.policy, is_strong=each.policy == reference), *(read(each) for read in columns.values()))
        for each in family.policies
    )
    yield Table("Gains over no growth", ("policy", *columns), tuple(lines))
    if family.prize:
        searched = ((f"search {count}", str(count), family.prize.search[count - 1]) for count in SEARCHES)
        won = [*searched, ("oracle", "all", family.prize.oracle)]
        choices = tuple((Cell(name), Cell(spent), points(gain)) for name, spent, gain in won)
        yield Table("What there was to win", ("choice", "trainings", "score points"), choices)
    if family.differences:
        compared = ((Cell(each.against), *(read(each) for read in DIFFERENCES.values())) for each in family.differences)
        yield Table(f"{reference} minus every other policy", ("against", *DIFFERENCES), tuple(compared))


def group_tables(family: FamilySummary) -> Iterator[Table]:
    """Score gains by every way to group tasks."""
    policies = [each.policy for each in family.policies]
    oracle = ["oracle"] if family.prize else []
    for by in dict.fromkeys(group.by for group in family.groups):
        lines = (
            (
                Cell(group.kind),
                Cell(str(group.tasks)),
                *(points(group.gains[policy]) for policy in policies),
                *([] if group.oracle is None else [points(group.oracle)]),
            )
            for group in family.groups
            if group.by == by
        )
        yield Table(f"By {by}", (by, "tasks", *policies, *oracle), tuple(lines))
