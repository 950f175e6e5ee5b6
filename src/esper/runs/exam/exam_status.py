"""What an exam says of how far it is, in `status.json`, for whoever looks at its directory."""

import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from esper.runs.directory import Unwritable, write_whole
from esper.runs.exam.directory import OR_ELSEWHERE
from esper.runs.watcher import Watcher
from esper.telemetry import ExamStatus, RunState, this_process

EVERY = 1.0
"""Seconds between two writes in a stage."""


class ExamProgress:
    """Writes down how an exam goes on and how it ends; passes on what a person is told. Use it as a context."""

    def __init__(self, directory: Path, command: str, watcher: Watcher) -> None:
        self._file, self._command, self._watcher = directory / "status.json", command, watcher
        self._stage, self._done, self._total = "", 0, 0
        self._written = 0.0

    def __enter__(self) -> Self:
        self._write(RunState.RUNNING)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            self._write(RunState.FINISHED)
        elif isinstance(error, KeyboardInterrupt):
            self._write(RunState.INTERRUPTED)
        else:
            with suppress(Unwritable):  # what went wrong may be that nothing can be written
                self._write(RunState.FAILED, f"{type(error).__name__}: {error}")

    def stage(self, title: str, total: int, done: int) -> None:
        """Another stage begins, of which some episodes may be known."""
        self._stage, self._total, self._done = title, total, done
        self._watcher.stage(title, total, done)
        self._write(RunState.RUNNING)

    def advance(self) -> None:
        """One episode more."""
        self._done += 1
        self._watcher.advance()
        if time.monotonic() - self._written >= EVERY:
            self._write(RunState.RUNNING)

    def note(self, sentence: str) -> None:
        self._watcher.note(sentence)

    def _write(self, state: RunState, reason: str | None = None) -> None:
        status = ExamStatus(
            state=state,
            stage=self._stage,
            done=self._done,
            total=self._total,
            command=self._command,
            reason=reason,
            **this_process(),
        )
        try:
            write_whole(self._file, msgspec.json.format(msgspec.json.encode(status), indent=1))
        except OSError as error:
            raise Unwritable.because(self._file, error, OR_ELSEWHERE) from error
        self._written = time.monotonic()
