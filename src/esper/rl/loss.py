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

    gains: Tensor
    """By what the log-probability of each decision is to rise: its normalised advantage, times what it counts."""
    returns: Tensor
    values: Tensor
    """What the critic said when the steps were made, on its present scale."""
    anchor: Tensor | None = None
    """(B, T, heads): log-probabilities under the policy that learning began with, if it is kept."""

    def part(self, which: Tensor | tuple[slice, ...]) -> "Targets":
        """Those of some of the rows."""
        anchor = None if self.anchor is None else self.anchor[which]
        return Targets(self.gains[which], self.returns[which], self.values[which], anchor)


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
    head_kl: Tensor
    """(heads): mean over the steps where the head was free."""
    moving: Tensor
    """(heads): free somewhere, and its own divergence is within the target."""
    clipped: Tensor
    """Share of free heads whose ratio lies outside the clip range."""
    ratios: Tensor
    """(heads, 2): the lowest and the highest ratio of each head."""
    anchor_kl: Tensor
    """Divergence from the policy that learning began with, as `kl`; 0 if it is not kept."""


def ppo_loss(
    new: Replayed,
    old: Sequences,
    targets: Targets,
    entropy_weights: Tensor,
    deviation: Tensor,
    config: PPOConfig,
    anchor_weight: float = 0.0,
) -> Loss:
    """Clipped surrogate over (B, T) steps and H heads.

    `old.free` marks the heads that were used and had a choice; the others neither move the ratio nor earn entropy.
    The log-probability of a decision is the sum over its free heads, so surrogates and entropies are summed over heads
    and averaged over all steps with a choice: a head weighs as much as it is used. A head that has moved too far on its
    own steps has no part in the total. Errors of the critic are measured in deviations of the return.
    What is estimated of the divergence from the anchor has in the mean the gradient of KL(anchor || policy).
    """
    free = old.free & old.valid.unsqueeze(-1)
    deciding, choices = free.any(dim=-1).sum().clamp(min=1), free.sum(dim=(0, 1))
    log_ratio = (new.log_probs - old.log_probs).masked_fill(~free, 0.0)
    ratio = log_ratio.exp()
    with torch.no_grad():
        divergence = (log_ratio.expm1() - log_ratio).sum(dim=(0, 1))  # (r - 1) - log r, precise near r = 1 too
        head_kl = divergence / choices.clamp(min=1)
        moving = (head_kl <= config.target_kl) & (choices > 0)
        clipped = ((ratio - 1).abs() > config.clip).sum() / free.sum().clamp(min=1)
        ratios = torch.stack([ratio.amin(dim=(0, 1)), ratio.amax(dim=(0, 1))], dim=-1)
    gain = targets.gains.unsqueeze(-1)
    surrogate = torch.minimum(ratio * gain, ratio.clamp(1 - config.clip, 1 + config.clip) * gain)
    policy = -(surrogate.masked_fill(~free, 0.0).sum(dim=(0, 1)) * moving).sum() / deciding
    uncertainty = new.entropy.masked_fill(~free, 0.0).sum(dim=(0, 1))
    value = value_loss(new.values, old.valid, targets, deviation, config.value_clip)
    total = policy + config.value_weight * value - (entropy_weights * uncertainty * moving).sum() / deciding
    entropy = uncertainty / choices.clamp(min=1)
    kl = divergence.sum() / deciding
    anchor_kl = torch.zeros_like(kl)
    if targets.anchor is not None:
        away = (targets.anchor - new.log_probs).masked_fill(~free, 0.0)
        anchor_kl = (away.expm1() - away).sum() / deciding
        total = total + anchor_weight * anchor_kl
    return Loss(total, policy, value, entropy, choices, kl, head_kl, moving, clipped, ratios, anchor_kl)


def value_loss(values: Tensor, valid: Tensor, targets: Targets, deviation: Tensor, clip: float) -> Tensor:
    """Half the mean squared error over valid steps; with a clip, the worse of the value and the clipped value."""
    error = ((values - targets.returns) / deviation).square()
    if clip < math.inf:
        reach = clip * deviation
        near = targets.values + (values - targets.values).clamp(-reach, reach)
        error = torch.maximum(error, ((near - targets.returns) / deviation).square())
    return 0.5 * (error * valid).sum() / valid.sum().clamp(min=1)
