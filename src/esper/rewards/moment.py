"""What is known at one moment: the snapshot, its coalition table, and the paired run without growth."""

import math
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from esper.contracts import RULES, EsperError, SlotId, Snapshot, nearest
from esper.rewards import attribution
from esper.rewards.attribution import Table


class InvalidMoment(EsperError):
    """Measurements that cannot belong together, or are not in their unit."""


class Ending(Enum):
    """How an episode stands after a step."""

    RUNNING = "running"
    TRUNCATED = "truncated at the horizon"
    TERMINATED = "terminated by the governor"


def measured(value: float | None) -> float | None:
    """The value, or None if it is no finite number: such a measurement failed, which is not a zero."""
    return value if value is not None and math.isfinite(value) else None


def difference(left: float | None, right: float | None) -> float | None:
    """Left minus right, or None if either was not measured."""
    left, right = measured(left), measured(right)
    return None if left is None or right is None else left - right


@dataclass(frozen=True)
class Twin:
    """The run of the same seed without growth, at the same epoch. Quality is a fraction."""

    quality: float | None
    loss_nats: float | None

    def __post_init__(self) -> None:
        _check_fraction("the twin's quality", self.quality)


@dataclass(frozen=True)
class Moment:
    """One state of an episode, as far as rewards look at it. An empty table means that nothing was evaluated.

    `kept_loss_nats` is that of what is delivered; it is asked for at the horizon.
    """

    snapshot: Snapshot
    table: Table
    twin: Twin | None = None
    ending: Ending = Ending.RUNNING
    kept_loss_nats: float | None = None

    def __post_init__(self) -> None:
        _check_fraction("evaluation_quality", self.snapshot.host.evaluation_quality)
        for coalition, quality in self.table.items():
            _check_fraction(f"the quality of {sorted(coalition)}", quality)
        slots = [slot.slot for slot in self.snapshot.slots]
        for name in sorted(frozenset().union(*self.table).difference(slots)):
            raise InvalidMoment(f"the table names slot '{name}', which the snapshot lacks; {nearest(name, slots)}")

    @property
    def over(self) -> bool:
        return self.ending is not Ending.RUNNING

    @cached_property
    def quality(self) -> float | None:
        """Of the live network; at the horizon of what is delivered."""
        if self.ending is not Ending.TRUNCATED or not self.table:
            return measured(self.snapshot.host.evaluation_quality)
        return measured(self.table.get(self.snapshot.delivered))

    @property
    def loss_nats(self) -> float | None:
        """Of the live network; at the horizon of what is delivered."""
        return self.kept_loss_nats if self.ending is Ending.TRUNCATED else self.snapshot.host.evaluation_loss

    @property
    def parameters(self) -> int:
        """Of the live network; at the horizon of what is delivered."""
        if self.ending is not Ending.TRUNCATED:
            return self.snapshot.host.total_parameters
        return self.snapshot.host.parameters + sum(slot.parameters for slot in self.snapshot.slots if slot.delivered)

    @cached_property
    def gain(self) -> float | None:
        """What all seeds together gain over all-off."""
        return measured(attribution.gain(self.table)) if self.table else None

    @cached_property
    def gain_over_twin(self) -> float | None:
        return difference(self.snapshot.host.evaluation_quality, self.twin.quality if self.twin else None)

    @cached_property
    def bought(self) -> float | None:
        """Quality above the twin's, of what counts: see `quality`."""
        return difference(self.quality, self.twin.quality if self.twin else None)

    @cached_property
    def proven_gain(self) -> float | None:
        """The lesser of the gains over all-off and over the twin, as far as they are known.

        A host adapts to its seeds, so that all-off may be worse than never having grown; the twin tells.
        """
        known = [gain for gain in (self.gain, self.gain_over_twin) if gain is not None]
        return min(known, default=None)

    @cached_property
    def contributions(self) -> dict[SlotId, float]:
        """What the network loses without each seed, for the seeds that are present and measured."""
        if not self.table:
            return {}
        values = {slot: measured(attribution.contribution(self.table, slot)) for slot in self._present}
        return {slot: value for slot, value in values.items() if value is not None}

    @cached_property
    def shares(self) -> dict[SlotId, float]:
        """The part of the gain over all-off that is due to each present seed; none if any coalition failed."""
        if not self.table:
            return {}
        shares = attribution.shares(self.table)
        if any(measured(share) is None for share in shares.values()):
            return {}
        return {slot: share for slot, share in shares.items() if slot in self._present}

    @cached_property
    def _present(self) -> tuple[SlotId, ...]:
        """The table is older than the snapshot by one tick, in which a seed may have been removed."""
        return tuple(slot.slot for slot in self.snapshot.slots if RULES[slot.stage].holds_seed)


def _check_fraction(what: str, value: float | None) -> None:
    if (number := measured(value)) is not None and not 0.0 <= number <= 1.0:
        raise InvalidMoment(f"{what} is {number}; give a fraction between 0 and 1, so 0.75 for 75 %")
