"""Images: handwritten digits, and generated ones in which space matters or does not. Pixels are around -1..1."""

from functools import cache

import numpy as np
from sklearn.datasets import load_digits

from esper.environment.families.kinds import (
    Array,
    Look,
    Rows,
    generated,
    images,
    noisy,
    of_classes,
    pooled,
    some_classes,
)
from esper.environment.families.ranges import Choice, Log, Span


def _places(side: int) -> tuple[Array, Array]:
    """Row and column of every pixel, from -1 to 1."""
    line = (2 * np.arange(side) + 1 - side) / side
    return line[:, None], line[None, :]


def _each(values: Array) -> Array:
    """Values per image, to be combined with its pixels."""
    return values[:, None, None]


@cache
def _digit_images() -> Rows:
    raw = load_digits()
    return raw.images / 8 - 1, raw.target


@pooled("digits", images(1), classes=Span(5, 10), side=Choice(4, 8, 8, 12, 16))
def digits(look: Look, random: np.random.Generator) -> Rows:
    """Handwritten digits: 8x8, averaged to 4x4, doubled to 16x16, or anywhere on a ground of 12x12."""
    x, y = of_classes(_digit_images(), some_classes(10, look["classes"], random))
    side = look["side"]
    if side == 4:
        x = x.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4))
    elif side == 16:
        x = x.repeat(2, axis=1).repeat(2, axis=2)
    elif side == 12:
        ground = np.full((len(x), 12, 12), -1.0)
        for image, digit, (top, left) in zip(ground, x, random.integers(0, 5, (len(x), 2)), strict=True):
            image[top : top + 8, left : left + 8] = digit
        x = ground
    return x[:, None], y


@generated("gratings", images(1), classes=Span(2, 6), side=Choice(8, 12, 16), cycles=Choice(1, 2), noise=Log(0.4, 1.6))
def gratings(y: Array, look: Look, random: np.random.Generator) -> Array:
    """Stripes with noise; the class is their direction, which no pixel tells by itself."""
    down, right = _places(look["side"])
    angle, phase = np.pi * y / look["classes"], 2 * np.pi * random.random(len(y))
    along = _each(np.cos(angle)) * right + _each(np.sin(angle)) * down
    waves = np.cos(np.pi * look["cycles"] * along + _each(phase))
    return noisy(waves, look["noise"], random)[:, None]


@generated("shapes", images(1), classes=Span(3, 6), side=Choice(8, 12, 16), noise=Log(0.1, 0.5))
def shapes(y: Array, look: Look, random: np.random.Generator) -> Array:
    """A disc, frame, cross, saltire or bar, bright or dark, of any size at any place."""
    down, right = _places(look["side"])
    top, left = (_each(0.6 * random.random(len(y)) - 0.3) for _ in range(2))
    size = _each(0.45 + 0.25 * random.random(len(y)))
    v, h = np.abs(down - top) / size, np.abs(right - left) / size
    within = np.maximum(v, h) <= 1.0
    forms = np.stack(
        [
            v * v + h * h <= 1.0,
            within & (np.maximum(v, h) >= 0.55),
            within & (np.minimum(v, h) <= 0.3),
            within & (np.abs(v - h) <= 0.35),
            (v <= 0.4) & (h <= 1.0),
            (v <= 1.0) & (h <= 0.4),
        ]
    )
    contrast = (0.6 + 0.4 * random.random(len(y))) * random.choice([-1.0, 1.0], len(y))
    return noisy(_each(contrast) * forms[y, np.arange(len(y))], look["noise"], random)[:, None]


@generated("colours", images(3), space=False, classes=Span(3, 8), side=Choice(4, 8, 12), noise=Log(1.0, 3.0))
def colours(y: Array, look: Look, random: np.random.Generator) -> Array:
    """Patches of one hue on coloured noise; the class is the hue, and pixels may change places."""
    hue = 2 * np.pi * y / look["classes"]
    tint = np.stack([np.cos(hue + turn) for turn in (0.0, 2 * np.pi / 3, 4 * np.pi / 3)], axis=1)
    strength = random.random((len(y), 1, look["side"], look["side"]))
    return noisy(tint[:, :, None, None] * strength, look["noise"], random) / 2


