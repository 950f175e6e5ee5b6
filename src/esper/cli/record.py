"""`esper record` and `esper recording`."""

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated, Literal

import tyro

from esper.cli.console import DONE, INTERRUPTED, err, out, table_of
from esper.environment import stem_of
from esper.runs.exam import ExamBars, ExamLines
from esper.runs.recordings import Collector, InvalidRecording, RecordConfig, Recording, from_minari, to_minari


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


@dataclass(frozen=True)
class RecordingArguments:
    """Say what a recording has, or carry it to and from a data set of Minari. Refuses what is not sound."""

    what: tyro.conf.Positional[Literal["show", "to-minari", "from-minari"]]
    source: tyro.conf.Positional[Path]
    """A recording: a file, a directory, a run or an exam. For from-minari: a data set."""
    target: tyro.conf.Positional[Path | None] = None
    """What to make: a data set of Minari, or a recording; it must not be there."""


def recording(argv: list[str]) -> int:
    """Show or carry a recording."""
    given = tyro.cli(RecordingArguments, args=argv, prog="esper recording")
    if (given.target is None) != (given.what == "show"):
        raise InvalidRecording(f"'{given.what}' takes a source" + ("" if given.what == "show" else " and a target"))
    if given.target is None:
        _show(given.source)
        return DONE
    if given.what == "to-minari":
        count = to_minari(Recording.open(given.source), given.target)
    else:
        count = from_minari(given.source, given.target)
    out.print(f"{given.target}: {count} episodes")
    return DONE


def _show(path: Path) -> None:
    """A row for each policy on each task."""
    opened = Recording.open(path)
    found: dict[tuple[str, str, str], list[tuple[int, float, float]]] = {}
    for each in opened.trajectories():
        about = each.about
        key = about.task, about.policy, "drawn" if about.drawn else "certain"
        found.setdefault(key, []).append((each.steps, each.total, about.score))
    rows = [[*key, len(some), *(fmean(column) for column in zip(*some, strict=True))] for key, some in found.items()]
    out.print(table_of(("task", "policy", "choices", "episodes", "steps", "return", "score"), rows))
    schema = opened.schema
    rent = "the task's" if schema.rent is None else f"{schema.rent:g}"
    out.print(
        f"{opened.episodes} episodes; version {schema.version}, reward {schema.reward}, "
        f"discount {schema.discount:g}, rent {rent}"
    )
