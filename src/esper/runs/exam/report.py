"""The report on an exam: its rows as CSV and Parquet, what they say as Markdown and as one HTML page."""

import math
import os
import re
from collections.abc import Sequence
from pathlib import Path

import duckdb

from esper.contracts import nearest
from esper.runs.directory import Unwritable, write_whole
from esper.runs.exam.drawing import draw_plane
from esper.runs.exam.findings import CONTROLS, Findings, Terms, find
from esper.runs.exam.markdown import to_markdown
from esper.runs.exam.page import to_page
from esper.runs.exam.row import ExamRow
from esper.runs.exam.rows_file import BadExam, check_rows, csv_text, read_rows, write_parquet
from esper.runs.exam.statistics import Bootstrap, PolicyNotPlayed

__all__ = ["BadExam", "read_rows", "write_report"]


def write_report(
    rows: Sequence[ExamRow],
    directory: Path,
    *,
    rent: float,
    reference: str,
    command: str,
    control: str | None = None,
) -> None:
    """Write `exam.csv`, `.parquet`, `.md`, `.html` and a picture of every plane; each file is the old one or the new.

    All policies of a task must have been played on the same seeds. `reference` is compared with every other policy.
    `control` is the policy without growth; if it is not given, the one that is called 'none' or 'no growth'. Nothing
    is written if the rows are refused.
    """
    check_rows(rows)
    if not math.isfinite(rent):
        raise BadExam(f"the rent must be finite, and is {rent!r}")
    findings = find(rows, Terms(rent, reference, _control(rows, control), Bootstrap()), command)
    texts = {"exam.csv": csv_text(rows, rent), "exam.md": to_markdown(findings), "exam.html": to_page(findings)}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            write_whole(directory / name, text)
        _write_whole_parquet(rows, rent, directory / "exam.parquet")
        _write_pictures(findings, directory)
    except (OSError, duckdb.Error) as error:
        raise Unwritable(f"the report cannot be written to {directory}: {error}; give another directory") from error


def _control(rows: Sequence[ExamRow], given: str | None) -> str | None:
    """The policy without growth; None if none is given, and none is known by its name."""
    played = list(dict.fromkeys(row.policy for row in rows))
    if given is not None and given not in played:
        raise PolicyNotPlayed(f"no row is of the control policy '{given}'; {nearest(given, played)}")
    return given if given is not None else next((name for name in CONTROLS if name in played), None)


def _write_pictures(findings: Findings, directory: Path) -> None:
    """`TASK-parameters.png` and `TASK-training-flops.png`, if anything can draw; namesakes get numbers."""
    written: list[str] = []
    for section in findings.sections:
        for plane in section.planes:
            picture = draw_plane(plane, "png")
            if picture is not None:
                name = re.sub(r"[^a-z0-9]+", "-", f"{Path(section.title).stem} {plane.cost}".lower())
                before = written.count(name)
                written.append(name)
                write_whole(directory / f"{name}{f'-{before + 1}' if before else ''}.png", picture)


def _write_whole_parquet(rows: Sequence[ExamRow], rent: float, path: Path) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        write_parquet(rows, rent, part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
