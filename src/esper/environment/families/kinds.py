"""Kinds of data that a task can be drawn from. A dict and a decorator: registering a kind is writing what makes it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from esper.environment.data import Split, Splits
from esper.environment.families.ranges import Draws, Range

HELD_OUT = 600
"""Rows to evaluate on, and to test on, of a generated set: a standard error of at most two points."""
GRID = 2**16
"""Samples are rounded to multiples of its inverse, so that they do not depend on the last digits of a cosine."""

Array = NDArray[Any]
Look = Mapping[str, Any]
"""What was drawn for a set, by the names of its kind's ranges."""
Rows = tuple[Array, Array]
"""Samples (n, ...) and labels (n,)."""


@dataclass(frozen=True)
class DataKind:
    """What can be learned. `shape` is that of a sample; `space` says whether the places of pixels tell anything."""

    name: str
    meaning: str
    origin: str
    space: bool
    ranges: Mapping[str, Range]
    shape: Callable[[Look], tuple[int, ...]]
    rows: Callable[["DataSpec", np.random.Generator, Path | None], tuple[Rows, Rows, Rows]]
    """From what was drawn, the random numbers of the data, and the user's data directory."""


@dataclass(frozen=True)
class DataSpec:
    """The data of one task: a kind, what was drawn for it, and the draws that its rows belong to."""

    kind: str
    look: tuple[tuple[str, Any], ...]
    train_rows: int
    """At most a third of a set that is not generated."""
    label_noise: float
    """Share of the labels to train on that are replaced by another one."""
    draws: Draws

    def __str__(self) -> str:
        shape = "x".join(map(str, self.shape))
        return f"{self.kind} {shape}, {self.classes} classes, up to {self.train_rows} rows"

    @property
    def shape(self) -> tuple[int, ...]:
        return DATA_KINDS[self.kind].shape(dict(self.look))

    @property
    def classes(self) -> int:
        return int(dict(self.look)["classes"])

    def load(self, data_dir: Path | None = None) -> Splits:
        """Made anew by every call and held by nobody else."""
        random = np.random.Generator(np.random.PCG64(self.draws.seed("rows")))
        train, evaluation, test = DATA_KINDS[self.kind].rows(self, random, data_dir)
        return Splits(_split(self._mislabelled(train)), _split(evaluation), _split(test))

    def _mislabelled(self, rows: Rows) -> Rows:
        x, y = rows
        random = np.random.Generator(np.random.PCG64(self.draws.seed("wrong labels")))
        wrong = random.random(len(y)) < self.label_noise
        return x, np.where(wrong, (y + random.integers(1, self.classes, len(y))) % self.classes, y)


def _split(rows: Rows) -> Split:
    x, y = rows
    rounded = np.round(np.ascontiguousarray(x) * GRID) / GRID
    return Split(torch.from_numpy(rounded.astype(np.float32)), torch.from_numpy(y.astype(np.int64)))


DATA_KINDS: dict[str, DataKind] = {}

MakeRows = Callable[[DataSpec, np.random.Generator, Path | None], tuple[Rows, Rows, Rows]]
Generate = Callable[[Array, Look, np.random.Generator], Array]
Pool = Callable[[Look, np.random.Generator], Rows]
Shape = Callable[[Look], tuple[int, ...]]


def data_kind(
    name: str, origin: str, shape: Shape, space: bool = True, **ranges: Range
) -> Callable[[MakeRows], MakeRows]:
    """Register a function that makes rows to train on, to evaluate on and to test on."""

    def register(make: MakeRows) -> MakeRows:
        DATA_KINDS[name] = DataKind(name, " ".join((make.__doc__ or "").split()), origin, space, ranges, shape, make)
        return make

    return register


def generated(name: str, shape: Shape, space: bool = True, **ranges: Range) -> Callable[[Generate], Generate]:
    """Register a function that makes a sample for every label it is given; the classes are equally likely."""

    def register(make: Generate) -> Generate:
        @wraps(make)
        def rows(spec: DataSpec, random: np.random.Generator, _: Path | None) -> tuple[Rows, Rows, Rows]:
            look, parts = dict(spec.look), (spec.train_rows, HELD_OUT, HELD_OUT)
            labels = [random.permutation(np.arange(count) % look["classes"]) for count in parts]
            train, evaluation, test = ((make(y, look, random), y) for y in labels)
            return train, evaluation, test

        data_kind(name, "generated, no download", shape, space, **ranges)(rows)
        return make

    return register


def pooled(name: str, shape: Shape, space: bool = True, **ranges: Range) -> Callable[[Pool], Pool]:
    """Register a function that gives all rows of a set: at most a third is trained on, the rest is held out."""

    def register(pool: Pool) -> Pool:
        @wraps(pool)
        def rows(spec: DataSpec, random: np.random.Generator, _: Path | None) -> tuple[Rows, Rows, Rows]:
            x, y = pool(dict(spec.look), random)
            first = min(spec.train_rows, len(y) // 3)
            cuts = np.split(random.permutation(len(y)), (first, first + (len(y) - first) // 2))
            train, evaluation, test = ((x[cut], y[cut]) for cut in cuts)
            return train, evaluation, test

        data_kind(name, "scikit-learn, no download", shape, space, **ranges)(rows)
        return pool

    return register


def images(channels: int) -> Shape:
    """Square ones, of the side that was drawn."""
    return lambda look: (channels, look["side"], look["side"])


def features(count: int) -> Shape:
    """Vectors of that length."""
    return lambda _: (count,)


def noisy(x: Array, noise: float, random: np.random.Generator) -> Array:
    """With normal noise of that deviation on every number."""
    return x + noise * random.standard_normal(x.shape)


def some_classes(total: int, classes: int, random: np.random.Generator) -> Array:
    """New numbers of all classes, with -1 for those that are left out."""
    number = np.full(total, -1)
    number[random.permutation(total)[:classes]] = np.arange(classes)
    return number


def of_classes(rows: Rows, number: Array) -> Rows:
    """The rows whose classes have a new number, with that."""
    x, y = rows
    kept = number[y] >= 0
    return x[kept], number[y[kept]]
