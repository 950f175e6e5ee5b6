"""How a recording is made: every policy on every task and seed, on any backend, and on from where it was stopped.

recording.json     what decides the episodes; another recording is refused
recording.lock     held by the process that plays
part-00000.parquet and so on: the episodes, in an order that the settings decide
pending/           episodes that are in no part yet
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import filelock
import msgspec

from esper.contracts import EsperError
from esper.runs.backends import Backend, make_backend, one_thread
from esper.runs.directory import Unwritable, write_whole
from esper.runs.interrupts import Interrupts
from esper.runs.player import Job, Played
from esper.runs.recordings.config import RecordConfig, RecordingIdentity
from esper.runs.recordings.directory import RecordingDirectory
from esper.runs.recordings.part import EPISODES_PER_PART
from esper.runs.watcher import Watcher
from esper.telemetry import WorkerReplaced

MARK, LOCK = "recording.json", "recording.lock"
OR_ELSEWHERE = ", or give another --out"


class OtherRecording(EsperError):
    """The directory holds another recording, or something else."""


class RecordingBusy(EsperError):
    """Another process makes this recording."""


class Collector:
    """Makes one recording, in one directory."""

    def __init__(self, config: RecordConfig, directory: Path, watcher: Watcher) -> None:
        self.config, self.directory, self._watcher = config, directory, watcher
        self._interrupts = Interrupts()
        self._identity = RecordingIdentity.of(config)
        self._recording = RecordingDirectory(directory, self._identity.schema)

    def collect(self) -> int:
        """Play what has not been played, and say how many episodes that were.

        SIGINT and SIGTERM raise `KeyboardInterrupt`; what was played until then is kept.
        """
        config = self.config
        where = (config.backend, config.game(), config.workers, config.timeout, config.ray_address)
        self._played = 0
        with self._interrupts, make_backend(*where) as backend, self._claimed(), one_thread():
            jobs = config.jobs()
            self._recording.clean()
            there = sum(map(self._recording.has, jobs))
            self._watcher.stage(", ".join(config.policy), len(jobs), there)
            for first in range(0, len(jobs), EPISODES_PER_PART):
                self._collect_part(backend, jobs[first : first + EPISODES_PER_PART])
            self._recording.clean()
        return self._played

    def _collect_part(self, backend: Backend, jobs: Sequence[Job]) -> None:
        """What is missing of them, and then the part."""

        def done(played: Played) -> None:
            assert played.trajectory is not None
            with self._interrupts.deferred():
                self._recording.add(played.trajectory)
            self._played += 1
            self._watcher.advance()

        backend.map(None, [job for job in jobs if not self._recording.has(job)], done, self._replaced)
        with self._interrupts.deferred():
            self._recording.gather(jobs)

    def _replaced(self, event: WorkerReplaced) -> None:
        self._watcher.note(f"a worker was replaced: {event.reason}")

    @contextmanager
    def _claimed(self) -> Iterator[None]:
        """The directory for this process alone, marked with what decides the episodes; refused if that is another's."""
        directory, lock = self.directory, filelock.FileLock(self.directory / LOCK)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            strangers = [path for path in directory.iterdir() if not path.name.startswith((".", LOCK))]
            if strangers and not (directory / MARK).exists():
                raise OtherRecording(
                    f"{directory} is not empty and holds no recording; give a new --out, or an empty one"
                )
            lock.acquire(timeout=0)
        except filelock.Timeout:
            raise RecordingBusy(
                f"{directory} is written by another 'esper record'; wait for it{OR_ELSEWHERE}"
            ) from None
        except OSError as error:
            raise Unwritable.because(directory, error, OR_ELSEWHERE) from None
        try:
            self._mark(directory / MARK)
            yield
        finally:
            lock.release()

    def _mark(self, mark: Path) -> None:
        for path in self.directory.glob(".*.part"):
            path.unlink(missing_ok=True)
        known = _read(mark) if mark.exists() else self._identity
        changes = known.changes(self._identity)
        if changes:
            raise OtherRecording(f"{self.directory} {changes}; give another --out, or go on as it was begun")
        joined = replace(known, files={**known.files, **self._identity.files})
        try:
            write_whole(mark, msgspec.json.format(msgspec.json.encode(joined), indent=1))
        except OSError as error:
            raise Unwritable.because(mark, error, OR_ELSEWHERE) from None


def _read(mark: Path) -> RecordingIdentity:
    try:
        return msgspec.json.decode(mark.read_bytes(), type=RecordingIdentity)
    except msgspec.DecodeError as error:
        raise OtherRecording(f"{mark} cannot be read ({error}); give another --out") from error
