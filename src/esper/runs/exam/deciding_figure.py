"""Gain against trainings spent on a task: search as a curve, and who decides without search as a line."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from scipy.optimize import isotonic_regression

from esper.runs.exam.config import SEARCH
from esper.runs.exam.deciding import FamilySummary, PolicyGain, Prize
from esper.runs.exam.drawing import CONTROL_LOOK, OTHERS, REFERENCE_LOOK, drawn, label_of
from esper.runs.exam.statistics import Estimate
from esper.runs.exam.summary import CONTROL
from esper.runs.exam.winnings import MOST_TRAININGS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SEARCH_COLOUR, ORACLE_COLOUR = "#3d3d3d", "#6f6f6f"
WIDTH, LEAST_HEIGHT, LEVEL_HEIGHT = 9.0, 5.0, 0.27
FONT = 11.5
STYLES = ("solid", "dashdot", "dotted")
"""When all colours are taken, they begin again in the next style."""
INK = 0.72
"""How bright a name is beside its line."""
LEADING = 1.4
"""Height of a line of text, in sizes of its font."""
FIRST_ARM, ARM_STEP, ROOM = 1.3, 1.15, 1.15
"""Where intervals stand behind the end of the curve, and how far the axis goes on, as factors."""


@dataclass(frozen=True)
class GainLine:
    """A gain as a horizontal line, in points, and what is written at its end."""

    name: str
    value: float
    colour: str
    interval: tuple[float, float] | None = None
    style: Any = "solid"
    is_strong: bool = False

    @property
    def label(self) -> str:
        number = f"{self.value:+.1f}".replace("-", "\N{MINUS SIGN}")
        return f"{label_of(self.name)}  {number if float(f'{self.value:.1f}') else '0'}"


@dataclass(frozen=True)
class GainFigure:
    """The policies of a family beside what there was to win in it."""

    KINDS: ClassVar[tuple[Literal["svg", "png"], ...]] = ("svg", "png")
    title: ClassVar[str] = "Gain against trainings spent on a task"
    alternative: ClassVar[str] = (
        "Score points above no growth against trainings spent on a task: random search as a curve, every policy that "
        "decides without search as a line, with 95 % intervals"
    )

    family: FamilySummary
    prize: Prize
    reference: str

    def draw(self, kind: Literal["svg", "png"]) -> bytes | None:
        """An image file, the same bytes for the same numbers; None if matplotlib is not installed."""
        return drawn(self._draw_in, (WIDTH, max(LEAST_HEIGHT, LEVEL_HEIGHT * (len(self._policies()) + 8))), kind)

    def _policies(self) -> list[PolicyGain]:
        """Those that do not search."""
        return [each for each in self.family.policies if not each.policy.startswith(SEARCH)]

    def _draw_in(self, figure: "Figure") -> None:
        axes = figure.add_subplot()
        levels = sorted(self._levels(), key=lambda level: level.value)
        ends = _ends(levels)
        self._draw_search(axes)
        for level, end in zip(levels, ends, strict=True):
            _draw_level(axes, level, end)
        _scale(axes, max(ends) * ROOM)
        self._draw_crossings(axes, levels)
        figure.draw_without_rendering()  # only then do the axes have their height
        _write_labels(axes, levels, ends)

    def _levels(self) -> Iterator[GainLine]:
        """All that is named at the right."""
        yield GainLine(CONTROL, 0.0, CONTROL_LOOK[0])
        yield GainLine("random search", 100 * self.prize.search[-1].value, SEARCH_COLOUR, style="none")
        yield _level("oracle", self.prize.oracle, ORACLE_COLOUR, style=(0, (5, 3)))
        looks = product(STYLES, OTHERS)
        for each in self._policies():
            is_reference = each.policy == self.reference
            style, colour = ("solid", REFERENCE_LOOK[0]) if is_reference else next(looks, (STYLES[-1], OTHERS[-1]))
            yield _level(each.policy, each.score, colour, style=style, is_strong=is_reference)

    def _draw_search(self, axes: "Axes") -> None:
        counts = range(1, MOST_TRAININGS + 1)
        value, low, high = (
            [100 * getattr(each, end) for each in self.prize.search] for end in ("value", "low", "high")
        )
        axes.fill_between(counts, low, high, color=SEARCH_COLOUR, alpha=0.13, linewidth=0, zorder=1)
        axes.plot(counts, value, color=SEARCH_COLOUR, linewidth=2.6, zorder=5)

    def _draw_crossings(self, axes: "Axes", levels: Sequence[GainLine]) -> None:
        """A dot where search has gained as much as a policy, above the number of trainings."""
        worth = {each.policy: each.trainings.value for each in self._policies() if each.trainings is not None}
        for level in levels:
            if 1 <= worth.get(level.name, 0) <= MOST_TRAININGS:
                look: dict[str, Any] = {"markeredgecolor": "white", "markeredgewidth": 1.2, "markersize": 9}
                axes.plot(worth[level.name], level.value, "o", color=level.colour, zorder=7, **look)
                axes.vlines(
                    worth[level.name], axes.get_ylim()[0], level.value, level.colour, "dotted", linewidth=1.2, zorder=2
                )


def _level(name: str, gain: Estimate, colour: str, **look: Any) -> GainLine:
    return GainLine(name, 100 * gain.value, colour, (100 * gain.low, 100 * gain.high), **look)


def _ends(levels: Sequence[GainLine]) -> list[float]:
    """How far each line goes: those with an interval to a place of their own behind the curve."""
    arms = (MOST_TRAININGS * FIRST_ARM * ARM_STEP**place for place in range(len(levels)))
    return [MOST_TRAININGS if level.interval is None else next(arms) for level in levels]


def _draw_level(axes: "Axes", level: GainLine, end: float) -> None:
    width = 2.4 if level.is_strong else 1.7
    axes.plot([1, end], [level.value] * 2, color=level.colour, linewidth=width, linestyle=level.style, zorder=4)
    if level.interval is not None:
        axes.plot([end] * 2, level.interval, color=level.colour, linewidth=width, zorder=4)
        axes.plot(end, level.value, "o", color=level.colour, markersize=5.5, zorder=6)


def _scale(axes: "Axes", right: float) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

    axes.set_xscale("log", base=2)
    axes.set_xlim(1, right)
    axes.xaxis.set_major_locator(FixedLocator([2**power for power in range(MOST_TRAININGS.bit_length())]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:.0f}"))
    axes.axvspan(MOST_TRAININGS, right, color="#f6f6f6", zorder=0)
    below: dict[str, Any] = {"ha": "center", "va": "top", "color": "#666666", "fontsize": 9.5}
    axes.text(
        math.sqrt(MOST_TRAININGS * right), -0.02, "95 %\nintervals", transform=axes.get_xaxis_transform(), **below
    )
    middle = math.log(MOST_TRAININGS) / math.log(right) / 2
    axes.set_xlabel("trainings spent on the task (log scale)", x=middle)
    axes.set_ylabel("score points above no growth")
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.margins(y=0.06)
    axes.set_ylim(axes.get_ylim())


def _write_labels(axes: "Axes", levels: Sequence[GainLine], ends: Sequence[float]) -> None:
    """Right of the axes, each as near to its line as the others let it."""
    bottom, top = axes.get_ylim()
    height = axes.bbox.height / axes.figure.dpi * 72
    places = spread([level.value for level in levels], FONT * LEADING * (top - bottom) / height, bottom, top)
    right = axes.get_xlim()[1]
    for level, end, place in zip(levels, ends, places, strict=True):
        line: dict[str, Any] = {"color": level.colour, "linewidth": 0.8, "alpha": 0.7, "clip_on": False}
        axes.plot([end, right, right * 1.06], [level.value, place, place], zorder=3, **line)
        weight = "bold" if level.is_strong else "normal"
        where: dict[str, Any] = {"va": "center", "clip_on": False, "fontsize": FONT, "fontweight": weight}
        axes.text(right * 1.09, place, level.label, color=_ink(level.colour), **where)


def _ink(colour: str) -> tuple[float, ...]:
    """The colour, dark enough to be read."""
    from matplotlib.colors import to_rgb

    return tuple(INK * part for part in to_rgb(colour))


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Rising places, moved as little as it takes to be `gap` apart, and within `low` and `high` if there is room.

    >>> spread([0.0, 0.0, 5.0], gap=1.0, low=-9.0, high=9.0)
    [-0.5, 0.5, 5.0]
    """
    steps = gap * np.arange(len(places))
    moved = isotonic_regression(np.asarray(places) - steps).x
    return [float(place) for place in np.clip(moved, low, max(low, high - steps[-1])) + steps]
