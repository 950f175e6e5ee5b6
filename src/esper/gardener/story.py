"""What happens to a garden, as events: kept in memory for the report, and in a directory if one is given."""

import logging
import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path

from esper.contracts import EsperError, Event, cure_for
from esper.gardener.processes import is_first
from esper.growth import Body
from esper.telemetry import (
    DecisionMade,
    EpisodeFinished,
    EventLog,
    GardenHarvested,
    GardenStarted,
    Record,
    RewardPaid,
    RunFinished,
    RunResumed,
    RunStarted,
    line_of,
    record_of,
)

LOG_FILE = "events.jsonl"
ROUND, EPISODE = 0, 0
"""A garden is one episode."""
logger = logging.getLogger("esper.gardener")


class EventsNotWritable(EsperError):
    """Events cannot be written where they are to be."""


class Story:
    """A sink that keeps all events. Of several processes the first one writes."""

    def __init__(self, directory: str | Path | None) -> None:
        self.records: list[Record] = []
        self._log: EventLog | None = None
        self._directory = Path(directory) if directory is not None and is_first() else None

    @property
    def events(self) -> list[Event]:
        return [record.event for record in self.records]

    def write(self, event: Event) -> None:
        """Take an event that happened now."""
        self._keep([Record(time.time(), ROUND, EPISODE, event)])

    # What is told

    def introduce(self, body: Body, epochs: int, rent: float, left_out: Mapping[str, str]) -> None:
        """A garden is laid out; what the directory has of an earlier one is void."""
        if self._directory is not None:
            self._log = _opened(self._directory)
            self._void()
        self._kind, self._rent, cost = type(body.host).__name__, rent, body.costs().host
        device = str(next(body.host.parameters()).device)
        self.write(
            RunStarted(import_module("esper").__version__, (self._kind,), 1, 1, 0, "score", "gardener", 1, device)
        )
        slots = tuple(slot.id for slot in body.slots)
        self.write(GardenStarted(self._kind, epochs, rent, cost.parameters, cost.flops, slots, dict(left_out)))

    def tell_epoch(self, body: Body, growth: float, quality: float | None, loss: float | None) -> None:
        """What the network of the epoch that has passed was worth; as a reward: what that brought, less the rent."""
        before = [event for event in self.events if isinstance(event, RewardPaid)][-1:]
        now = math.nan if quality is None else quality
        terms = {
            "quality": now - (before[0].quality if before else 0.0),
            "rent": -self._rent * math.log(growth / (before[0].growth if before else 1.0)),
        }
        slots = body.snapshots()
        contributions = {slot.slot: slot.contribution for slot in slots if slot.contribution is not None}
        total, known = sum(terms.values()), math.nan if loss is None else loss
        alphas = {slot.slot: round(slot.alpha, 4) for slot in slots}
        self.write(RewardPaid(body.epoch - 1, total, terms, now, known, growth, contributions, None, alphas))

    def conclude(self, body: Body, policy: str, quality: float | None, panic: str | None) -> None:
        """The network is delivered. Said again only if something has happened since."""
        if isinstance(self.events[-1], RunFinished):
            return
        costs, delivered = body.costs(), tuple(fossil.slot for fossil in body.delivered())
        decisions = [event for event in self.events if isinstance(event, DecisionMade)]
        seconds = time.time() - self.records[0].time
        self.write(GardenHarvested(costs.kept.parameters, costs.kept.flops, delivered, quality))
        self.write(
            EpisodeFinished(
                task=self._kind,
                policy=policy,
                purpose="grow",
                total=sum(event.total for event in self.events if isinstance(event, RewardPaid)),
                quality=math.nan if quality is None else quality,
                twin_quality=None,
                growth=costs.kept.parameters / max(1, body.host_parameters),
                fossilized=len(delivered),
                epochs=body.epoch,
                forced=sum(event.forced for event in decisions),
                ops=dict(Counter(event.op for event in decisions if not event.forced)),
                panic=panic,
                seconds=seconds,
            )
        )
        self.write(RunFinished(None, seconds))

    # Keeping

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
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise EventsNotWritable(f"{directory} is a file; give a directory") from error
    except OSError as error:
        raise EventsNotWritable(
            f"{directory} cannot be made ({error.strerror}); {cure_for(error)}, or give another"
        ) from error
    return EventLog(directory / LOG_FILE)
