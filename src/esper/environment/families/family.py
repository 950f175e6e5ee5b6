"""A family draws tasks: (family, task seed) gives a task, the same on every machine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from esper.contracts import EsperError
from esper.environment.data import Source
from esper.environment.families.hosts import draw_conv, draw_dense
from esper.environment.families.kinds import DATA_KINDS, DataSpec
from esper.environment.families.ranges import Draws
from esper.environment.families.table import CIFAR, FAR, FASHION, SMALL, WIDE, Ranges
from esper.environment.families.text_tasks import TEXTUAL, TextRanges, draw_text_task
from esper.environment.tasks import Task, task_on
from esper.growth import ConvShape, DenseShape

MOST_SEEDS = 10**18


class InvalidTaskSeed(EsperError):
    """A number that no task of a family has."""


def draw_class_task(name: str, draws: Draws, ranges: Ranges) -> Task:
    """A task of naming classes, of images or of vectors."""
    return _trained(_hosted(name, draws, ranges), draws, ranges)


def _data(draws: Draws, ranges: Ranges) -> DataSpec:
    conv = draws.pick("topology", ranges.topology) == "conv"
    kind = DATA_KINDS[draws.pick("data", ranges.images if conv else ranges.vectors)]
    look = tuple((name, draws.pick(f"{kind.name} {name}", among)) for name, among in kind.ranges.items())
    batches = draws.pick("batches", ranges.image_batches if conv else ranges.vector_batches)
    rows = batches * draws.pick("batch size", ranges.batch_size)
    return DataSpec(kind.name, look, rows, draws.pick("label noise", ranges.label_noise), draws)


def _hosted(name: str, draws: Draws, ranges: Ranges) -> Task:
    """The task with its data and its host, and words for both."""
    data = _data(draws, ranges)
    kind, shape = DATA_KINDS[data.kind], data.shape
    source = Source(kind.name, kind.origin, shape, data.classes, data.load)
    host = draw_conv(draws, ranges, shape[-1]) if len(shape) == 3 else draw_dense(draws, ranges)
    found = task_on(source, host, name, f"{data}; {_words(host)}")
    traits = {**found.traits, "residual": _yes(host.residual)}
    if isinstance(host, ConvShape):
        traits |= {"space": _yes(kind.space), "norm": host.norm, "pooled": _yes(bool(host.pool_after))}
    return replace(found, traits=traits)


def _words(host: ConvShape | DenseShape) -> str:
    """A host in a few words.

    >>> _words(ConvShape((4, 8), kernels=(1, 3), pool_after=(0,))), _words(DenseShape((6, 6), residual=True))
    ('blocks 4-8, kernels 1-3, batch norm, 1 pooled', 'layers 6-6, residual')
    """
    if isinstance(host, ConvShape):
        words = [f"blocks {_dashed(host.channels)}", f"kernels {_dashed(host.block_kernels)}", f"{host.norm} norm"]
        words += [f"{len(host.pool_after)} pooled"] if host.pool_after else []
    else:
        words = [f"layers {_dashed(host.widths)}"]
    words += ["residual"] if host.residual else []
    return ", ".join(words + ([host.activation] if host.activation != "relu" else []))


def _dashed(numbers: Sequence[int]) -> str:
    return "-".join(map(str, numbers))


def _yes(fact: bool) -> str:
    return "yes" if fact else "no"


def _trained(task: Task, draws: Draws, ranges: Ranges) -> Task:
    """With the settings of its training."""
    optimizer = draws.pick("optimizer", ranges.optimizer)
    rate = draws.pick("learning rate", ranges.adam_rate if optimizer == "adam" else ranges.sgd_rate)
    rent = draws.pick("rent", ranges.rent)
    return replace(
        task,
        summary=f"{task.summary}; {optimizer} {rate:g}, rent {rent:g}",
        optimizer=optimizer,
        learning_rate=rate,
        seed_learning_rate=rate,
        batch_size=draws.pick("batch size", ranges.batch_size),
        horizon=draws.pick("horizon", ranges.horizon),
        rent=rent,
        traits={**task.traits, "optimizer": optimizer},
    )


@dataclass(frozen=True)
class Family:
    """Every `deal`-th task of a sequence, from the `first` on, so that families of one sequence never share a task.

    `make` draws a task of that name from the ranges.
    """

    name: str
    summary: str
    ranges: Ranges | TextRanges
    sequence: str
    first: int = 0
    deal: int = 1
    make: Callable[[str, Draws, Any], Task] = draw_class_task

    def draw(self, seed: int) -> Task:
        """The task of that number."""
        if not 0 <= seed < MOST_SEEDS:
            raise InvalidTaskSeed(f"family:{self.name} has no task {seed}; give a number from 0 to {MOST_SEEDS - 1:,}")
        draws = Draws(self.sequence, seed * self.deal + self.first)
        return self.make(f"family:{self.name}/{seed}", draws, self.ranges)


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family("small", "tasks to train controllers on", SMALL, "small", first=0, deal=3),
        Family("small-dev", "tasks of the same ranges, to choose by", SMALL, "small", first=1, deal=3),
        Family("small-exam", "tasks of the same ranges, for tables", SMALL, "small", first=2, deal=3),
        Family("wide", "other hosts and data than those of exams, to train controllers on", WIDE, "wide"),
        Family("far-exam", "data and hosts that small never draws, for tables", FAR, "far"),
        Family("text", "texts, to train controllers on", TEXTUAL, "text", 0, 3, draw_text_task),
        Family("text-dev", "texts of the same ranges, to choose by", TEXTUAL, "text", 1, 3, draw_text_task),
        Family("text-exam", "texts of the same ranges, for tables", TEXTUAL, "text", 2, 3, draw_text_task),
        Family("fashion", "some rows and classes of Fashion-MNIST, hosts as in small", FASHION, "fashion"),
        Family("cifar", "some rows and classes of CIFAR-10, hosts as in small", CIFAR, "cifar"),
    )
}
