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
) -> Tensor:
    """Advantages, all shapes (B, T): a row holds episodes one behind the other; padding behind them gets 0.

    `ends` marks the last step of each episode, and of each row. `bootstrap` is read there only: 0 where the episode was
    terminated, V of the state after the step where it was truncated or goes on in the next rollout. Returns are
    advantages plus values.
    """
    errors = bellman_errors(rewards, values, bootstrap, ends, valid, discount)
    carry = discount * smoothing * (valid & ~ends)
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


def normalised(values: Tensor, valid: Tensor) -> Tensor:
    """Mean 0 and deviation 1 over the valid entries of rows and steps, for each further axis of `valid` on its own.

    The others become 0, as does one value alone. Values that differ by no more than rounding stay near 0: the deviation
    counts as at least 1e-5 of their size.
    """
    count = valid.sum(dim=(0, 1)).clamp(min=1)
    centred = (values - (values * valid).sum(dim=(0, 1)) / count) * valid
    size, deviation = (((part * valid).square().sum(dim=(0, 1)) / count).sqrt() for part in (values, centred))
    return centred / torch.maximum(deviation, 1e-5 * size).clamp(min=1e-8)


def normalised_by_group(values: Tensor, valid: Tensor, groups: Sequence[int]) -> Tensor:
    """`normalised` among the rows of each group alone; `groups` has a number for every row.

    Rows of several tasks then teach alike, however much is to be won in each.
    """
    result = torch.zeros(valid.shape, dtype=values.dtype, device=values.device)
    for group in dict.fromkeys(groups):
        rows = torch.tensor([row for row, own in enumerate(groups) if own == group], device=values.device)
        result[rows] = normalised(values[rows], valid[rows])
    return result
