"""The objective of proximal policy optimisation: one pure function of named tensors."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from esper.rl.acting import Replayed
from esper.rl.config import PPOConfig
from esper.rl.sequences import Sequences


class Targets(NamedTuple):
    """What experience says the policy and the critic should have done, (B, T)."""

    advantages: Tensor
    """(B, T, heads): mean 0 and deviation 1 over the steps where the head was free, times what the choice counts."""
    returns: Tensor
    values: Tensor
    """What the critic said when the steps were made, on its present scale."""


class Loss(NamedTuple):
    """The total to minimise and its parts; `kl` is the sum over free heads, averaged over steps with a choice."""

    total: Tensor
    policy: Tensor
    value: Tensor
    entropy: Tensor
    """(heads): mean over the steps where the head was free, from 0 to 1."""
    free: Tensor
    """(heads): how many steps those are."""
    kl: Tensor
    clipped: Tensor
    """Share of free heads whose ratio lies outside the clip range."""
    ratios: Tensor
    """(heads, 2): the lowest and the highest ratio of each head."""


def ppo_loss(
    new: Replayed, old: Sequences, targets: Targets, entropy_weights: Tensor, deviation: Tensor, config: PPOConfig
) -> Loss:
    """Clipped surrogate over (B, T) steps and H heads.

    `old.free` marks the heads that were used and had a choice; the others neither move the ratio nor earn entropy.
    Each head has a surrogate of its own, averaged over the steps where it was free as its entropy is: a head that is
    seldom used learns as fast as one that is used in every step, and the entropy bonus weighs the same against both.
    Errors of the critic are measured in deviations of the return.
    """
    free = old.free & old.valid.unsqueeze(-1)
    deciding = free.any(dim=-1).sum().clamp(min=1)
    log_ratio = (new.log_probs - old.log_probs).masked_fill(~free, 0.0)
    ratio = log_ratio.exp()
    gain = targets.advantages
    surrogate = torch.minimum(ratio * gain, ratio.clamp(1 - config.clip, 1 + config.clip) * gain)
    choices = free.sum(dim=(0, 1))
    policy = -(surrogate.masked_fill(~free, 0.0).sum(dim=(0, 1)) / choices.clamp(min=1)).sum()
    entropy = new.entropy.masked_fill(~free, 0.0).sum(dim=(0, 1)) / choices.clamp(min=1)
    value = value_loss(new.values, old.valid, targets, deviation, config.value_clip)
    total = policy + config.value_weight * value - (entropy_weights * entropy).sum()
    with torch.no_grad():
        kl = (log_ratio.expm1() - log_ratio).sum() / deciding  # (r - 1) - log r, precise near r = 1 too
        clipped = ((ratio - 1).abs() > config.clip).sum() / free.sum().clamp(min=1)
        ratios = torch.stack([ratio.amin(dim=(0, 1)), ratio.amax(dim=(0, 1))], dim=-1)
    return Loss(total, policy, value, entropy, choices, kl, clipped, ratios)


def value_loss(values: Tensor, valid: Tensor, targets: Targets, deviation: Tensor, clip: float) -> Tensor:
    """Half the mean squared error over valid steps; with a clip, the worse of the value and the clipped value."""
    error = ((values - targets.returns) / deviation).square()
    if clip < math.inf:
        reach = clip * deviation
        near = targets.values + (values - targets.values).clamp(-reach, reach)
        error = torch.maximum(error, ((near - targets.returns) / deviation).square())
    return 0.5 * (error * valid).sum() / valid.sum().clamp(min=1)
