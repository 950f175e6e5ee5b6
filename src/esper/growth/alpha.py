"""Alpha: how strongly a seed is blended, as a ramp from where it was to where it goes.

A schedule is a value. Ticking gives the next one, so the slot that holds it is alpha's only owner.
"""

import math
from dataclasses import dataclass, replace

from esper.contracts import AlphaCurve, AlphaMode


def progress(curve: AlphaCurve, share: float) -> float:
    """How far along a ramp is after this share of its ticks: monotone, 0 at 0 and 1 at 1."""
    if curve is AlphaCurve.LINEAR:
        return share
    if curve is AlphaCurve.COSINE:
        return (1.0 - math.cos(math.pi * share)) / 2.0
    reach = math.tanh(curve.steepness / 4.0)
    return (math.tanh(curve.steepness * (share - 0.5) / 2.0) / reach + 1.0) / 2.0


@dataclass(frozen=True)
class AlphaSchedule:
    """A ramp from `start` to `target` in `ticks` ticks, of which `elapsed` have passed.

    >>> ramp = AlphaSchedule(start=0.0, target=1.0, ticks=2)
    >>> ramp.alpha, ramp.tick().alpha, ramp.tick().tick().alpha
    (0.0, 0.5, 1.0)
    """

    start: float = 0.0
    target: float = 0.0
    ticks: int = 0
    curve: AlphaCurve = AlphaCurve.LINEAR
    elapsed: int = 0

    def __post_init__(self) -> None:
        for name in ("start", "target"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"alpha {name} is {getattr(self, name)}; it must lie between 0 and 1")
        if not 0 <= self.elapsed <= self.ticks:
            raise ValueError(f"{self.elapsed} of {self.ticks} ticks have elapsed; neither may be negative or exceed")

    @property
    def alpha(self) -> float:
        """The present strength; exactly `target` once the ramp has ended."""
        if self.mode is AlphaMode.STILL:
            return self.target
        value = self.start + (self.target - self.start) * progress(self.curve, self.elapsed / self.ticks)
        low, high = sorted((self.start, self.target))
        return min(max(value, low), high)

    @property
    def mode(self) -> AlphaMode:
        if self.elapsed == self.ticks or self.start == self.target:
            return AlphaMode.STILL
        return AlphaMode.RISING if self.target > self.start else AlphaMode.FALLING

    def tick(self) -> "AlphaSchedule":
        return self if self.elapsed == self.ticks else replace(self, elapsed=self.elapsed + 1)

    def retarget(self, target: float, ticks: int, curve: AlphaCurve) -> "AlphaSchedule":
        """A new ramp from the present alpha; with no ticks it arrives at once."""
        return AlphaSchedule(self.alpha, target, ticks, curve)
