"""Ctrl-C and the system's request to stop: they end a run between writes, never within one."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType


class Interrupts:
    """While entered, SIGINT and SIGTERM raise `KeyboardInterrupt` in the main thread, held back inside `deferred`."""

    def __init__(self) -> None:
        self._depth = 0
        self._pending = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> "Interrupts":
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                self._before[number] = signal.signal(number, self._asked)
            except ValueError:  # not the main thread: its owner decides
                return self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal returned
        self._before = {}

    def _asked(self, number: int, frame: FrameType | None) -> None:
        if self._depth:
            self._pending = True
        else:
            raise KeyboardInterrupt

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """A write that is finished, or has failed, before the interruption takes effect."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._pending and not self._depth:
                self._pending = False
                raise KeyboardInterrupt
