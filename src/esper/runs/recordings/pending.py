"""Episodes that were played and are in no part yet: a file for each, so that nothing is played twice."""

from pathlib import Path

import msgspec
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from esper.environment import derive
from esper.runs.directory import Unwritable, write_whole
from esper.runs.player import Job
from esper.runs.recordings.row import facts_of, numbers_of, trajectory_of
from esper.runs.recordings.schema import FACTS, NUMBERS, BadRecording, RecordingSchema
from esper.runs.trajectory import Trajectory

MOST_BYTES = 100_000_000


class Pending:
    """The directory of them."""

    def __init__(self, path: Path, schema: RecordingSchema) -> None:
        self._path, self._schema = path, schema

    def add(self, trajectory: Trajectory) -> None:
        """On disk when this returns."""
        about = trajectory.about
        told = {"facts": msgspec.json.encode(facts_of(trajectory)).decode(), "schema": self._schema.to_json()}
        try:
            self._path.mkdir(exist_ok=True)
            write_whole(self._file(about.task, about.policy, about.seed), save(numbers_of(trajectory), told))
        except OSError as error:
            raise Unwritable.because(self._path, error, "; the same command goes on") from error

    def find(self, job: Job) -> Trajectory | None:
        """The episode of a job, if it was played; one that cannot be read is played again."""
        file = self._file(job.task, job.policy, job.seed)
        try:
            if not file.is_file() or file.stat().st_size > MOST_BYTES:
                return None
            with safe_open(file, framework="numpy") as content:
                told, names = content.metadata() or {}, content.keys()
                numbers = {name: content.get_tensor(name) for name in names}
            row = dict.fromkeys((*FACTS, *NUMBERS)) | msgspec.json.decode(told["facts"]) | numbers
            found = trajectory_of(row, self._schema) if told["schema"] == self._schema.to_json() else None
        except (SafetensorError, BadRecording, msgspec.DecodeError, KeyError, TypeError, ValueError):
            return None
        return found if found and found.about.key == (job.task, job.policy, job.seed, 0) else None

    def forget(self) -> None:
        """All of them are in parts."""
        for file in self._path.glob("*") if self._path.is_dir() else ():
            file.unlink(missing_ok=True)
        if self._path.is_dir():
            self._path.rmdir()

    def _file(self, task: str, policy: str, seed: int) -> Path:
        return self._path / f"{derive(seed, task, policy):014x}.safetensors"
