"""A recording that is written: episodes that were played have a file each until some of them make a part.

So nothing is played twice, and what a part holds is decided by the order of the jobs, not by who was done first.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import count
from pathlib import Path

import msgspec
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from esper.environment import derive
from esper.runs.directory import Unwritable, write_whole
from esper.runs.player import Job
from esper.runs.recordings.part import EPISODES_PER_PART, NUMBERS_PER_PART, read_part, write_part
from esper.runs.recordings.row import facts_of, numbers_of, trajectory_of
from esper.runs.recordings.schema import FACTS, NUMBERS, BadRecording, RecordingSchema
from esper.runs.trajectory import Trajectory

PART = "part-{:05d}.parquet"
MOST_BYTES = 100_000_000
"""Of an episode."""


class RecordingDirectory:
    """Parts, and below them `pending/`."""

    def __init__(self, path: Path, schema: RecordingSchema) -> None:
        self._path, self._pending, self._schema = path, path / "pending", schema

    def has(self, job: Job) -> bool:
        """Whether the episode was played."""
        return _code(job.task, job.policy, job.seed) in self._in_parts or self._find(job) is not None

    def add(self, trajectory: Trajectory) -> None:
        """On disk when this returns."""
        told = {"facts": msgspec.json.encode(facts_of(trajectory)).decode(), "schema": self._schema.to_json()}
        try:
            self._pending.mkdir(parents=True, exist_ok=True)
            write_whole(self._file(_code_of(trajectory)), save(numbers_of(trajectory), told))
        except OSError as error:
            raise Unwritable.because(self._pending, error, "; the same command goes on") from error

    def gather(self, jobs: Iterable[Job]) -> None:
        """Put those that were played of these jobs, and are in no part, into parts: in the order of the jobs."""
        block: list[Trajectory] = []
        size = 0
        for job in jobs:
            found = self._find(job)
            if found is not None and _code_of(found) not in self._in_parts:
                block.append(found)
                size += found.size
            if len(block) == EPISODES_PER_PART or size >= NUMBERS_PER_PART:
                self._make_part(block)
                block, size = [], 0
        if block:
            self._make_part(block)

    def clean(self) -> None:
        """Remove what a crash has left."""
        for part in (*self._path.glob(".*.part"), *self._pending.glob(".*.part")):
            part.unlink(missing_ok=True)
        for code in self._in_parts if self._pending.is_dir() else ():
            self._file(code).unlink(missing_ok=True)
        if self._pending.is_dir() and not any(self._pending.iterdir()):
            self._pending.rmdir()

    @cached_property
    def _in_parts(self) -> set[int]:
        """Codes of all episodes that are in parts already."""
        known = set()
        for file in sorted(self._path.glob("*.parquet")):
            schema, trajectories = read_part(file)
            if schema != self._schema:
                raise BadRecording(
                    f"{file} is of other rules than what is recorded now ({schema.differences(self._schema)}); "
                    "give another place, or remove it"
                )
            known |= {_code_of(each) for each in trajectories}
        return known

    def _find(self, job: Job) -> Trajectory | None:
        """The episode of a job, if it is pending; one that cannot be read is played again."""
        file = self._file(_code(job.task, job.policy, job.seed))
        try:
            if not file.is_file() or file.stat().st_size > MOST_BYTES:
                return None
            with safe_open(file, framework="numpy") as content:
                told, names = content.metadata() or {}, content.keys()
                numbers = {name: content.get_tensor(name) for name in names}
            row = dict.fromkeys((*FACTS, *NUMBERS)) | msgspec.json.decode(told["facts"]) | numbers
            found = trajectory_of(row, self._schema) if told["schema"] == self._schema.to_json() else None
        except (SafetensorError, BadRecording, msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError):
            return None
        return found if found and found.about.key == (job.task, job.policy, job.seed, 0) else None

    def _make_part(self, block: Sequence[Trajectory]) -> None:
        names = (self._path / PART.format(number) for number in count())
        write_part(next(path for path in names if not path.exists()), block, self._schema)
        for each in block:
            self._in_parts.add(_code_of(each))
            self._file(_code_of(each)).unlink(missing_ok=True)

    def _file(self, code: int) -> Path:
        return self._pending / f"{code:014x}.safetensors"


def _code(task: str, policy: str, seed: int) -> int:
    return derive(seed, task, policy)


def _code_of(trajectory: Trajectory) -> int:
    return _code(trajectory.about.task, trajectory.about.policy, trajectory.about.seed)
