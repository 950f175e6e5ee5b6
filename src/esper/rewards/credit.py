"""What the seeds of one moment claim, what they are paid, and which of them claim too much."""

from dataclasses import dataclass

from esper.contracts import SlotId
from esper.rewards.config import RewardConfig
from esper.rewards.moment import Moment


def bounded(value: float) -> float:
    """No network gains or loses more than all quality."""
    return max(-1.0, min(1.0, value))


@dataclass(frozen=True)
class Credit:
    """Sums over all seeds, as fractions of quality. `paid` is never more than `claimed`."""

    claimed: float
    paid: float


def credit(moment: Moment, config: RewardConfig) -> Credit:
    """A seed claims what its removal costs, and at least its share of the joint gain; it is paid its share.

    All seeds together are paid no more than their proven gain. When the episode is over, credit for seeds that are
    not delivered lapses, debt stays. What was not measured is not paid.
    """
    claimed = paid = 0.0
    for slot in moment.snapshot.slots:
        if slot.slot not in moment.shares:
            continue
        share = moment.shares[slot.slot]
        claim = max(share, moment.contributions[slot.slot])
        lapsed = moment.over and not slot.delivered
        claimed += min(0.0, claim) if lapsed else claim
        paid += min(0.0, share) if lapsed else share
    return Credit(max(-1.0, claimed), min(bounded(paid), payable(moment, config)))


def payable(moment: Moment, config: RewardConfig) -> float:
    """The most that all seeds together are paid: what they proved and brought, nothing while any is held to ransom."""
    gain = moment.proven_gain
    if gain is None or held_to_ransom(moment, config):
        return 0.0
    return max(0.0, gain if moment.bought is None else min(gain, moment.bought))


def held_to_ransom(moment: Moment, config: RewardConfig) -> dict[SlotId, float]:
    """Contribution beyond what is beneath suspicion, of seeds whose removal hurts while together they gain nothing."""
    gain = moment.proven_gain
    if gain is None or gain > config.negligible_gain:
        return {}
    return _beyond(config.suspicious_contribution, moment)


def overclaimed(moment: Moment, config: RewardConfig) -> dict[SlotId, float]:
    """Contribution beyond `ratio_limit` times the joint gain, of seeds that do gain something together."""
    gain = moment.proven_gain
    if gain is None or gain <= config.negligible_gain:
        return {}
    return _beyond(max(config.suspicious_contribution, config.ratio_limit * gain), moment)


def _beyond(limit: float, moment: Moment) -> dict[SlotId, float]:
    return {slot: value - limit for slot, value in moment.contributions.items() if value > limit}
