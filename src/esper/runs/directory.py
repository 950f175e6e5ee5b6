"""A run as a directory. Everything in it is appended to, or written whole: it can be opened after any interruption.

config.toml     every setting
events.jsonl    what happened, one event per line
status.json     how far it is, and how it ended
live/           the episodes that are being played
checkpoints/    round-00012.pt and so on, and best.pt
profile/        where the time goes, if that was asked for
recording/      all episodes, if that was asked for
run.lock        held by the process that trains
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import filelock
import msgspec

from esper.contracts import EsperError, cure_for
from esper.runs.config import TrainConfig, load_config
from esper.telemetry import RunFiles, RunState, RunStatus, this_process

CHECKPOINT = "round-{:05d}.pt"


class RunExists(EsperError):
    """The directory is taken."""


class NoDirectory(EsperError):
    """There is no such directory."""


class RunBusy(EsperError):
    """Another process trains this run."""


class Unwritable(EsperError):
    """The system does not take what must be written."""

    @classmethod
    def because(cls, path: Path, error: OSError, then: str = "") -> "Unwritable":
        """What the system said of writing below `path`, with the cure that fits; `then` says what comes after it."""
        return cls(f"{error.filename or path} cannot be written ({error.strerror}); {cure_for(error)}{then}")


class SystemRefused(EsperError):
    """The system refused something in the middle of a run."""


class RunDirectory(RunFiles):
    """The files of one run, for those who train, play or resume it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.checkpoints = path / "checkpoints"
        self.profiles = path / "profile"
        self.recording = path / "recording"
        self._lock = filelock.FileLock(path / "run.lock")

    @classmethod
    def create(cls, path: Path, config: TrainConfig) -> "RunDirectory":
        """A new run; the directory must be new or empty."""
        if path.exists() and not path.is_dir():
            raise RunExists(f"{path} is a file; give a directory that is new or empty")
        try:
            if path.is_dir() and any(path.iterdir()):
                raise RunExists(
                    f"{path} is not empty; give another --out, or go on with its run by 'esper resume {path}'"
                )
            made = cls(path)
            made.checkpoints.mkdir(parents=True, exist_ok=True)
            write_whole(made.config_file, config.settled().to_toml())
        except OSError as error:
            raise Unwritable.because(path, error, ", or give another --out") from None
        return made

    @classmethod
    def open(cls, path: Path) -> "RunDirectory":
        """An existing run."""
        found = cls(path)
        found.require()
        return found

    def config(self) -> TrainConfig:
        return load_config(self.config_file)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """For the one process that trains; freed by the system however that process ends."""
        try:
            self._lock.acquire(timeout=0)
        except filelock.Timeout:
            status = self.status()
            owner = "another process" if status is None else f"process {status.pid} on {status.host}"
            raise RunBusy(f"{self.path} is being trained by {owner}; wait for it or stop it first") from None
        except OSError as error:
            raise Unwritable.because(self.path, error, ", then resume") from None
        try:
            yield
        finally:
            self._lock.release()

    def write_status(self, status: RunStatus) -> None:
        write_whole(self.status_file, msgspec.json.format(msgspec.json.encode(status), indent=1))

    def checkpoint(self, round_number: int) -> Path:
        return self.checkpoints / CHECKPOINT.format(round_number)

    @property
    def best(self) -> Path:
        return self.checkpoints / "best.pt"

    def saved(self) -> list[Path]:
        """The checkpoints of rounds, newest first."""
        return sorted(self.checkpoints.glob("round-[0-9]*.pt"), reverse=True)

    def forget_old(self, keep: int) -> None:
        """Remove all but the newest checkpoints, and what an interrupted write has left."""
        parts = (folder.glob(".*.part") for folder in (self.checkpoints, self.recording))
        for path in [*self.saved()[keep:], *chain(*parts)]:
            path.unlink(missing_ok=True)


def write_whole(path: Path, content: str | bytes) -> None:
    """The old file or the new one, never a part."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def status_now(state: RunState, round_number: int, rounds: int) -> RunStatus:
    """A status of this process, now."""
    return RunStatus(state=state, round=round_number, rounds=rounds, **this_process())


def find_runs(root: Path) -> list[RunDirectory]:
    """The runs directly below a directory, the latest first."""
    if not root.is_dir():
        raise NoDirectory(f"there is no directory {root}; give the one that 'esper train' made runs in")
    found = [RunDirectory(path) for path in root.iterdir() if (path / "config.toml").is_file()]
    return sorted(found, key=lambda run: run.config_file.stat().st_mtime, reverse=True)
