"""Generalised advantage estimation over whole rows of steps, for all rows at once."""

from collections.abc import Sequence

import torch
from torch import Tensor


def advantages(
    rewards: Tensor,
    values: Tensor,
    bootstrap: Tensor,
    ends: Tensor,
    valid: Tensor,
    discount: float,
    smoothing: float,
    counts: Tensor | None = None,
) -> Tensor:
    """Advantages, all shapes (B, T): a row holds episodes one behind the other; padding behind them gets 0.

    `ends` marks the last step of each episode, and of each row. `bootstrap` is read there only: 0 where the episode was
    terminated, V of the state after the step where it was truncated or goes on in the next rollout.
    `counts`, from 0 to 1, says how much of each decision the present policy would have made: what a decision brought
    is credited to the ones before it by that share (V-trace). Returns are values plus advantages times `counts`.
    """
    errors = bellman_errors(rewards, values, bootstrap, ends, valid, discount)
    carry = discount * smoothing * (valid & ~ends)
    if counts is not None:
        carry = carry * torch.nn.functional.pad(counts[:, 1:], (0, 1))
    result = torch.zeros_like(rewards)
    running = rewards.new_zeros(rewards.shape[0])
    for step in range(rewards.shape[1] - 1, -1, -1):
        running.mul_(carry[:, step]).add_(errors[:, step])
        result[:, step] = running
    return result


def bellman_errors(
    rewards: Tensor, values: Tensor, bootstrap: Tensor, ends: Tensor, valid: Tensor, discount: float
) -> Tensor:
    """By how much each step was better than its value said: reward and what follows, minus the value; (B, T)."""
    following = torch.where(ends, bootstrap, torch.nn.functional.pad(values[:, 1:], (0, 1)))
    return (rewards + discount * following - values) * valid


def normalised(values: Tensor, weights: Tensor) -> Tensor:
    """Mean 0 and deviation 1 over the entries of a weight above 0, each counted by its weight; the others become 0.

    One value alone becomes 0. Values that differ by no more than rounding stay near 0: the deviation counts as at least
    1e-5 of their size.
    """
    among = weights > 0
    total = weights.sum().clamp(min=1e-8)
    centred = (values - (values * weights).sum() / total) * among
    size, deviation = (((part.square() * weights).sum() / total).sqrt() for part in (values * among, centred))
    return centred / torch.maximum(deviation, 1e-5 * size).clamp(min=1e-8)


def gains(advantages: Tensor, deciding: Tensor, counts: Tensor, groups: Sequence[int]) -> Tensor:
    """By what the log-probability of each decision is to rise; (B, T), 0 where nothing was decided.

    Advantages are normalised once for all heads, and counted as much as the decision does; counts are scaled to a mean
    of 1. Each group of rows is normalised on its own (`groups` has a number for every row): rows of several tasks then
    teach alike, however much is to be won in each.
    """
    result = torch.zeros_like(advantages)
    for group in dict.fromkeys(groups):
        rows = torch.tensor([row for row, own in enumerate(groups) if own == group], device=advantages.device)
        weights = deciding[rows] * counts[rows]
        mean = weights.sum() / deciding[rows].sum().clamp(min=1)
        result[rows] = normalised(advantages[rows], weights) * weights / mean.clamp(min=1e-8)
    return result
