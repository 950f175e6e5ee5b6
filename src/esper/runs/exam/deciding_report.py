"""The report on an exam of deciding: for every family what the policies gain, what there was to win, and where."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from esper.environment import FAMILY, stem_of
from esper.runs.exam.deciding import FamilySummary
from esper.runs.exam.deciding_figure import GainFigure
from esper.runs.exam.deciding_tables import group_tables, tables_of
from esper.runs.exam.nested_bootstrap import LEAST_TASKS
from esper.runs.exam.page import TEMPLATES, Page, PagePart, Picture, write_page
from esper.runs.exam.summary import CONTROL, Terms
from esper.runs.exam.winnings import MOST_TRAININGS
from esper.telemetry.exam_row import ExamRow

FEW_TASKS = 20
"""With fewer, bootstrap intervals are clearly too narrow."""

Figures = Mapping[str, bytes | None]
"""Image files by name; None where matplotlib is not installed."""


def write_deciding(
    families: Sequence[FamilySummary], rows: Sequence[ExamRow], directory: Path, terms: Terms, command: str
) -> None:
    """Write the rows, the page, and for every family with a survey a figure as `FAMILY.svg` and `FAMILY.png`."""
    figures = {
        f"{stem_of(family.title)}.{kind}": GainFigure(family, family.prize, terms.reference).draw(kind)
        for family in families
        if family.prize
        for kind in GainFigure.KINDS
    }
    write_page(page_of(families, terms, command, figures), rows, figures, directory)


def page_of(families: Sequence[FamilySummary], terms: Terms, command: str, figures: Figures) -> Page:
    """What is told of an exam of deciding."""
    notes = TEMPLATES.get_template("deciding.txt.j2").render(
        bootstrap=terms.bootstrap,
        control=CONTROL,
        few_tasks=FEW_TASKS,
        tasks=min(family.tasks for family in families),
        least_tasks=LEAST_TASKS,
        has_survey=any(family.prize for family in families),
        most_trainings=MOST_TRAININGS,
    )
    return Page(
        title=", ".join(family.title for family in families),
        reference=terms.reference,
        command=command,
        parts=tuple(part for family in families for part in _parts(family, terms.reference, figures)),
        notes=tuple(notes.splitlines()),
    )


def _parts(family: FamilySummary, reference: str, figures: Figures) -> tuple[PagePart, PagePart]:
    stem = stem_of(family.title)
    picture = Picture(GainFigure.title, GainFigure.alternative, figures.get(f"{stem}.svg"), f"{stem}.png")
    pictures = (picture,) if family.prize else ()
    return (
        PagePart(family.title, _lead(family), tuple(tables_of(family, reference)), pictures),
        PagePart(f"{family.title}: kinds of tasks", "Score points above no growth.", tuple(group_tables(family))),
    )


def _lead(family: FamilySummary) -> str:
    """How much was played, what the hosts reach alone, and what is missing."""
    seeds, policies = family.seeds, len(family.policies)
    lead = (
        f"{policies} {'policy' if policies == 1 else 'policies'} and no growth on {family.tasks} "
        f"task{'s' if family.tasks > 1 else ''}, {len(seeds)} seed{'s' if seeds[1:] else ''} each "
        f"({seeds[0]} to {seeds[-1]}). Without growth test quality is {100 * family.control_quality:.1f} %"
    )
    if family.prize:
        return f"{lead}, and in the survey {100 * family.prize.host_quality:.1f} %."
    size = f"--tasks {family.tasks} --seeds {max(2, len(seeds))}"
    return (
        f"{lead}. No survey of this family was given, so there is no figure, and nothing is told of what there was to "
        f"win: 'esper survey {family.title.removeprefix(FAMILY)} {size}' makes one, --survey takes it."
    )
