"""What an update did, in one typed structure."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from esper.rl.gae import bellman_errors
from esper.rl.loss import Loss, Targets
from esper.rl.sequences import Sequences


@dataclass(frozen=True)
class HeadMetrics:
    """One head. Entropy and KL are None where the head never had a choice: nothing was measured."""

    steps: int
    """Steps at which the head had a choice."""
    entropy: float | None
    """Mean over those steps, as a share of the most there could be, over the passes."""
    gradient_norm: float
    """Of the head's own parameters, before clipping, mean over the passes."""
    lowest_ratio: float
    highest_ratio: float
    kl: float | None
    """Mean over those of these steps that were in the last minibatch that had any; what `target_kl` is held against."""


@dataclass(frozen=True)
class UpdateMetrics:
    """One update. Losses and norms are means over its minibatches, `kl` is the last one's."""

    policy_loss: float
    value_loss: float
    """Half the squared error in deviations of the return."""
    kl: float
    clipped: float
    """Share of head choices whose ratio left the clip range."""
    gradient_norm: float
    """Of all parameters, before clipping."""
    advantage_mean: float
    advantage_deviation: float
    """Both before normalisation, over the steps that had a choice."""
    return_mean: float
    return_deviation: float
    explained_variance: float | None
    """Share of the variance of returns that the old critic explains; None where returns do not vary."""
    value_error: float
    """Root mean square of return minus old value, in units of return."""
    bellman_error: float
    """The same of reward plus the next step's old value minus old value."""
    steps: int
    """Valid steps in the experience."""
    forced_steps: int
    """Of those, the steps at which only one action was legal."""
    optimiser_steps: int
    skipped_steps: int
    """Optimiser steps left out because the gradient was not finite."""
    anchor_kl: float | None
    """Divergence from the policy that learning began with; None if that is not kept."""
    stopped_early: bool
    """Every head that had a choice had moved by more than the target before all passes were made."""
    heads: dict[str, HeadMetrics]

    @property
    def finite(self) -> bool:
        """Whether every step that was tried could be taken."""
        return self.skipped_steps == 0

    @property
    def worst_head(self) -> str:
        """The head whose ratio is furthest from 1, on the logarithmic scale."""
        return max(
            self.heads,
            key=lambda name: max(self.heads[name].highest_ratio, 1 / max(self.heads[name].lowest_ratio, 1e-30)),
        )


def measure(
    heads: Sequence[str],
    sequences: Sequences,
    targets: Targets,
    losses: Sequence[Loss],
    norms: Sequence[Tensor],
    taken: tuple[bool, int, int],
    discount: float,
) -> UpdateMetrics:
    """All metrics of an update, fetched from the device in one transfer."""
    free = sequences.free & sequences.valid.unsqueeze(-1)
    deciding = free.any(dim=-1)
    returns, values = targets.returns[sequences.valid], sequences.values[sequences.valid]
    raw = (targets.returns - sequences.values)[deciding]
    raw = raw if len(raw) else raw.new_zeros(1)
    errors = bellman_errors(*sequences.course(), discount)[sequences.valid]
    norm = torch.stack(list(norms)).mean(dim=0)
    ratios = torch.stack([loss.ratios for loss in losses])
    seen = torch.stack([loss.free for loss in losses])
    choices = seen.sum(dim=0)
    entropy = (torch.stack([loss.entropy for loss in losses]) * seen).sum(dim=0) / choices.clamp(min=1)
    latest = len(losses) - 1 - (seen > 0).flip(0).int().argmax(dim=0)
    kl = torch.stack([loss.head_kl for loss in losses]).gather(0, latest.unsqueeze(0)).squeeze(0)
    figures = {
        "policy_loss": torch.stack([loss.policy for loss in losses]).mean(),
        "value_loss": torch.stack([loss.value for loss in losses]).mean(),
        "kl": losses[-1].kl,
        "anchor_kl": losses[-1].anchor_kl,
        "clipped": torch.stack([loss.clipped for loss in losses]).mean(),
        "gradient_norm": norm[0],
        "advantage_mean": raw.mean(),
        "advantage_deviation": raw.std(correction=0),
        "return_mean": returns.mean(),
        "return_deviation": returns.std(correction=0),
        "value_error": (returns - values).square().mean().sqrt(),
        "bellman_error": errors.square().mean().sqrt(),
        "error_variance": (returns - values).var(correction=0),
        "steps": sequences.valid.sum(),
        "deciding": deciding.sum(),
    }
    per_head = torch.stack(
        [free.sum(dim=(0, 1)), choices, entropy, norm[1:], ratios[..., 0].amin(dim=0), ratios[..., 1].amax(dim=0), kl]
    )
    everything = torch.cat([torch.stack([figure.float() for figure in figures.values()]), per_head.flatten()]).tolist()
    found = dict(zip(figures, everything[: len(figures)], strict=True))
    rows = [everything[len(figures) + i * len(heads) :][: len(heads)] for i in range(len(per_head))]
    variance = found["return_deviation"] ** 2
    error_variance, deciding_steps = found.pop("error_variance"), int(found.pop("deciding"))
    steps = int(found.pop("steps"))
    anchor_kl = found.pop("anchor_kl")
    stopped, optimiser_steps, skipped = taken
    return UpdateMetrics(
        **found,
        explained_variance=1 - error_variance / variance if variance > 1e-12 else None,
        steps=steps,
        forced_steps=steps - deciding_steps,
        optimiser_steps=optimiser_steps,
        skipped_steps=skipped,
        anchor_kl=None if targets.anchor is None else anchor_kl,
        stopped_early=stopped,
        heads={
            name: HeadMetrics(int(count), entropy if choices else None, gradient, low, high, kl if choices else None)
            for name, count, choices, entropy, gradient, low, high, kl in zip(heads, *rows, strict=True)
        },
    )
