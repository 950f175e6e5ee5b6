"""The episodes that are being played now, each in a small file of its own, until events.jsonl has them whole.

A process that plays keeps one file in the folder and begins it anew with every episode; its lines are those of the log.
Nothing is read back from there by a run, nothing waits for it, and what cannot be written is not told: on another
machine, where the folder is not there, nobody could look on.
"""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from esper.contracts import Event
from esper.telemetry.log import Record, line_of


class LiveFile:
    """Shows one episode of one process while it is played."""

    def __init__(self, folder: Path, round: int, episode: int) -> None:
        self.path = folder / f"process-{os.getpid()}.jsonl"
        self._round, self._episode = round, episode
        self._shown = 0

    def show(self, events: Sequence[Event]) -> None:
        """Take all events of the episode so far; those that are new are written."""
        now, new = time.time(), events[self._shown :]
        lines = b"".join(line_of(Record(now, self._round, self._episode, event)) for event in new)
        with suppress(OSError):
            flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if self._shown else os.O_TRUNC)
            file = os.open(self.path, flags, 0o644)
            try:
                os.write(file, lines)
            finally:
                os.close(file)
        self._shown = len(events)


def forget_live(folder: Path) -> None:
    """Remove what processes have left that play no more, and make the folder if it is not there."""
    with suppress(OSError):
        folder.mkdir(exist_ok=True)
        for path in folder.glob("process-*.jsonl"):
            path.unlink(missing_ok=True)
