"""What networks are judged by: scores of any unit and direction, and their quality, on which all else is built."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

JudgedBy = Literal["accuracy", "loss", "perplexity", "bits per character", "bits per byte"]
"""What a task's networks are compared by; all but accuracy are cross-entropy, told in another unit."""


@dataclass(frozen=True)
class Metric:
    """A kind of score. `worst` has quality 0, `best` has quality 1; what lies outside counts as the nearer of them.

    Quality is even in the score, or in its logarithm.

    >>> ACCURACY.quality(0.75), loss_metric(outcomes=8).quality(math.log(8) / 4)
    (0.75, 0.75)
    >>> ACCURACY.show(0.75), loss_metric(outcomes=8).show(0.75)
    ('75.0%', '0.520 nats')
    """

    name: str
    unit: str
    worst: float
    best: float
    logarithmic: bool = False

    @property
    def higher_is_better(self) -> bool:
        return self.best > self.worst

    def quality(self, score: float) -> float:
        """A fraction that is the larger the better; NaN stays NaN."""
        if self.logarithmic:
            score = math.log(max(score, self.best))
        share = (score - self._ends[0]) / (self._ends[1] - self._ends[0])
        return share if math.isnan(share) else min(1.0, max(0.0, share))

    def score(self, quality: float) -> float:
        """The score of that quality."""
        worst, best = self._ends
        place = worst + quality * (best - worst)
        return math.exp(place) if self.logarithmic else place

    @property
    def _ends(self) -> tuple[float, float]:
        """Between which quality is even."""
        return (math.log(self.worst), math.log(self.best)) if self.logarithmic else (self.worst, self.best)

    def show(self, quality: float) -> str:
        """The score of that quality, with its unit."""
        score = self.score(quality)
        return f"{score:.1%}" if self.unit == "%" else f"{score:.3f} {self.unit}".rstrip()


@dataclass(frozen=True)
class Token:
    """How much text one token stands for, on average."""

    characters: float = 1.0
    bytes: float = 1.0


CHARACTER = Token()
"""A token that is one character of one byte."""

ACCURACY = Metric("accuracy", "%", worst=0.0, best=1.0)


def loss_metric(outcomes: int) -> Metric:
    """Cross-entropy among so many outcomes (classes, tokens). Guessing has quality 0, and so has what is worse."""
    return Metric("loss", "nats", worst=math.log(outcomes), best=0.0)


def _perplexity(outcomes: int, token: Token) -> Metric:
    return Metric("perplexity", "", worst=float(outcomes), best=1.0, logarithmic=True)


def _bits(unit: str, per_token: float, outcomes: int) -> Metric:
    return Metric("loss", unit, worst=math.log2(outcomes) / per_token, best=0.0)


METRICS: dict[JudgedBy, Callable[[int, Token], Metric]] = {
    "accuracy": lambda outcomes, token: ACCURACY,
    "loss": lambda outcomes, token: loss_metric(outcomes),
    "perplexity": _perplexity,
    "bits per character": lambda outcomes, token: _bits("bits per character", token.characters, outcomes),
    "bits per byte": lambda outcomes, token: _bits("bits per byte", token.bytes, outcomes),
}
"""Made for so many outcomes and tokens of that size. A network has one quality by all of them that are not accuracy."""
