"""Small recordings of a task that takes milliseconds."""

from dataclasses import replace
from io import StringIO
from pathlib import Path

from rich.console import Console

from esper.runs.exam import ExamLines
from esper.runs.recordings import Collector, RecordConfig
from esper.runs.recordings.row import facts_of
from esper.runs.trajectory import Trajectory
from tests.runs.worlds import tiny_task

POLICIES = ("random", "sampled:tamiyo", "heuristic")


def record_config(directory: Path, **changes) -> RecordConfig:
    """Two episodes of each of three policies, in this process."""
    return replace(RecordConfig(task=(tiny_task(directory),), policy=POLICIES, episodes=2, backend="serial"), **changes)


def collected(config: RecordConfig, path: Path) -> int:
    """How many episodes had to be played."""
    return Collector(config, path, ExamLines(Console(file=StringIO()), quiet=True)).collect()


def files_in(path: Path) -> dict[str, bytes]:
    """All parts of a recording."""
    return {file.name: file.read_bytes() for file in sorted(path.glob("*.parquet"))}


def same(one: Trajectory, two: Trajectory) -> bool:
    """Whether two episodes are the same, bit for bit."""
    return facts_of(one) == facts_of(two)  # with a checksum of all numbers
