"""The tables of a report, in plain text that a page has yet to escape."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from esper.contracts import ACCURACY, UNITS
from esper.runs.exam.statistics import Estimate
from esper.runs.exam.summary import Comparison, ExamSummary, PolicySummary, Section

ABSENT = "\N{EN DASH}"
PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
COMMONEST = 3


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


def percent(number: Estimate | None, digits: int = 1) -> Cell:
    """The number in percent, and its interval; no interval if there is none.

    >>> percent(Estimate(0.5, 0.25, 0.75, count=10))
    Cell(text='50.0', interval='[25.0, 75.0]', is_strong=False)
    """
    return Cell(ABSENT) if number is None else Cell(*_shown(number, f".{digits}f"))


def points(number: Estimate) -> Cell:
    """A difference in points, with its sign and its interval; strong if that is clear of zero."""
    return Cell(*_shown(number, "+.2f"), number.is_clear_of_zero)


def _shown(number: Estimate, form: str) -> tuple[str, str]:
    """The number and its interval times 100; zero has no sign."""
    texts = (format(100 * each, form) for each in (number.value, number.low, number.high))
    value, low, high = (text if float(text) else text.lstrip("+-") for text in texts)
    return value, "" if number.is_point else f"[{low}, {high}]"


def times(number: float | None) -> Cell:
    """A factor."""
    return Cell(ABSENT if number is None else f"\N{MULTIPLICATION SIGN}{number:.2f}")


def with_prefix(number: float) -> str:
    """Three digits and a prefix.

    >>> with_prefix(1234567.0), with_prefix(52.0), with_prefix(999999.0)
    ('1.23 M', '52', '1.00 M')
    """
    for size, prefix in PREFIXES:
        if number >= 0.9995 * size:
            scaled = number / size
            return f"{scaled:.{2 if scaled < 9.995 else 1 if scaled < 99.95 else 0}f} {prefix}"
    return f"{number:.0f}"


Columns = dict[str, Callable[[PolicySummary], Cell]]

TOGETHER: Columns = {
    "quality %": lambda each: percent(each.quality),
    "normalised IQM %": lambda each: percent(each.iqm),
    "score": lambda each: percent(each.score),
    "growth": lambda each: times(each.growth),
}
ONE_TASK: Columns = {
    "quality %": lambda each: percent(each.quality),
    "IQM %": lambda each: percent(each.iqm),
    "score": lambda each: percent(each.score),
    "loss nats": lambda each: Cell(f"{each.loss:.3f}"),
    "growth": lambda each: times(each.growth),
    "parameters": lambda each: Cell(f"{each.parameters.value:,.0f}"),
    "points per 1,000 added": lambda each: Cell(
        ABSENT if each.points_per_thousand is None else f"{each.points_per_thousand:+.2f}"
    ),
    "training FLOPs": lambda each: times(each.relative_training_flops),
    "inference FLOPs": lambda each: Cell(with_prefix(each.inference_flops)),
    "area %": lambda each: Cell(f"{100 * each.area:.1f}"),
    "rollbacks": lambda each: Cell(str(each.rollbacks)),
    "seconds": lambda each: Cell(f"{each.seconds:.1f}"),
}
DIFFERENCES: dict[str, Callable[[Comparison], Cell]] = {
    "quality points": lambda each: points(each.quality),
    "better quality on %": lambda each: percent(each.better, digits=0),
    "score points": lambda each: points(each.score),
    "better score on %": lambda each: percent(each.better_score, digits=0),
}


def tables_of(section: Section, summary: ExamSummary) -> Iterator[Table]:
    """The policies, the reference against every other one if there are others, and what was kept if anything was."""
    reference = summary.terms.reference
    columns = _told(section) | (TOGETHER if section is summary.together else ONE_TASK)
    lines = (
        (Cell(each.policy, is_strong=each.policy == reference), *(read(each) for read in columns.values()))
        for each in section.policies
    )
    yield Table("Policies", ("policy", *_named(columns, section)), tuple(lines))
    if section.differences:
        differences = _told_differences(section) | DIFFERENCES
        compared = (
            (Cell(each.against), *(read(each) for read in differences.values())) for each in section.differences
        )
        caption = f"{reference} minus every other policy, seed by seed"
        yield Table(caption, ("against", *_named(differences, section)), tuple(compared))
    kept = tuple(_kept(section.policies))
    if kept and section is not summary.together:
        yield Table("What was kept", ("policy", "kept on average", f"the {COMMONEST} most common results"), kept)


def _told(section: Section) -> Columns:
    """The loss, in the unit in which it is told."""
    return {str(section.judged_by): lambda each: in_unit(each.told, ".3f")} if section.judged_by in UNITS else {}


def _told_differences(section: Section) -> dict[str, Callable[[Comparison], Cell]]:
    return {str(section.judged_by): lambda each: in_unit(each.told, "+.3f")} if section.judged_by in UNITS else {}


def in_unit(number: Estimate | None, form: str) -> Cell:
    """The number as it is, and its interval; a difference is strong if that is clear of zero."""
    if number is None:
        return Cell(ABSENT)
    interval = "" if number.is_point else f"[{number.low:{form}}, {number.high:{form}}]"
    return Cell(f"{number.value:{form}}", interval, form.startswith("+") and number.is_clear_of_zero)


def _named(columns: Iterable[str], section: Section) -> list[str]:
    """Where all is judged by accuracy, that is the quality, and so it is called."""
    exact = section.judged_by == ACCURACY.name
    return [name.replace("quality", ACCURACY.name) if exact else name for name in columns]


def _kept(policies: Iterable[PolicySummary]) -> Iterator[tuple[Cell, ...]]:
    """The architectures that each policy left most often, of those that kept anything."""
    for each in policies:
        if any(each.kept):
            seeds = sum(count * len(kept.split(", ")) for kept, count in each.kept.items() if kept)
            common = list(each.kept.items())[:COMMONEST]
            texts = (f"{kept or 'nothing'}: {count} seed{'s' if count > 1 else ''}" for kept, count in common)
            yield Cell(each.policy), Cell(f"{seeds / sum(each.kept.values()):.2f}"), Cell("; ".join(texts))
