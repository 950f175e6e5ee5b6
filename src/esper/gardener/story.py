"""What happens to a garden, as events: kept in memory for the report, and in a directory if one is given."""

import logging
import time
from collections.abc import Iterable
from pathlib import Path

from esper.contracts import EsperError, Event
from esper.gardener.processes import is_first
from esper.telemetry import EventLog, Record, RunResumed, line_of, record_of

LOG_FILE = "events.jsonl"
ROUND, EPISODE = 0, 0
"""A garden is one episode."""
logger = logging.getLogger("esper.gardener")


class DirectoryTaken(EsperError):
    """There is a file where the directory is to be."""


class Story:
    """A sink that keeps all events. Of several processes the first one writes."""

    def __init__(self, directory: str | Path | None) -> None:
        self.records: list[Record] = []
        self._log: EventLog | None = None
        if directory is not None and is_first():
            self._log = _opened(Path(directory))
            self._void()

    @property
    def events(self) -> list[Event]:
        return [record.event for record in self.records]

    def write(self, event: Event) -> None:
        """Take an event that happened now."""
        self._keep([Record(time.time(), ROUND, EPISODE, event)])

    def state_dict(self) -> list[str]:
        """The lines of a log."""
        return [line_of(record).decode() for record in self.records]

    def load_state_dict(self, lines: Iterable[str]) -> None:
        """Begin with these events; those that are in the log already are void."""
        told = [record_of(line.encode()) for line in lines]
        self._void()
        self.records = []
        self._keep(told)

    def _void(self) -> None:
        if self._log is not None and self._log.size:
            self._log.write(RunResumed("", ()), ROUND)

    def _keep(self, records: list[Record]) -> None:
        self.records += records
        if self._log is None:
            return
        try:
            self._log.append(records)
        except EsperError as error:  # what is told must not end what it tells of
            logger.warning("no more events are written: %s", error)
            self._log = None


def _opened(directory: Path) -> EventLog:
    """The log in a directory that is made if it is not there."""
    if directory.exists() and not directory.is_dir():
        raise DirectoryTaken(f"{directory} is a file; give a directory")
    directory.mkdir(parents=True, exist_ok=True)
    return EventLog(directory / LOG_FILE)
