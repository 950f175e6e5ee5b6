"""What networks are judged by: scores of any unit and direction, and their quality, on which all else is built."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

JudgedBy = Literal["accuracy", "loss", "perplexity", "bits per character", "bits per byte"]
"""What a task's networks are compared by; all but accuracy are cross-entropy, told in another unit."""


ACCURACY_GRAIN, LOSS_GRAIN = 0.01, 0.002
"""The least difference in quality that is worth a decision: losses move less than accuracies, and are less noisy."""


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


@dataclass(frozen=True)
class Unit:
    """A way to tell cross-entropy: what it is called, how much text of a token counts as one, and what nats become."""

    name: str
    unit: str
    size_of: Callable[[Token], float]
    of_nats: Callable[[float], float]
    logarithmic: bool = False

    def tell(self, nats: float, size: float) -> float:
        """The loss of a token of that size, in this unit.

        >>> round(UNITS["bits per character"].tell(1.6844, size=1.0), 3)
        2.43
        """
        return self.of_nats(nats / size)

    def metric(self, outcomes: int, token: Token) -> Metric:
        """Guessing among so many outcomes has quality 0, and so has what is worse."""
        worst, best = (self.tell(nats, self.size_of(token)) for nats in (math.log(outcomes), 0.0))
        return Metric(self.name, self.unit, worst, best, self.logarithmic)


def _bits(unit: str, size_of: Callable[[Token], float]) -> Unit:
    return Unit("loss", unit, size_of, lambda nats: nats / math.log(2.0))


UNITS: dict[str, Unit] = {
    "loss": Unit("loss", "nats", lambda token: 1.0, lambda nats: nats),
    "perplexity": Unit("perplexity", "", lambda token: 1.0, math.exp, logarithmic=True),
    "bits per character": _bits("bits per character", lambda token: token.characters),
    "bits per byte": _bits("bits per byte", lambda token: token.bytes),
}
"""By `JudgedBy`. A network has one quality by all of them, the part of the loss of guessing that is gone."""


def metric_of(judged_by: JudgedBy, outcomes: int, token: Token = CHARACTER) -> Metric:
    """What networks are judged by that choose among so many outcomes (classes, tokens).

    >>> metric_of("perplexity", outcomes=65).show(0.57), metric_of("bits per character", outcomes=65).show(0.57)
    ('6.019', '2.590 bits per character')
    """
    return ACCURACY if judged_by == ACCURACY.name else UNITS[judged_by].metric(outcomes, token)


def grain_of(judged_by: JudgedBy) -> float:
    """The grain of qualities that are judged so.

    >>> grain_of("accuracy"), grain_of("perplexity")
    (0.01, 0.002)
    """
    return ACCURACY_GRAIN if judged_by == ACCURACY.name else LOSS_GRAIN


def loss_metric(outcomes: int) -> Metric:
    """Cross-entropy in nats."""
    return metric_of("loss", outcomes)
