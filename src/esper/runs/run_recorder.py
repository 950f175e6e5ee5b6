"""Where the events of a run go: its log, the detector of anomalies, the sinks of metrics and the screen."""

import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Self

from esper.contracts import Event
from esper.runs.config import TrainConfig
from esper.runs.directory import RunDirectory
from esper.runs.interrupts import Interrupts
from esper.runs.progress import RunProgress
from esper.telemetry import (
    AnomalyRaised,
    DetailChanged,
    Detector,
    Escalation,
    EventLog,
    Level,
    Record,
    SinkFailed,
    belongs,
    effective,
    figures_of,
    open_sinks,
    read_log,
    tame,
)


class RunRecorder:
    """Takes every event once. Nothing that is learned depends on what becomes of it."""

    def __init__(
        self, directory: RunDirectory, config: TrainConfig, progress: RunProgress, interrupts: Interrupts
    ) -> None:
        self.directory, self.config = directory, config
        self._progress, self._interrupts = progress, interrupts
        self.detector = Detector(config.anomalies, config.expectations())
        self.level = config.telemetry.level
        self._escalation = Escalation(config.telemetry)
        self.round = 0
        """The round that events belong to."""
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            silent = self.level is Level.OFF
            self._log = stack.enter_context(EventLog(Path(os.devnull) if silent else self.directory.events_file))
            names, name = self.config.telemetry.sinks, self.directory.path.resolve().name
            self._sinks = stack.enter_context(
                open_sinks(names, self.directory.path, name, asdict(self.config), self._sink_failed)
            )
            self._open = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._open.close()

    def begin(self, round: int) -> None:
        """A round begins; how much is told of it is decided now."""
        self.round = round
        level, reason = self._escalation.level(round, self._log.size)
        if level is not self.level:
            self.level = level
            self.note(DetailChanged(level.value, reason))

    @property
    def detailed(self) -> bool:
        """Whether this round is told in detail."""
        return self.level is Level.DETAILED

    def note(self, event: Event) -> list[AnomalyRaised]:
        """Take an event of this round; the anomalies that it raised."""
        return self.note_all((event,), None)

    def note_all(self, events: Sequence[Event], episode: int | None) -> list[AnomalyRaised]:
        """Take events that happened together; the anomalies that they raised."""
        written = [event for event in events if belongs(event, self.level)]
        with self._interrupts.deferred():
            self._log.write_all(written, self.round, episode)
        for event in written:
            self._escalation.weigh(Record(0.0, self.round, episode, event))
        return [anomaly for event in events for anomaly in self._consider(event)]

    def sync(self) -> None:
        """Wait until everything is on the disk."""
        self._log.sync()

    def recall(self) -> None:
        """Leave detector and escalation as they were at the checkpoint; what they raised is in the log already."""
        heard = []
        for record in read_log(self.directory.events_file):
            self._escalation.weigh(record)
            if not tame(record.event):
                heard.append(record)
        for record in effective(heard):
            self.detector.see(record.event)
            self._escalation.see(record.event, record.round)

    def _consider(self, event: Event) -> Iterable[AnomalyRaised]:
        """Show an event to the person, the sinks and the detector, and note what that raises."""
        self._progress.see(event)
        self._escalation.see(event, self.round)
        figures = figures_of(event)
        if figures:
            self._sinks.write(figures, self.round + 1)
        for anomaly in self.detector.see(event):
            self.note(anomaly)
            yield anomaly

    def _sink_failed(self, sink: str, reason: str) -> None:
        self.note(SinkFailed(sink, reason))
