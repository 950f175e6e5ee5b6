"""The report on an exam of single tasks: a part for every task, with two planes, and one for all together."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from esper.environment import stem_of
from esper.runs.exam.page import TEMPLATES, Page, PagePart, Picture, write_page
from esper.runs.exam.plane import COSTS, Plane
from esper.runs.exam.summary import ExamSummary, Section, Terms, summarise
from esper.runs.exam.tables import tables_of
from esper.telemetry.exam_row import ExamRow

FEW_SEEDS = 20
"""With fewer, bootstrap intervals are clearly too narrow."""


def write_report(rows: Sequence[ExamRow], directory: Path, terms: Terms, command: str) -> None:
    """Write the rows, the page and a picture of every plane.

    `command` is what held the exam. Nothing is written if the rows are refused.
    """
    summary = summarise(rows, terms)
    planes = {
        section.title: [Plane(cost, section, rows, terms.reference) for cost in COSTS] for section in summary.tasks
    }
    pictures = {name: plane.draw("png") for name, plane in _picture_names(planes)}
    write_page(page_of(summary, command, planes), rows, pictures, directory)


def page_of(summary: ExamSummary, command: str, planes: Mapping[str, Sequence[Plane]]) -> Page:
    """What is told of an exam, with the planes of each task."""
    sections = [*summary.tasks, *([summary.together] if summary.together else [])]
    notes = TEMPLATES.get_template("notes.txt.j2").render(
        summary=summary,
        least_seeds=min(len(section.seeds) for section in summary.tasks),
        few_seeds=FEW_SEEDS,
        rents={section.rent for section in summary.tasks},
    )
    return Page(
        title=", ".join(section.title for section in summary.tasks),
        reference=summary.terms.reference,
        command=command,
        parts=tuple(_part(each, summary, planes.get(each.title, ())) for each in sections),
        notes=tuple(notes.splitlines()),
    )


def _part(section: Section, summary: ExamSummary, planes: Sequence[Plane]) -> PagePart:
    pictures = (
        Picture(each.title, f"{each.title}: a dot per seed, means with 95 % intervals", each.draw("svg"))
        for each in planes
    )
    return PagePart(section.title, _lead(section), tuple(tables_of(section, summary)), tuple(pictures))


def _lead(section: Section) -> str:
    """How many played, on what.

    >>> _lead(Section("toy", (0, 1, 2), 81, "accuracy", 0.08, (), ()))
    '0 policies on 3 seeds (0 to 2), host of 81 parameters.'
    """
    policies, seeds = len(section.policies), section.seeds
    host = f", host of {section.host_parameters:,} parameters" if section.host_parameters else ""
    return (
        f"{policies} {'policy' if policies == 1 else 'policies'} on {len(seeds)} seed{'s' if seeds[1:] else ''} "
        f"({seeds[0]} to {seeds[-1]}){host}."
    )


def _picture_names(planes: Mapping[str, Sequence[Plane]]) -> Iterator[tuple[str, Plane]]:
    """`TASK-parameters.png` and `TASK-training-flops.png`; namesakes get numbers."""
    written: list[str] = []
    for task, each in ((task, each) for task, some in planes.items() for each in some):
        name = re.sub(r"[^a-z0-9]+", "-", f"{stem_of(task)} {each.label}".lower())
        written.append(name)
        number = f"-{written.count(name)}" if written.count(name) > 1 else ""
        yield f"{name}{number}.png", each
