"""`esper record` and `esper recording`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from esper.cli.console import DONE, INTERRUPTED, err, out
from esper.environment import stem_of
from esper.runs.exam import ExamBars, ExamLines
from esper.runs.recordings import Collector, RecordConfig


@dataclass(frozen=True)
class RecordArguments:
    """Play policies and keep whole episodes, without learning; the same command goes on after Ctrl-C or a crash."""

    settings: Annotated[RecordConfig, tyro.conf.arg(name="")]
    out: Path | None = None
    """Directory of the recording: new, empty, or one that is gone on with; by default recordings/TASK."""
    quiet: bool = False
    """Say nothing unless something goes wrong."""


def record(argv: list[str]) -> int:
    """Make a recording."""
    given = tyro.cli(RecordArguments, args=argv, default=RecordArguments(RecordConfig()), prog="esper record")
    given.settings.check()
    directory = given.out or Path("recordings") / stem_of(given.settings.task[0])
    progress = ExamBars(out) if out.is_terminal and not given.quiet else ExamLines(out, given.quiet)
    try:
        with progress:
            played = Collector(given.settings, directory, progress).collect()
    except KeyboardInterrupt:
        err.print(f"interrupted; the same command goes on with what is in {directory}")
        return INTERRUPTED
    if not given.quiet:
        known = len(given.settings.jobs()) - played
        out.print(f"{directory}: {played} episodes played, {known} were there")
    return DONE