@generated("brightness", images(1), space=False, classes=Span(3, 6), side=Choice(4, 8, 12), noise=Log(0.2, 0.4))
def brightness(y: Array, look: Look, random: np.random.Generator) -> Array:
    """Grey noise; the class is how bright it is on the whole, with neighbours that overlap."""
    level = (2.0 * y - look["classes"] + 1) / (look["classes"] - 1)
    level = level + look["noise"] * random.standard_normal(len(y))
    return noisy(np.broadcast_to(_each(level), (len(y), look["side"], look["side"])), 0.5, random)[:, None]


@generated("textures", images(1), classes=Span(3, 6), side=Choice(8, 12, 16), noise=Log(0.1, 0.5))
def textures(y: Array, look: Look, random: np.random.Generator) -> Array:
    """Noise without shape; the class is which neighbours are alike. All pixels are distributed alike."""
    grain = random.standard_normal((len(y), look["side"], look["side"]))
    shifts = np.array([(0, 1), (1, 0), (1, 1), (1, -1), (0, 2), (2, 0)])[y]
    rows, columns = ((np.arange(look["side"]) + shifts[:, axis, None]) % look["side"] for axis in (0, 1))
    alike = grain[np.arange(len(y))[:, None, None], rows[:, :, None], columns[:, None, :]]
    return noisy((grain + alike) / np.sqrt(2), look["noise"], random)[:, None] / 2


@generated("dots", images(1), classes=Span(3, 6), side=Choice(8, 12, 16), noise=Log(0.05, 0.2))
def dots(y: Array, look: Look, random: np.random.Generator) -> Array:
    """One bright dot more for every class, of any brightness, at any place."""
    order = random.random((len(y), look["side"] ** 2)).argsort(axis=1).argsort(axis=1)
    light = 0.75 + 0.5 * random.random(order.shape)
    image = np.where(order <= y[:, None], light, 0.0).reshape(len(y), look["side"], look["side"])
    return noisy(2 * image - 0.5, look["noise"], random)[:, None]


@generated("pairs", images(2), space=False, classes=Span(3, 5), side=Choice(4, 8), noise=Log(0.5, 2.0))
def pairs(y: Array, look: Look, random: np.random.Generator) -> Array:
    """Two channels of noise; the class is how alike they are, from equal to opposite, and pixels may change places."""
    angle = np.pi * y / (look["classes"] - 1)
    one, other = random.standard_normal((2, len(y), look["side"], look["side"]))
    both = np.stack((one, _each(np.cos(angle)) * one + _each(np.sin(angle)) * other), axis=1)
    return noisy(both, look["noise"], random) / 2


@generated("spots", images(1), classes=Span(2, 5), side=Choice(8, 12, 16), noise=Log(0.1, 0.6))
def spots(y: Array, look: Look, random: np.random.Generator) -> Array:
    """One round spot at any place, bright or dark; the class is how far it spreads, and all have the same light."""
    down, right = _places(look["side"])
    top, left = (_each(random.random(len(y)) - 0.5) for _ in range(2))
    spread = 0.12 * 1.5 ** _each(y.astype(float))
    spot = np.exp(-((down - top) ** 2 + (right - left) ** 2) / (2 * spread**2)) / (spread / 0.12)
    return noisy(2 * _each(random.choice([-1.0, 1.0], len(y))) * spot, look["noise"], random)[:, None]


@generated("grids", images(1), classes=Span(2, 4), side=Choice(8, 12, 16), noise=Log(0.3, 1.2))
def grids(y: Array, look: Look, random: np.random.Generator) -> Array:
    """Squares of two shades with noise, shifted anyhow; the class is how large the squares are."""
    places = np.arange(look["side"])
    down, right = ((places + random.integers(0, 8, (len(y), 1))) // (y[:, None] + 1) % 2 for _ in range(2))
    return noisy(2.0 * (down[:, :, None] ^ right[:, None, :]) - 1.0, look["noise"], random)[:, None]


@generated("contrast", images(1), space=False, classes=Span(2, 5), side=Choice(4, 8, 12), noise=Log(0.1, 0.3))
def contrast(y: Array, look: Look, random: np.random.Generator) -> Array:
    """Grey noise of any mean; the class is how much it varies, with neighbours that overlap."""
    deviation = 0.3 * 1.4 ** (y + look["noise"] * 3 * random.standard_normal(len(y)))
    mean = 0.3 * random.standard_normal(len(y))
    return (_each(mean) + _each(deviation) * random.standard_normal((len(y), look["side"], look["side"])))[:, None]
