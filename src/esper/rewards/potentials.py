"""What a moment is worth, part by part. Rewards are differences of these, so that they telescope.

Each part has a fixed bound, is 0 where nothing has grown (`quality` alone is not), and takes what was not measured as
neither gain nor loss. In the last moment only what is delivered earns, and only that pays rent, as in exams.
"""

import math

from esper.contracts import SlotSnapshot, Stage
from esper.rewards.config import RewardConfig
from esper.rewards.credit import bounded, credit, held_to_ransom, overclaimed
from esper.rewards.moment import Moment, difference

PROGRESS: dict[Stage, tuple[float, float]] = {
    Stage.DORMANT: (0.0, 0.0),
    Stage.GERMINATED: (0.1, 0.1),
    Stage.TRAINING: (0.3, 0.3),
    Stage.BLENDING: (0.5, 0.6),
    Stage.HOLDING: (0.7, 0.7),
    Stage.FOSSILIZED: (1.0, 1.0),
    Stage.PRUNED: (0.0, 0.0),
    Stage.EMBARGOED: (0.0, 0.0),
    Stage.RESETTING: (0.0, 0.0),
}
"""How far a slot has come, at alpha 0 and at alpha 1. No time spent in a stage is worth anything."""


def gain_over_twin(moment: Moment, config: RewardConfig) -> float:
    """Quality above that of the run without growth."""
    return config.gain_weight * (moment.bought or 0.0)


def quality(moment: Moment, config: RewardConfig) -> float:
    """Quality as such. No action changes the twin's, so this ranks actions as `gain_over_twin` does."""
    return config.gain_weight * (moment.quality or 0.0)


def loss_gain(moment: Moment, config: RewardConfig) -> float:
    """Loss below that of the run without growth, in units of the loss of guessing, within ±1."""
    gain_nats = difference(moment.twin.loss_nats if moment.twin else None, moment.loss_nats)
    return config.loss_weight * bounded((gain_nats or 0.0) / config.baseline_loss_nats)


def rent(moment: Moment, config: RewardConfig) -> float:
    """Minus the logarithm of growth, which is the parameters of what counts over the host's."""
    host = max(1, moment.snapshot.host.parameters)
    growth_log = math.log(max(host, moment.parameters)) - math.log(host)
    return -config.rent_weight * min(growth_log, math.log(config.growth_limit))


def contribution(moment: Moment, config: RewardConfig) -> float:
    """What the seeds claim."""
    return config.contribution_weight * credit(moment, config).claimed


def attribution_discount(moment: Moment, config: RewardConfig) -> float:
    """Minus what they claim beyond what they are paid."""
    seeds = credit(moment, config)
    return config.contribution_weight * (seeds.paid - seeds.claimed)


def ratio_penalty(moment: Moment, config: RewardConfig) -> float:
    """Minus what single seeds claim beyond any proportion to the joint gain."""
    return -config.ratio_weight * min(1.0, sum(overclaimed(moment, config).values()))


def ransomware(moment: Moment, config: RewardConfig) -> float:
    """Minus what seeds hold to ransom: their removal hurts, and together they gain nothing."""
    return -config.ransomware_weight * min(1.0, sum(held_to_ransom(moment, config).values()))


def shaping(moment: Moment, config: RewardConfig) -> float:
    """Progress of all slots along the lifecycle; worth nothing once the episode is over."""
    return 0.0 if moment.over else config.shaping_weight * sum(map(progress, moment.snapshot.slots))


def progress(slot: SlotSnapshot) -> float:
    """How far the slot has come, from 0 to 1. A seed on its way out has come nowhere."""
    low, high = (0.0, 0.0) if slot.pruning else PROGRESS[slot.stage]
    return low + (high - low) * min(1.0, max(0.0, slot.alpha))
