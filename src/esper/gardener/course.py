"""How good a model has been: what evaluations said, on one scale."""

import math
from collections.abc import Mapping
from typing import Any

from esper.contracts import ACCURACY, Metric
from esper.environment import Worth
from esper.gardener.errors import NoScore, NotFraction
from esper.gardener.score import Answer, Direction

Scale = tuple[float, float]
"""The worst and the best score."""


class Course:
    """The last two answers about the live network, and how they are read.

    Without a scale, scores are fractions, and losses count from their first value down to 0.
    """

    def __init__(self, direction: Direction, scale: Scale | None, outcomes: int | None) -> None:
        self._direction, self._scale = direction, scale
        self._classes = outcomes if direction == "max" and scale is None else None
        self._first: Answer | None = None
        self.now: Answer | None = None
        self.before: Answer | None = None

    def require(self, answer: Answer) -> None:
        """Refuse an answer that cannot be right. What is not finite later on is a matter of the governor."""
        if self._first is None and not answer.finite:
            raise NoScore(
                f"evaluate returned a score of {answer.score} and a loss of {answer.loss} after the first epoch, and "
                "there is no earlier state to go back to; look at the evaluation and at the learning rate"
            )
        wanted = "divide percentages by 100, or say with scale=(worst, best) what the worst and the best score are"
        fraction = self._scale is None and self._direction == "max"
        if fraction and (answer.score > 1.0 or (self._first is None and answer.score < 0.0)):
            losses = ", or for a loss give direction='min'" if answer.score < 0.0 else ""
            raise NotFraction(
                f"the score is {answer.score:g}, and fractions from 0 to 1 are expected; {wanted}{losses}"
            )
        if self._scale is None and self._first is None and self._direction == "min" and answer.score <= 0.0:
            raise NotFraction(f"the score is {answer.score:g}, and a loss above 0 is expected; {wanted}")
        if self._scale is not None and self._first is None:
            worst, best = self._scale
            if answer.score > best > worst or answer.score < best < worst:
                raise NotFraction(
                    f"the first score is {answer.score:g}, better than the best of scale={self._scale}; {wanted}"
                )

    def take(self, answer: Answer) -> None:
        """An epoch's answer."""
        self._first = self._first or answer
        self.before, self.now = self.now, answer

    def forget(self) -> None:
        """What the last answer was about is gone."""
        self.now = self.before

    @property
    def metric(self) -> Metric:
        if self._scale is not None:
            return Metric("score", "", *self._scale)
        if self._direction == "max" or self._first is None:
            return ACCURACY
        return Metric("loss", "", worst=self._first.score, best=0.0)

    def quality(self, answer: Answer | None) -> float | None:
        """None if there is no answer."""
        return None if answer is None else self.metric.quality(answer.score)

    def worth(self, answer: Answer) -> Worth:
        """As the governor sees it: where no loss was told, it is what quality lacks."""
        quality = self.metric.quality(answer.score)
        return Worth(quality, 1.0 - quality if answer.loss is None or math.isnan(quality) else answer.loss)

    def guess(self) -> Worth:
        """What guessing is worth: known of classes, else thought to be the first answer or nothing."""
        quality = 0.0 if self._classes is None else 1.0 / self._classes
        if self._first is None or self._first.loss is None:
            return Worth(quality, 1.0 - quality)
        return Worth(quality, max(self._first.loss, math.log(self._classes or 1), 1e-12))

    def state_dict(self) -> dict[str, Any]:
        answers = {"first": self._first, "now": self.now, "before": self.before}
        return {name: None if each is None else [each.score, each.loss] for name, each in answers.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        read = {name: None if each is None else Answer(*each) for name, each in state.items()}
        self._first, self.now, self.before = read["first"], read["now"], read["before"]
