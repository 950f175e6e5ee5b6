"""What networks are judged by: scores of any unit and direction, and their quality, on which all else is built."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A kind of score. `worst` has quality 0, `best` has quality 1; what lies outside counts as the nearer of them.

    >>> ACCURACY.quality(0.75), loss_metric(outcomes=8).quality(math.log(8) / 4)
    (0.75, 0.75)
    >>> ACCURACY.show(0.75), loss_metric(outcomes=8).show(0.75)
    ('75.0%', '0.520 nats')
    """

    name: str
    unit: str
    worst: float
    best: float

    @property
    def higher_is_better(self) -> bool:
        return self.best > self.worst

    def quality(self, score: float) -> float:
        """A fraction that is the larger the better; NaN stays NaN."""
        share = (score - self.worst) / (self.best - self.worst)
        return share if math.isnan(share) else min(1.0, max(0.0, share))

    def score(self, quality: float) -> float:
        """The score of that quality."""
        return self.worst + quality * (self.best - self.worst)

    def show(self, quality: float) -> str:
        """The score of that quality, with its unit."""
        score = self.score(quality)
        return f"{score:.1%}" if self.unit == "%" else f"{score:.3f} {self.unit}"


ACCURACY = Metric("accuracy", "%", worst=0.0, best=1.0)


def loss_metric(outcomes: int) -> Metric:
    """Cross-entropy among so many outcomes (classes, tokens). Guessing has quality 0, and so has what is worse."""
    return Metric("loss", "nats", worst=math.log(outcomes), best=0.0)
