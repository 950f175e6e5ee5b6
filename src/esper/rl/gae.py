"""Generalised advantage estimation over whole episodes, for all environments at once."""

import torch
from torch import Tensor


def advantages(
    rewards: Tensor, values: Tensor, bootstrap: Tensor, valid: Tensor, discount: float, smoothing: float
) -> Tensor:
    """Advantages of shape (B, T): one row per episode, padded behind its last step; padding has advantage 0.

    `rewards`, `values` and `valid` have shape (B, T). `bootstrap` (B) is the value of the state after the last step:
    0 where the episode was terminated, V of that state where it was truncated. Returns are advantages plus values.
    """
    length = valid.sum(dim=1)
    steps = torch.arange(rewards.shape[1], device=rewards.device)
    last = steps == (length - 1).unsqueeze(1)
    following = torch.where(last, bootstrap.unsqueeze(1), torch.nn.functional.pad(values[:, 1:], (0, 1)))
    errors = (rewards + discount * following - values) * valid
    carry = discount * smoothing * (valid & ~last)
    result = torch.zeros_like(rewards)
    running = torch.zeros_like(bootstrap)
    for step in range(rewards.shape[1] - 1, -1, -1):
        running = errors[:, step] + carry[:, step] * running
        result[:, step] = running
    return result


def normalised(values: Tensor, valid: Tensor) -> Tensor:
    """Mean 0 and deviation 1 over the valid entries; padding stays 0. One value, or none, becomes 0."""
    count = valid.sum().clamp(min=1)
    centred = (values - (values * valid).sum() / count) * valid
    deviation = (centred.square().sum() / count).sqrt()
    return centred / deviation.clamp(min=1e-8)
