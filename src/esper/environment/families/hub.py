"""Some rows of the image sets of the Hugging Face hub, downloaded or from the user's data directory."""

from pathlib import Path

import numpy as np

from esper.environment.data import CIFAR10, FASHION_MNIST, HubSet, Split, hub
from esper.environment.families.kinds import (
    HELD_OUT,
    Array,
    DataSpec,
    Rows,
    data_kind,
    images,
    of_classes,
    some_classes,
)
from esper.environment.families.ranges import Choice, Span


@data_kind("fashion_mnist", f"hub {FASHION_MNIST.repository}", images(1), classes=Span(5, 10), side=Choice(14, 28))
def fashion_mnist(spec: DataSpec, random: np.random.Generator, data_dir: Path | None) -> tuple[Rows, Rows, Rows]:
    """Clothes, whole or averaged to half their side."""
    return _some(FASHION_MNIST, spec, random, data_dir)


@data_kind("cifar10", f"hub {CIFAR10.repository}", images(3), classes=Span(5, 10), side=Choice(16, 32))
def cifar10(spec: DataSpec, random: np.random.Generator, data_dir: Path | None) -> tuple[Rows, Rows, Rows]:
    """Objects, whole or averaged to half their side."""
    return _some(CIFAR10, spec, random, data_dir)


def _some(
    source: HubSet, spec: DataSpec, random: np.random.Generator, data_dir: Path | None
) -> tuple[Rows, Rows, Rows]:
    whole, side = hub(source, data_dir), dict(spec.look)["side"]
    number = some_classes(len(source.names), spec.classes, random)

    def few(split: Split, count: int) -> Rows:
        x, y = of_classes((split.x.numpy(), split.y.numpy()), number)
        rows = random.permutation(len(y))[:count]
        return _averaged(x[rows], side), y[rows]

    return few(whole.train, spec.train_rows), few(whole.evaluation, HELD_OUT), few(whole.test, HELD_OUT)


def _averaged(x: Array, side: int) -> Array:
    """The images at that side, which divides theirs."""
    step = x.shape[-1] // side
    averaged: Array = x.reshape(*x.shape[:2], side, step, side, step).mean(axis=(3, 5))
    return averaged
