"""How far something is that a process does, as that process wrote it last, and whether it still does it."""

import os
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import psutil

MAX_STATUS_BYTES = 65_536
CLOCK_SLACK = 2.0
"""Seconds by which two readings of when a process began may differ."""


class RunState(StrEnum):
    """How a run or an exam is. `RUNNING` whose process is gone is `KILLED`."""

    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    HALTED = "halted"
    KILLED = "killed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class ProcessStatus:
    """What a process says of its work."""

    state: RunState
    updated: float
    """Unix seconds."""
    pid: int
    host: str
    reason: str | None = None
    """Why it failed or was halted."""
    started: float | None = None
    """When the process began, in Unix seconds: another process may get its number later."""

    def is_of_a_living_process(self) -> bool:
        """Whether the process that wrote this is there. Of another machine only its own word is known."""
        if self.host != socket.gethostname():
            return self.state is RunState.RUNNING
        with suppress(psutil.Error, ValueError, OverflowError):
            began = psutil.Process(self.pid).create_time()
            return self.started is None or abs(began - self.started) < CLOCK_SLACK
        return False


@dataclass(frozen=True, kw_only=True)
class RunStatus(ProcessStatus):
    """How far a run is."""

    round: int
    """Rounds that are complete."""
    rounds: int
    best: float | None = None
    """Mean return of the best evaluation."""
    best_round: int | None = None


@dataclass(frozen=True, kw_only=True)
class ExamStatus(ProcessStatus):
    """How far an exam is: it has stages, and each has episodes."""

    stage: str
    """What is being played."""
    done: int
    """Episodes of the stage that are known."""
    total: int
    command: str
    """That holds this exam."""


Status = TypeVar("Status", bound=ProcessStatus)


def this_process() -> dict[str, Any]:
    """Who writes a status, and when: those fields of it."""
    began = psutil.Process().create_time()
    return {"updated": time.time(), "pid": os.getpid(), "host": socket.gethostname(), "started": began}


def read_status(path: Path, kind: type[Status]) -> Status | None:
    """What was written last; None if nothing readable was."""
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(MAX_STATUS_BYTES), type=kind)
    except (OSError, msgspec.DecodeError, RecursionError):
        return None


def state_now(path: Path, kind: type[ProcessStatus]) -> RunState:
    """How it is now. Reads only: nothing is locked, so nobody is disturbed.

    A process writes how it ended before it is gone, so a status read after that is its last word.
    """
    status = read_status(path, kind)
    if status is not None and status.state is RunState.RUNNING and not status.is_of_a_living_process():
        status = read_status(path, kind)
        return RunState.KILLED if status is not None and status.state is RunState.RUNNING else _state_in(status)
    return _state_in(status)


def _state_in(status: ProcessStatus | None) -> RunState:
    return RunState.UNKNOWN if status is None else status.state
