"""The tables of scikit-learn, with standardised columns.

All but the digits are too small to be split in three, and stand for a set of any size: a row is a real one with noise
added to every column, so that rows to evaluate on may lie beside rows to train on.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine

from esper.environment.families.kinds import (
    Array,
    Look,
    Rows,
    features,
    generated,
    noisy,
    of_classes,
    pooled,
    some_classes,
)
from esper.environment.families.ranges import Choice, Log, Span


@pooled("digits-flat", features(64), classes=Span(5, 10))
def digits_flat(look: Look, random: np.random.Generator) -> Rows:
    """The pixels of handwritten digits as a list."""
    raw = load_digits()
    return of_classes((raw.data / 8 - 1, raw.target), some_classes(10, look["classes"], random))


@generated("iris", features(4), classes=Choice(3), noise=Log(0.2, 0.8))
def iris(y: Array, look: Look, random: np.random.Generator) -> Array:
    """Three kinds of iris by the measures of their flowers."""
    return _near(load_iris, y, look, random)


@generated("wine", features(13), classes=Choice(3), noise=Log(0.3, 1.5))
def wine(y: Array, look: Look, random: np.random.Generator) -> Array:
    """Three growers of wine by its chemistry."""
    return _near(load_wine, y, look, random)


@generated("breast-cancer", features(30), classes=Choice(2), noise=Log(0.3, 1.5))
def breast_cancer(y: Array, look: Look, random: np.random.Generator) -> Array:
    """Tumours, benign or not, by the looks of their cells."""
    return _near(load_breast_cancer, y, look, random)


@generated("diabetes", features(10), classes=Choice(3), noise=Log(0.1, 0.3))
def diabetes(y: Array, look: Look, random: np.random.Generator) -> Array:
    """How a disease goes on, in thirds, by age, blood and body."""
    return _near(load_diabetes, y, look, random)


def _near(load: Callable[[], Any], y: Array, look: Look, random: np.random.Generator) -> Array:
    """For every label a row of that class, with noise."""
    x, labels = _table(load)
    found = np.empty((len(y), x.shape[1]))
    for label in range(look["classes"]):
        wanted, there = np.flatnonzero(y == label), np.flatnonzero(labels == label)
        found[wanted] = x[there[random.integers(0, len(there), len(wanted))]]
    return noisy(found, look["noise"], random)


@cache
def _table(load: Callable[[], Any]) -> Rows:
    """A target that is not a class is cut into thirds."""
    raw = load()
    x, y = raw.data, raw.target
    if y.dtype.kind == "f":
        y = np.searchsorted(np.quantile(y, (1 / 3, 2 / 3)), y)
    return (x - x.mean(axis=0)) / x.std(axis=0), y
