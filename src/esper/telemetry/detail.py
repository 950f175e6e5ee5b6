"""How much a run tells: levels of detail, more of it after an anomaly, and never more than the disk may take."""

from dataclasses import dataclass
from enum import StrEnum

from esper.checked import require_ranges
from esper.contracts import EpisodeEvent, EsperError, Event
from esper.telemetry.events import AnomalyRaised, GradientsSeen, MemoryExamined, UpdateExamined
from esper.telemetry.log import Record, line_of

MEGABYTE = 1_000_000


class InvalidTelemetry(EsperError):
    """A setting of the telemetry that is out of range."""


class Level(StrEnum):
    """How much is written to events.jsonl. Nothing that is learned depends on it."""

    OFF = "off"
    BRIEF = "brief"
    NORMAL = "normal"
    DETAILED = "detailed"


DETAILS: tuple[type[Event], ...] = (UpdateExamined, GradientsSeen, MemoryExamined)
"""What is measured at the highest level only."""


@dataclass(frozen=True)
class TelemetryConfig:
    """What a run tells, and to whom."""

    level: Level = Level.NORMAL
    """off, brief (rounds and the ends of episodes), normal (every decision), detailed (gradients and memories too)."""
    escalate_rounds: int = 3
    """Rounds of detailed telemetry after an anomaly; 0 for none."""
    escalate_megabytes: float = 50.0
    """What the details after anomalies may take of the disk, in the whole run."""
    megabytes: float = 2000.0
    """How large events.jsonl may become; from there on it is brief."""
    sinks: tuple[str, ...] = ()
    """Where metrics go beside events.jsonl: tensorboard, wandb, mlflow."""

    def __post_init__(self) -> None:
        require_ranges(self, RANGES, InvalidTelemetry, "telemetry.")


RANGES: dict[str, tuple[float, float]] = {
    "escalate_rounds": (0, 1_000_000),
    "escalate_megabytes": (0.0, 1e6),
    "megabytes": (0.0, 1e6),
}


def belongs(event: Event, level: Level) -> bool:
    """Whether an event is written at a level."""
    if level is Level.OFF or (isinstance(event, DETAILS) and level is not Level.DETAILED):
        return False
    return level is not Level.BRIEF or not isinstance(event, EpisodeEvent)


class Escalation:
    """Says for every round how much is told. Fed the same events, it says the same."""

    def __init__(self, config: TelemetryConfig) -> None:
        self.config = config
        self._until = 0
        self._cause = ""
        self._details = 0

    def see(self, event: Event, round: int) -> None:
        """Take in an event of a round; an anomaly asks for details of the next ones."""
        if isinstance(event, AnomalyRaised):
            self._until, self._cause = round + 1 + self.config.escalate_rounds, event.kind

    def weigh(self, record: Record) -> None:
        """Take in what is written, also what a resumed run plays again."""
        if isinstance(record.event, DETAILS):
            self._details += len(line_of(record))

    def level(self, round: int, size: int) -> tuple[Level, str]:
        """How much is told of a round, and why; `size` is that of the log in bytes."""
        config = self.config
        if config.level is Level.OFF:
            return config.level, "as asked for"
        if size >= config.megabytes * MEGABYTE:
            return Level.BRIEF, f"events.jsonl has its {config.megabytes:g} MB"
        if round >= self._until:
            return config.level, "as asked for"
        if self._details >= config.escalate_megabytes * MEGABYTE:
            return config.level, f"details after anomalies have their {config.escalate_megabytes:g} MB"
        return Level.DETAILED, f"{self._cause} in round {self._until - config.escalate_rounds}"
