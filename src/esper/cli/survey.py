"""`esper survey`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from esper.cli.console import DONE, INTERRUPTED, err, out
from esper.runs.exam import ExamBars, ExamLines
from esper.runs.survey import Survey, SurveyConfig


@dataclass(frozen=True)
class SurveyArguments:
    """Train every single seed, and some pairs, on tasks of a family; the same command goes on after Ctrl-C."""

    settings: Annotated[SurveyConfig, tyro.conf.arg(name="")]
    out: Path | None = None
    """The Parquet file; by default surveys/FAMILY.parquet."""
    quiet: bool = False
    """Say nothing unless something goes wrong."""


def survey(argv: list[str]) -> int:
    """Make a survey."""
    given = tyro.cli(SurveyArguments, args=argv, default=SurveyArguments(SurveyConfig()), prog="esper survey")
    given.settings.check()
    path = given.out or Path("surveys") / f"{given.settings.family}.parquet"
    progress = ExamBars(out) if out.is_terminal and not given.quiet else ExamLines(out, given.quiet)
    try:
        with progress:
            Survey(given.settings, path, progress).make()
    except KeyboardInterrupt:
        err.print(f"interrupted; the same command goes on with what is beside {path}")
        return INTERRUPTED
    if not given.quiet:
        out.print(f"survey: {path}")
    return DONE
