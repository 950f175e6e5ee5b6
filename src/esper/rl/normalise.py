"""Mean and deviation of numbers that arrive in batches, over all of them or with the past fading."""

import math
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Moments:
    """Mean and variance so far, and how many numbers they stand for."""

    mean: float = 0.0
    variance: float = 1.0
    count: int = 0

    @property
    def deviation(self) -> float:
        """Never below 1e-4: numbers that are all alike are not blown up."""
        return max(math.sqrt(self.variance), 1e-4)

    def updated(self, batch: Tensor, momentum: float | None = None) -> "Moments":
        """With `batch` (any shape) taken in.

        Without momentum every number seen so far counts alike. With momentum m the batch counts m and the past 1 - m;
        the first batch counts fully, so there is no start-up bias. An empty batch changes nothing.

        >>> from torch import tensor
        >>> Moments().updated(tensor([1.0, 3.0])).updated(tensor([5.0])).mean
        3.0
        >>> Moments().updated(tensor([1.0, 3.0])).updated(tensor([5.0]), momentum=0.5).mean
        3.5
        """
        new = batch.numel()
        if new == 0:
            return self
        mean, variance = batch.double().mean().item(), batch.double().var(correction=0).item()
        count = self.count + new
        share = 1.0 if self.count == 0 else new / count if momentum is None else momentum
        shift = mean - self.mean
        return Moments(
            mean=self.mean + share * shift,
            variance=(1 - share) * self.variance + share * variance + share * (1 - share) * shift**2,
            count=count,
        )
