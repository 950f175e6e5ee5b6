"""A real number from a normal distribution, cut off at bounds: the one definition for acting and for learning.

What lies beyond a bound is moved onto it, as environments do. So a bound has a probability, that of everything beyond
it, and what lies between the bounds has a density; both are what really happens. All functions take leading axes of any
shape and one entry for each number last.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

FAR = 1e6
"""A bound that nothing reaches, and with which every derivative is finite."""


class Gaussian(NamedTuple):
    """Means (..., numbers), and logarithms of deviations and bounds (numbers)."""

    mean: Tensor
    log_deviation: Tensor
    low: Tensor
    high: Tensor

    def draw(self, generator: torch.Generator | None) -> Tensor:
        """One number each, within the bounds; without a generator the middle one."""
        free = self.mean
        if generator is not None:
            noise = torch.randn(free.shape, generator=generator, device=free.device, dtype=free.dtype)
            free = free + noise * self.log_deviation.exp()
        return torch.clamp(free, self.low, self.high)

    def log_probs(self, numbers: Tensor) -> Tensor:
        """Of each number: the logarithm of its density, or on a bound of its probability."""
        deviation = self.log_deviation.exp()
        density = -0.5 * ((numbers - self.mean) / deviation).square() - self.log_deviation - 0.5 * math.log(2 * math.pi)
        below = torch.special.log_ndtr((self.low - self.mean) / deviation)
        above = torch.special.log_ndtr((self.mean - self.high) / deviation)
        return torch.where(numbers <= self.low, below, torch.where(numbers >= self.high, above, density))

    def nats(self) -> Tensor:
        """The entropy of each normal distribution, 1.42 for a deviation of 1: not bounded, and no share of a most."""
        nats = self.log_deviation + 0.5 * math.log(2 * math.pi * math.e)
        return nats.expand_as(self.mean)
