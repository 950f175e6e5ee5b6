"""The report on an exam: its rows as CSV and Parquet, what they say as Markdown and as one HTML page with figures."""

import base64
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import jinja2

from esper.environment import stem_of
from esper.runs.directory import Unwritable, write_whole
from esper.runs.exam.directory import OR_ELSEWHERE
from esper.runs.exam.plane import COSTS, Plane
from esper.runs.exam.row import ExamRow
from esper.runs.exam.rows_file import csv_text, write_parquet
from esper.runs.exam.summary import ExamSummary, Section, Terms, summarise
from esper.runs.exam.tables import tables_of

MEANINGFUL = re.compile(r"([\\`*_\[\]<>|~$&])")
"""What Markdown would take for more than text, within a line."""
FEW_SEEDS = 20
"""With fewer, bootstrap intervals are clearly too narrow."""


TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("esper.runs.exam"),
    autoescape=jinja2.select_autoescape(enabled_extensions=["html.j2"], default=False),
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=jinja2.StrictUndefined,
)


def write_report(rows: Sequence[ExamRow], directory: Path, terms: Terms, command: str) -> None:
    """Write `exam.csv`, `.parquet`, `.md`, `.html` and a picture of every plane; each file is the old one or the new.

    `command` is what held the exam. Nothing is written if the rows are refused.
    """
    summary = summarise(rows, terms)
    planes = {
        section.title: [Plane(cost, section, rows, terms.reference) for cost in COSTS] for section in summary.tasks
    }
    texts = {"exam.csv": csv_text(rows), **render(summary, command, planes)}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            write_whole(directory / name, text)
        write_parquet(rows, directory / "exam.parquet")
        _write_pictures(planes, directory)
    except duckdb.Error as error:
        raise Unwritable(
            f"{directory / 'exam.parquet'} cannot be written ({error}); give an --out that can be written"
        ) from error
    except OSError as error:
        raise Unwritable.because(directory, error, OR_ELSEWHERE) from error


def render(summary: ExamSummary, command: str, planes: dict[str, list[Plane]]) -> dict[str, str]:
    """`exam.md` and `exam.html`; nothing that was given is taken for markup in either."""
    sections = [*summary.tasks, *([summary.together] if summary.together else [])]
    given: dict[str, Any] = {
        "summary": summary,
        "sections": [(each, _lead(each), list(tables_of(each, summary))) for each in sections],
        "least_seeds": min(len(section.seeds) for section in summary.tasks),
        "few_seeds": FEW_SEEDS,
        "rents": {section.rent for section in summary.tasks},
        "command": command,
    }
    given["notes"] = TEMPLATES.get_template("notes.txt.j2").render(given).splitlines()
    given["figures"] = {title: [(each.title, _embedded(each)) for each in some] for title, some in planes.items()}
    return {f"exam.{kind}": TEMPLATES.get_template(f"exam.{kind}.j2").render(given) for kind in ("md", "html")}


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


def escape(text: str) -> str:
    r"""The text as one line of Markdown that reads as it is.

    >>> print(escape("<b> | my_policy"))
    \<b\> \| my\_policy
    """
    return MEANINGFUL.sub(r"\\\1", " ".join(text.split()))


def fence(command: str) -> str:
    """What opens and closes a block of Markdown that holds the command, whatever it holds."""
    return "`" * max(3, 1 + max(map(len, re.findall("`+", command)), default=0))


def _embedded(plane: Plane) -> str | None:
    picture = plane.draw("svg")
    return None if picture is None else f"data:image/svg+xml;base64,{base64.b64encode(picture).decode()}"


def _write_pictures(planes: dict[str, list[Plane]], directory: Path) -> None:
    """`TASK-parameters.png` and `TASK-training-flops.png`, if anything can draw; namesakes get numbers."""
    written: list[str] = []
    for task, each in ((task, each) for task, some in planes.items() for each in some):
        picture = each.draw("png")
        if picture is not None:
            name = re.sub(r"[^a-z0-9]+", "-", f"{stem_of(task)} {each.label}".lower())
            written.append(name)
            number = f"-{written.count(name)}" if written.count(name) > 1 else ""
            write_whole(directory / f"{name}{number}.png", picture)


TEMPLATES.filters |= {"md": escape, "fence": fence}
