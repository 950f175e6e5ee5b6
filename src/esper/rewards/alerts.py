"""Events for an operator: seeds that look as if they were paid for the wrong thing."""

from collections.abc import Iterable

from esper.contracts import Event, RansomwareSuspected, RewardHackingSuspected, SlotId
from esper.rewards.config import RewardConfig
from esper.rewards.credit import held_to_ransom, overclaimed
from esper.rewards.moment import Moment
from esper.rewards.transition import Transition


def alerts(transition: Transition, config: RewardConfig) -> tuple[Event, ...]:
    """Each suspicion once, in the step in which it arises."""
    start, end = transition.start, transition.end
    ransom = _new(held_to_ransom(start, config), held_to_ransom(end, config))
    hacking = _new(overclaimed(start, config), overclaimed(end, config))
    return (
        *(RansomwareSuspected(*_facts(end, slot)) for slot in ransom),
        *(RewardHackingSuspected(*_facts(end, slot)) for slot in hacking),
    )


def _new(before: Iterable[SlotId], after: Iterable[SlotId]) -> list[SlotId]:
    known = set(before)
    return [slot for slot in after if slot not in known]


def _facts(moment: Moment, slot: SlotId) -> tuple[int, SlotId, float, float]:
    assert moment.proven_gain is not None  # nobody is suspected without it
    return moment.snapshot.host.epoch, slot, moment.contributions[slot], moment.proven_gain
