"""What is reported while things happen: small frozen records, and where they go."""

from dataclasses import dataclass
from typing import Protocol

from esper.contracts.slots import SlotId
from esper.contracts.stages import Stage


@dataclass(frozen=True)
class Event:
    """Something that happened."""


@dataclass(frozen=True)
class EpisodeEvent(Event):
    """Something that happened in `epoch`, counted from the start of the episode."""

    epoch: int


@dataclass(frozen=True)
class StageChanged(EpisodeEvent):
    """A slot went from one stage to another; `reasons` are the facts that its gate found to hold."""

    slot: SlotId
    before: Stage
    after: Stage
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class AlphaRetargeted(EpisodeEvent):
    """A slot's alpha was sent to a new target, to be reached after `ticks` epochs."""

    slot: SlotId
    alpha: float
    target: float
    ticks: int


@dataclass(frozen=True)
class OperationRefused(EpisodeEvent):
    """An operation was asked for and not executed; nothing changed."""

    op: str
    slot: SlotId | None
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class RewardHackingSuspected(EpisodeEvent):
    """Taking this seed away costs far more than all seeds together gain. Qualities as fractions."""

    slot: SlotId
    contribution: float
    gain: float


@dataclass(frozen=True)
class RansomwareSuspected(EpisodeEvent):
    """Taking this seed away hurts although all seeds together gain nothing: the host has come to depend on it."""

    slot: SlotId
    contribution: float
    gain: float


class Sink(Protocol):
    """Takes events."""

    def write(self, event: Event) -> None: ...


class NullSink:
    """Takes events and forgets them."""

    def write(self, event: Event) -> None:
        pass
