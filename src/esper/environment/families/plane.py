"""Points of the plane and of more dimensions, and bits. Coordinates are around -2..2."""

import numpy as np

from esper.environment.families.kinds import Array, Look, features, generated, noisy
from esper.environment.families.ranges import Choice, Log, Span


def _polar(radius: Array, angle: Array) -> Array:
    return np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=1)


@generated("spirals", features(2), classes=Span(2, 4), turns=Choice(1.25, 1.5, 1.75), noise=Log(0.02, 0.1))
def spirals(y: Array, look: Look, random: np.random.Generator) -> Array:
    """Arms that wind around each other."""
    radius = 0.1 + 0.9 * np.sqrt(random.random(len(y)))
    return 2 * noisy(_polar(radius, 2 * np.pi * (look["turns"] * radius + y / look["classes"])), look["noise"], random)


@generated("moons", features(2), classes=Choice(2), noise=Log(0.15, 0.4))
def moons(y: Array, look: Look, random: np.random.Generator) -> Array:
    """Two half circles, each with an end inside the other."""
    arc = _polar(np.ones(len(y)), np.pi * (random.random(len(y)) + y))
    return 2 * noisy(arc + np.where(y[:, None] == 1, (0.5, 0.25), (-0.5, -0.25)), look["noise"], random)


@generated("rings", features(2), classes=Span(2, 5), noise=Log(0.04, 0.15))
def rings(y: Array, look: Look, random: np.random.Generator) -> Array:
    """Circles around each other."""
    return 2 * noisy(_polar((y + 0.5) / look["classes"], 2 * np.pi * random.random(len(y))), look["noise"], random)


@generated("parity", lambda look: (look["bits"],), classes=Choice(2), bits=Span(3, 8), noise=Log(0.3, 0.8))
def parity(y: Array, look: Look, random: np.random.Generator) -> Array:
    """Bits with noise; the class is whether the number of ones among the first three is odd."""
    bits = random.integers(0, 2, (len(y), look["bits"]))
    bits[:, 0] = (y + bits[:, 1] + bits[:, 2]) % 2
    return noisy(2.0 * bits - 1.0, look["noise"], random)


@generated("checkerboard", features(2), classes=Span(2, 4), noise=Log(0.01, 0.05))
def checkerboard(y: Array, look: Look, random: np.random.Generator) -> Array:
    """A board with as many squares along each side as there are classes, which take turns in both directions."""
    down = random.integers(0, look["classes"], len(y))
    square = np.stack((down, (y - down) % look["classes"]), axis=1)
    return 4 * noisy((square + random.random((len(y), 2))) / look["classes"] - 0.5, look["noise"], random)


LAYOUT = Span(0, 999_999)
"""What all splits of a task have in common, as the seed of its random numbers."""


@generated(
    "clusters",
    lambda look: (look["columns"],),
    classes=Span(2, 6),
    columns=Span(2, 10),
    noise=Log(0.2, 0.8),
    layout=LAYOUT,
)
def clusters(y: Array, look: Look, random: np.random.Generator) -> Array:
    """Clouds of points, three for each class, at places of the task's own."""
    centres = _layout(look).uniform(-1.5, 1.5, (look["classes"], 3, look["columns"]))
    return noisy(centres[y, random.integers(0, 3, len(y))], look["noise"], random)


@generated(
    "tree",
    lambda look: (look["columns"],),
    classes=Span(2, 4),
    columns=Span(4, 16),
    noise=Log(0.02, 0.2),
    layout=LAYOUT,
)
def tree(y: Array, look: Look, random: np.random.Generator) -> Array:
    """Many columns, of which the signs of three decide; which class each of the eight cases has is the task's own."""
    classes = _layout(look).permutation(np.arange(8) % look["classes"])
    x = random.uniform(-1.5, 1.5, (len(y), look["columns"]))
    for label in range(look["classes"]):
        rows, cases = np.flatnonzero(y == label), np.flatnonzero(classes == label)
        case = cases[random.integers(0, len(cases), len(rows))]
        x[rows, :3] = np.abs(x[rows, :3]) * np.where(case[:, None] >> np.arange(3) & 1, 1.0, -1.0)
    return noisy(x, look["noise"], random)


def _layout(look: Look) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(look["layout"]))
