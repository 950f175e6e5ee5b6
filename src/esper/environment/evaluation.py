"""What a body is worth: loss and quality of the live network, and the quality of every coalition that credit needs.

What would be delivered now is always among them once an epoch is over.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, combinations
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from esper.contracts import ACCURACY, JudgedBy, Metric, SlotId, loss_metric, metric_of
from esper.environment.data import PADDING, Split, cross_entropy
from esper.growth import Body, Coalition, evaluating

ALL_SUBSETS_UP_TO = 4
"""With more blended seeds than this, only full, leave-one-out and all-off are evaluated each epoch."""

ROWS_AT_ONCE, LABELS_AT_ONCE = 256, 4_096
"""Bound the memory of an evaluation, and keep its features in a CPU's cache."""


class Worth(NamedTuple):
    """Of one network: its quality by the metric in use, and its loss in nats."""

    quality: float
    loss: float


class Judge(Protocol):
    """Says what a body is worth when only some of its seeds are on."""

    metric: Metric

    def worths(self, body: Body, coalitions: Sequence[Coalition]) -> list[Worth]: ...


@dataclass(frozen=True)
class FunctionJudge:
    """Any evaluation of a model, asked once per coalition. It returns the score, or the score and the loss (nats)."""

    evaluate: Callable[[nn.Module], float | tuple[float, float]]
    metric: Metric = ACCURACY

    def worths(self, body: Body, coalitions: Sequence[Coalition]) -> list[Worth]:
        worths = []
        for coalition in coalitions:
            with body.only(coalition):
                told = self.evaluate(body.host)
            score, loss = told if isinstance(told, tuple) else (told, float("nan"))
            worths.append(Worth(self.metric.quality(score), loss))
        return worths


class SplitJudge:
    """Evaluates whole tensors; coalitions share what they can of the forward pass."""

    def __init__(self, split: Split, outcomes: int, judged_by: JudgedBy = "accuracy") -> None:
        self.metric, self._split = metric_of(judged_by, outcomes, split.token), split
        self._nats = loss_metric(outcomes)
        counted = split.y[split.y != PADDING]
        self._labels = len(counted)
        commonest = float(counted.bincount().max()) / self._labels
        self.guess = Worth(commonest if self.metric == ACCURACY else 0.0, self._nats.worst)
        """What blind guessing is worth."""

    def worths(self, body: Body, coalitions: Sequence[Coalition]) -> list[Worth]:
        return self._worths(lambda x: list(body.coalition_outputs(coalitions, x).values()), body)

    def worth(self, model: nn.Module) -> Worth:
        """Of a plain network."""
        (worth,) = self._worths(lambda x: [model(x.clone())], model)  # a copy, because a first layer may work in place
        return worth

    def _worths(self, outputs_of: Callable[[Tensor], Sequence[Tensor]], model: nn.Module) -> list[Worth]:
        """With a single transfer from the device at the end."""
        split, totals = self._split, []
        rows = min(ROWS_AT_ONCE, max(1, LABELS_AT_ONCE * len(split.y) // split.y.numel()))
        with evaluating(model):
            for x, y in zip(split.x.split(rows), split.y.split(rows), strict=True):
                totals.append(torch.stack([_hits_and_loss(output, y) for output in outputs_of(x)]))
        means = (torch.stack(totals).sum(dim=0) / self._labels).tolist()
        return [Worth(right if self.metric == ACCURACY else self._nats.quality(loss), loss) for right, loss in means]


def _hits_and_loss(output: Tensor, y: Tensor) -> Tensor:
    hits = (output.argmax(-1) == y).sum()
    return torch.stack([hits.double(), cross_entropy(output, y, reduction="sum").double()])


@dataclass(frozen=True)
class Evaluation:
    """What the live network is worth, and each coalition."""

    live: Worth
    worths: Mapping[Coalition, Worth]

    @property
    def loss(self) -> float:
        """Of the live network, in nats."""
        return self.live.loss

    @property
    def quality(self) -> float:
        """Of the live network."""
        return self.live.quality

    @cached_property
    def table(self) -> Mapping[Coalition, float]:
        """The quality of each coalition."""
        return {coalition: worth.quality for coalition, worth in self.worths.items()}


def coalitions_of(blended: Iterable[SlotId], exact: bool = False) -> list[Coalition]:
    """The coalitions to evaluate, the full one first."""
    seeds = sorted(blended)
    if exact or len(seeds) <= ALL_SUBSETS_UP_TO:
        sizes = range(len(seeds), -1, -1)
        return [frozenset(subset) for subset in chain.from_iterable(combinations(seeds, size) for size in sizes)]
    full = frozenset(seeds)
    return [full, *(full - {seed} for seed in seeds), frozenset()]


def evaluate(body: Body, judge: Judge, exact: bool = False) -> Evaluation:
    """One evaluation of everything. The body takes note of its quality and of what each seed contributes."""
    wanted = coalitions_of(body.blended(), exact)
    worths = judge.worths(body, wanted)
    evaluation = Evaluation(worths[0], dict(zip(wanted, worths, strict=True)))
    body.record_qualities(evaluation.table)
    return evaluation


def with_delivered(evaluation: Evaluation, body: Body, judge: Judge) -> Evaluation:
    """The same with what would be delivered now, which what was measured and the tick after it decide.

    No tick moves the alpha of a seed that is delivered, so it is the network that was evaluated.
    """
    delivered = frozenset(fossil.slot for fossil in body.delivered())
    if delivered in evaluation.worths:
        return evaluation
    (worth,) = judge.worths(body, [delivered])
    return replace(evaluation, worths={**evaluation.worths, delivered: worth})
