"""One step of an episode: all that its reward is computed from."""

from dataclasses import dataclass
from functools import cached_property

from esper.contracts import Action, SlotSnapshot, Snapshot
from esper.rewards.attribution import Table
from esper.rewards.moment import Ending, InvalidMoment, Moment, Twin


@dataclass(frozen=True)
class Transition:
    """From the snapshot that was acted on to the one after it.

    `action` is what was executed: WAIT if the controller's action was refused. The tables need the full coalition,
    those that lack one seed, all-off and, at the horizon, what is delivered. The twins are None unless the mode needs
    them (see `needs_twin`); other modes use them when they are there. `kept_loss_after` is the loss (nats) of what
    is delivered.
    """

    before: Snapshot
    after: Snapshot
    action: Action
    table_before: Table
    table_after: Table
    twin_before: Twin | None = None
    twin_after: Twin | None = None
    ending: Ending = Ending.RUNNING
    kept_loss_after: float | None = None

    def __post_init__(self) -> None:
        before, after = ([slot.slot for slot in snapshot.slots] for snapshot in (self.before, self.after))
        if before != after:
            raise InvalidMoment(f"the slots were {before} and are {after}; give two snapshots of one body")

    @cached_property
    def start(self) -> Moment:
        return Moment(self.before, self.table_before, self.twin_before)

    @cached_property
    def end(self) -> Moment:
        return Moment(self.after, self.table_after, self.twin_after, self.ending, self.kept_loss_after)

    @property
    def slots(self) -> tuple[tuple[SlotSnapshot, SlotSnapshot], ...]:
        """Each slot as it was and as it is."""
        return tuple(zip(self.before.slots, self.after.slots, strict=True))
