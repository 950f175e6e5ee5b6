"""How to learn: every setting of the update, checked once."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from esper.rl.errors import RLError


@dataclass(frozen=True)
class PPOConfig:
    """Settings of proximal policy optimisation. All of them act; none is reserved."""

    discount: float = 0.99
    """Worth of the next step's return."""
    smoothing: float = 0.95
    """Lambda of the advantage estimate: 0 trusts the critic, 1 trusts what happened."""
    epochs: int = 10
    """Passes over the experience. Each replays whole rows from their stored states, which is right for memory."""
    minibatches: int = 4
    """Parts of the rows, whole, per pass."""
    reuse: int = 1
    """Updates that learn from a rollout: its own and the next ones. 1 forgets it at once."""
    learning_rate: float = 1e-3
    final_learning_rate: float = 3e-4
    """Reached at the end of training, on a straight line."""
    clip: float = 0.2
    """How far a head's probability ratio may move the objective."""
    value_clip: float = 10.0
    """How far a value may move from the old one and still count, in deviations of the return; inf turns it off."""
    value_weight: float = 0.5
    entropy_weight: float = 0.01
    final_entropy_weight: float = 0.0
    """Reached at the end of training, on a straight line."""
    head_entropy: Mapping[str, float] = field(default_factory=dict)
    """Factor on the entropy weight for some heads; 1 for those not named."""
    target_kl: float = math.inf
    """A head rests while it is further than this from the old policy, in nats on the mean step where it had a choice;
    an update ends when all heads are. inf turns it off."""
    max_gradient_norm: float = 1.0
    weight_decay: float = 1e-4
    """On the critic only: decaying a policy would pull it to uniform."""
    exploration: float = 0.0
    """Share of the probability that is spread evenly over the legal choices, in acting and in learning alike."""
    return_momentum: float = 0.1
    """Weight of the newest rollout in the one scale of returns."""
    critic_updates: int = 0
    """First updates, in which the critic alone learns: for a policy worth keeping whose critic is still to come."""
    anchor_weight: float = 0.0
    """Of the divergence from the policy that learning began with; 0 lets it go at once."""
    anchor_share: float = 0.5
    """Share of the training at which that weight has fallen to 0, on a straight line."""

    def __post_init__(self) -> None:
        require_ranges(self, _RANGES)
        for name in ("epochs", "minibatches", "reuse"):
            whole(name, getattr(self, name), 1)
        for head, weight in self.head_entropy.items():
            if not 0.0 <= weight <= 100.0:
                raise RLError(f"head_entropy of '{head}' = {weight}; give a value from 0 to 100")

    def entropy_weights(self, heads: Sequence[str], progress: float) -> list[float]:
        """The one rule for the entropy bonus: annealed base weight times the head's factor."""
        base = _line(self.entropy_weight, self.final_entropy_weight, progress)
        return [base * self.head_entropy.get(head, 1.0) for head in heads]

    def anchor_weight_at(self, progress: float) -> float:
        return _line(self.anchor_weight, 0.0, progress / self.anchor_share)

    def learning_rate_at(self, progress: float) -> float:
        return _line(self.learning_rate, self.final_learning_rate, progress)

    def require_heads(self, heads: Sequence[str]) -> None:
        """Refuse factors for heads that the network does not have."""
        unknown = [head for head in self.head_entropy if head not in heads]
        if unknown:
            raise RLError(f"head_entropy names '{unknown[0]}'; the heads are {', '.join(heads)}")


_RANGES = {
    "discount": (0.0, 1.0),
    "smoothing": (0.0, 1.0),
    "learning_rate": (1e-8, 1.0),
    "final_learning_rate": (0.0, 1.0),
    "clip": (1e-3, 10.0),
    "value_clip": (1e-3, math.inf),
    "value_weight": (0.0, 100.0),
    "entropy_weight": (0.0, 10.0),
    "final_entropy_weight": (0.0, 10.0),
    "target_kl": (1e-6, math.inf),
    "max_gradient_norm": (1e-6, 1e6),
    "weight_decay": (0.0, 1.0),
    "exploration": (0.0, 0.5),
    "return_momentum": (1e-3, 1.0),
    "critic_updates": (0, 1_000_000),
    "anchor_weight": (0.0, 100.0),
    "anchor_share": (1e-3, 1.0),
}


def require_ranges(settings: object, ranges: Mapping[str, tuple[float, float]]) -> None:
    """Refuse settings that are no numbers, or out of their ranges."""
    for name, (low, high) in ranges.items():
        value = getattr(settings, name)
        if not isinstance(value, int | float) or not low <= value <= high:
            raise RLError(f"{name} = {value}; give a value from {low:g} to {high:g}")


def whole(name: str, number: object, least: int) -> int:
    """The number as an int; refused with its name if it is not whole, or less than `least`."""
    if not isinstance(number, int | float | np.integer) or number != number // 1 or number < least:
        raise RLError(f"{name} = {number!r}; give a whole number from {least} on")
    return int(number)


def _line(first: float, last: float, progress: float) -> float:
    return first + (last - first) * min(max(progress, 0.0), 1.0)
