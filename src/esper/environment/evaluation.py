"""What a body is worth on a split: loss, accuracy, and the accuracy of every coalition that credit needs.

The fossils alone are always among them: they are what is delivered in the end.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, combinations

import torch
from torch import Tensor, nn

from esper.contracts import SlotId
from esper.environment.data import Split
from esper.growth import Body, Coalition, evaluating

ALL_SUBSETS_UP_TO = 4
"""With more blended seeds than this, only full, leave-one-out and all-off are evaluated each epoch."""

ROWS_AT_ONCE = 256
"""Bounds the memory of an evaluation, and keeps its features in a CPU's cache."""


@dataclass(frozen=True)
class Evaluation:
    """`loss` (nats) and `accuracy` (a fraction) of the live network; `table` has the accuracy of each coalition.

    `kept_loss` is that of the host with its fossils alone.
    """

    loss: float
    accuracy: float
    table: Mapping[Coalition, float]
    kept_loss: float


def coalitions_of(blended: Iterable[SlotId], exact: bool = False) -> list[Coalition]:
    """The coalitions to evaluate, the full one first."""
    seeds = sorted(blended)
    if exact or len(seeds) <= ALL_SUBSETS_UP_TO:
        sizes = range(len(seeds), -1, -1)
        return [frozenset(subset) for subset in chain.from_iterable(combinations(seeds, size) for size in sizes)]
    full = frozenset(seeds)
    return [full, *(full - {seed} for seed in seeds), frozenset()]


def evaluate(body: Body, split: Split, exact: bool = False) -> Evaluation:
    """One evaluation of everything, with a single transfer from the device at the end."""
    kept = frozenset(fossil.slot for fossil in body.fossils())
    wanted = list(dict.fromkeys([*coalitions_of(body.blended(), exact), kept]))
    hits = torch.zeros(len(wanted), dtype=torch.float64, device=split.x.device)
    losses = torch.zeros(2, dtype=torch.float64, device=split.x.device)
    with evaluating(body):
        for x, y in zip(split.x.split(ROWS_AT_ONCE), split.y.split(ROWS_AT_ONCE), strict=True):
            outputs: dict[Coalition, Tensor] = body.coalition_outputs(wanted, x)
            losses += torch.stack([_total_loss(outputs[coalition], y) for coalition in (wanted[0], kept)])
            hits += torch.stack([(outputs[coalition].argmax(1) == y).sum() for coalition in wanted])
    live_loss, kept_loss, *shares = (torch.cat([losses, hits]) / len(split.x)).tolist()
    table = dict(zip(wanted, shares, strict=True))
    return Evaluation(live_loss, table[wanted[0]], table, kept_loss)


def _total_loss(output: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(output, y, reduction="sum")
