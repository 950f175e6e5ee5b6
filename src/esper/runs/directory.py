"""A run as a directory. Everything in it is appended to, or written whole: it can be opened after any interruption.

config.toml     every setting
events.jsonl    what happened, one event per line
status.json     how far it is, and how it ended
checkpoints/    round-00012.pt and so on, and best.pt
profile/        where the time goes, if that was asked for
run.lock        held by the process that trains
"""

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from pathlib import Path

import filelock

from esper.contracts import EsperError
from esper.runs.config import TrainConfig, load_config

CHECKPOINT = "round-{:05d}.pt"


class RunExists(EsperError):
    """The directory is taken."""


class NoRun(EsperError):
    """The directory holds no run."""


class RunBusy(EsperError):
    """Another process trains this run."""


class Unwritable(EsperError):
    """The disk does not take what must be written."""


class RunState(StrEnum):
    """How a run is. `RUNNING` without a process that holds the lock is `KILLED`."""

    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    HALTED = "halted"
    KILLED = "killed"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Status:
    """How far a run is, as written by the process that trains it."""

    state: RunState
    round: int
    """Rounds that are complete."""
    rounds: int
    updated: float
    """Unix seconds."""
    pid: int
    host: str
    best: float | None = None
    """Mean return of the best evaluation."""
    best_round: int | None = None
    reason: str | None = None
    """Why it failed or was halted."""


class RunDirectory:
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.toml"
        self.events_file = path / "events.jsonl"
        self.status_file = path / "status.json"
        self.checkpoints = path / "checkpoints"
        self.profiles = path / "profile"
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
            write_whole(made.config_file, config.to_toml())
        except OSError as error:
            raise Unwritable(f"{path} cannot be made ({error.strerror}); give an --out that can be written") from None
        return made

    @classmethod
    def open(cls, path: Path) -> "RunDirectory":
        """An existing run."""
        found = cls(path)
        if not found.config_file.is_file():
            raise NoRun(f"{path} holds no run: there is no config.toml; 'esper runs' lists the runs")
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
            raise Unwritable(f"{self.path} cannot be written ({error.strerror}); mend that, then resume") from None
        try:
            yield
        finally:
            self._lock.release()

    def write_status(self, status: Status) -> None:
        write_whole(self.status_file, json.dumps(asdict(status), indent=1))

    def status(self) -> Status | None:
        """What was written last; None if nothing readable was."""
        try:
            raw = json.loads(self.status_file.read_text(encoding="utf-8")[:65536])
            known = {each.name for each in fields(Status)}
            status = Status(**{name: value for name, value in raw.items() if name in known})
            numbers = (status.round, status.rounds, status.updated, status.pid)
            if not all(isinstance(number, int | float) for number in numbers):
                return None
            return Status(**{**asdict(status), "state": RunState(status.state)})
        except (OSError, ValueError, TypeError, AttributeError):
            return None

    def state(self) -> RunState:
        """How the run is now, told apart by who holds the lock."""
        status = self.status()
        if status is None:
            return RunState.RUNNING if self._is_locked() else RunState.UNKNOWN
        if status.state is RunState.RUNNING and not self._is_locked():
            return RunState.KILLED
        return status.state

    def _is_locked(self) -> bool:
        lock = self.path / "run.lock"
        if not lock.exists():
            return False
        try:
            with filelock.FileLock(lock).acquire(timeout=0):
                return False
        except filelock.Timeout:
            return True
        except OSError:
            return False

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
        for path in [*self.saved()[keep:], *self.checkpoints.glob(".*.part")]:
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


def status_now(state: RunState, round_number: int, rounds: int) -> Status:
    """A status of this process, now."""
    return Status(state, round_number, rounds, time.time(), os.getpid(), socket.gethostname())


def find_runs(root: Path) -> list[RunDirectory]:
    """The runs directly below a directory, the latest first."""
    if not root.is_dir():
        return []
    found = [RunDirectory(path) for path in root.iterdir() if (path / "config.toml").is_file()]
    return sorted(found, key=lambda run: run.config_file.stat().st_mtime, reverse=True)
