"""`esper exam`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from esper.cli.console import DONE, INTERRUPTED, err, out, print_json
from esper.runs.exam import Exam, ExamBars, ExamConfig, ExamLines, ExamRow, deciding_summary, exam_summary


@dataclass(frozen=True)
class ExamArguments:
    """Play every policy on the same held-out seeds and report with intervals; the same command goes on after Ctrl-C."""

    settings: Annotated[ExamConfig, tyro.conf.arg(name="")]
    out: Path = Path("exam")
    """Directory of the rows and the report: new, empty, or that of the same exam."""
    quiet: bool = False
    """Say nothing unless something goes wrong."""
    json: bool = False
    """Print what was found as JSON, for programs, and nothing else."""


def exam(argv: list[str]) -> int:
    """Hold an exam."""
    given = tyro.cli(ExamArguments, args=argv, default=ExamArguments(ExamConfig()), prog="esper exam")
    given.settings.check()
    quiet = given.quiet or given.json
    progress = ExamBars(out) if out.is_terminal and not quiet else ExamLines(err if given.json else out, quiet)
    try:
        with progress:
            rows = Exam(given.settings, given.out, progress).hold()
    except KeyboardInterrupt:
        err.print(f"interrupted; the same command goes on with what is in {given.out}")
        return INTERRUPTED
    if given.json:
        print_json(_summary(given.settings, rows))
    elif not quiet:
        out.print((given.out / "exam.md").read_text(encoding="utf-8"))
        out.print(f"report: {given.out / 'exam.html'}")
    return DONE


def _summary(settings: ExamConfig, rows: list[ExamRow]) -> dict[str, Any]:
    if settings.tasks:
        return deciding_summary(rows, settings.stages(), settings.terms(), settings.surveyed())
    return exam_summary(rows, settings.terms())
