"""How a recording is made: every policy on every task and seed, on any backend, and on from where it was stopped.

recording.json     what decides the episodes; another recording is refused
recording.lock     held by the process that plays
part-00000.parquet and so on: the episodes, in an order that the settings decide
pending/           episodes that are in no part yet
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

import filelock
import msgspec

from esper.contracts import EsperError
from esper.runs.backends import Backend, make_backend, one_thread
from esper.runs.directory import Unwritable, write_whole
from esper.runs.interrupts import Interrupts
from esper.runs.player import Job, Played
from esper.runs.recordings.config import RecordConfig, RecordingIdentity
from esper.runs.recordings.part import EPISODES_PER_PART, read_part, write_part
from esper.runs.recordings.pending import Pending
from esper.runs.recordings.schema import BadRecording
from esper.runs.watcher import Watcher
from esper.telemetry import WorkerReplaced

MARK, LOCK, PARTS = "recording.json", "recording.lock", "part-*.parquet"
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
        self._pending = Pending(directory / "pending", self._identity.schema)

    def collect(self) -> int:
        """Play what has not been played, and say how many episodes that were.

        SIGINT and SIGTERM raise `KeyboardInterrupt`; what was played until then is kept.
        """
        config = self.config
        where = (config.backend, config.game(), config.workers, config.timeout, config.ray_address)
        self._played = 0
        with self._interrupts, self._claimed(), one_thread():
            jobs, known = config.jobs(), self._known()
            missing = [job for job in jobs if (job.task, job.policy, job.seed, 0) not in known]
            with make_backend(*where) as backend:
                self._watcher.stage(", ".join(config.policy), len(jobs), len(jobs) - len(missing))
                for first in range(0, len(missing), EPISODES_PER_PART):
                    self._collect_part(backend, missing[first : first + EPISODES_PER_PART])
            self._pending.forget()
        return self._played

    def _collect_part(self, backend: Backend, jobs: Sequence[Job]) -> None:
        """All that a part is made of, then the part."""
        found = {job: self._pending.find(job) for job in jobs}

        def done(played: Played) -> None:
            assert played.trajectory is not None
            found[played.job] = played.trajectory
            with self._interrupts.deferred():
                self._pending.add(played.trajectory)
            self._played += 1
            self._watcher.advance()

        for trajectory in found.values():
            if trajectory is not None:
                self._watcher.advance()
        backend.map(None, [job for job in jobs if found[job] is None], done, self._replaced)
        with self._interrupts.deferred():
            free = (self.directory / PARTS.replace("*", f"{number:05d}") for number in count())
            part = next(path for path in free if not path.exists())
            write_part(part, [each for each in found.values() if each is not None], self._identity.schema)
            self._pending.forget()

    def _known(self) -> set[tuple[str, str, int, int]]:
        """What is in parts already."""
        known = set()
        for file in sorted(self.directory.glob(PARTS)):
            schema, trajectories = read_part(file)
            if schema != self._identity.schema:
                raise BadRecording(f"{file} is of other rules than this recording; remove it, and record it again")
            known |= {each.about.key for each in trajectories}
        return known

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
