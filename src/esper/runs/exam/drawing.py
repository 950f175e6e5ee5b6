"""The planes of an exam as pictures: a dot per seed, means with intervals, and the front."""

import io
import warnings
from itertools import cycle
from typing import TYPE_CHECKING, Any, Literal

from esper.runs.exam.findings import Plane, PlaneDot
from esper.runs.exam.statistics import Estimate
from esper.runs.exam.wording import with_prefix

if TYPE_CHECKING:
    from matplotlib.axes import Axes

REFERENCE, CONTROL = ("#c8102e", "o"), ("#1a1a1a", "s")
OTHERS = ("#0072b2", "#e69f00", "#009e73", "#8e44ad", "#56b4e9", "#8c564b", "#d55e9e", "#7f7f7f")
MARKERS = ("^", "D", "v", "P", "h", "<", "X", ">", "p")
"""Colours that stay apart for the colour-blind; there are more markers than colours, so pairs repeat late."""
STYLE: dict[Any, Any] = {
    "font.size": 12,
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same picture everywhere
    "text.parse_math": False,  # a policy's name may hold dollars
    "text.usetex": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "esper exam",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#777777",
    "axes.labelcolor": "#222222",
    "xtick.color": "#444444",
    "ytick.color": "#444444",
}
LABEL_LENGTH = 30
NARROW = 4.0
"""A log axis that spans less than this factor is ticked like a plain one."""


def draw_plane(plane: Plane, kind: Literal["svg", "png"] = "svg") -> bytes | None:
    """The plane as an image file, the same bytes for the same plane; None if matplotlib is not installed."""
    try:
        import matplotlib as mpl  # an extra: exams do without it
        from matplotlib.figure import Figure
    except ImportError:
        return None
    file = io.BytesIO()
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # names may be in any script
        rows_of_legend = (len(plane.dots) + 2) // 2
        figure = Figure(figsize=(5.6, 4.3 + 0.27 * rows_of_legend), layout="constrained")
        axes = figure.add_subplot()
        looks = zip(cycle(OTHERS), cycle(MARKERS), strict=False)
        for dot in plane.dots:
            _draw_dot(axes, dot, *(REFERENCE if dot.is_reference else CONTROL if dot.is_control else next(looks)))
        _draw_front(axes, plane)
        _scale(axes, plane)
        axes.set_xlabel(f"{plane.cost} (log scale)" if axes.get_xscale() == "log" else plane.cost)
        axes.set_ylabel("test accuracy (%)")
        axes.grid(color="#e6e6e6", linewidth=0.8)
        axes.set_axisbelow(True)
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=11, handletextpad=0.3)
        figure.savefig(file, format=kind, dpi=160, metadata={"Date": None} if kind == "svg" else None)
    return file.getvalue()


def _draw_dot(axes: "Axes", dot: PlaneDot, colour: str, marker: str) -> None:
    accuracies = [100 * each for each in dot.accuracies]
    axes.scatter(dot.costs, accuracies, s=13, marker=marker, color=colour, alpha=0.33, linewidths=0, zorder=2)
    mean, order = (dot.cost.value, 100 * dot.accuracy.value), 6 if dot.is_reference else 4
    axes.errorbar(
        *mean,
        xerr=_arms(dot.cost, 1),
        yerr=_arms(dot.accuracy, 100),
        fmt="none",
        ecolor=colour,
        elinewidth=2,
        capsize=3,
        zorder=order,
    )
    axes.plot(
        *mean,
        marker=marker,
        markersize=12.5 if dot.is_reference else 10.5,
        markeredgecolor="white",
        markeredgewidth=0.9,
        color=colour,
        linestyle="none",
        label=_label(dot.policy),
        zorder=order + 1,
    )


def _arms(number: Estimate, scale: float) -> list[list[float]]:
    """How far the interval goes down and up."""
    return [[max(0.0, scale * (number.value - number.low))], [max(0.0, scale * (number.high - number.value))]]


def _label(policy: str) -> str:
    """A name that fits a legend. The middle of a long one is left out: the ends of paths tell more."""
    name = "".join(each if each.isprintable() else " " for each in policy)
    if len(name) > LABEL_LENGTH:
        name = f"{name[: LABEL_LENGTH // 2 - 1]}…{name[-LABEL_LENGTH // 2 :]}"
    return f" {name}" if name.startswith("_") else name  # matplotlib leaves out labels that start with a low line


def _draw_front(axes: "Axes", plane: Plane) -> None:
    """A staircase: the best accuracy, on average, at no more than a cost. It goes on to the right edge."""
    front = sorted((dot.cost.value, 100 * dot.accuracy.value) for dot in plane.dots if dot.is_on_front)
    farthest = max(cost for dot in plane.dots for cost in (*dot.costs, dot.cost.high))
    steps = [*front, (10 * farthest, front[-1][1])]
    axes.step(
        [cost for cost, _ in steps],
        [accuracy for _, accuracy in steps],
        where="post",
        color="#555555",
        linewidth=1.4,
        linestyle=(0, (4, 2)),
        label="front of the means",
        zorder=3,
    )


def _scale(axes: "Axes", plane: Plane) -> None:
    """A log axis with ticks that read as numbers; a plain one if something costs nothing."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    costs = [cost for dot in plane.dots for cost in (*dot.costs, dot.cost.low, dot.cost.high)]
    low, high = min(costs), max(costs)
    if low <= 0:
        axes.set_xlim(left=-0.05 * (high or 1), right=1.05 * (high or 1))
    else:
        room = max((high / low) ** 0.07, 1.03)
        axes.set_xscale("log")
        axes.set_xlim(low / room, high * room)
        is_narrow = high / low < NARROW
        axes.xaxis.set_major_locator(MaxNLocator(5) if is_narrow else LogLocator(subs=(1, 2, 5), numticks=99))
        axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda cost, _: tick(cost)))


def tick(cost: float) -> str:
    """The cost as short as a tick can be.

    >>> tick(2000.0), tick(1.25e9), tick(0.0)
    ('2 k', '1.25 G', '0')
    """
    digits, _, prefix = with_prefix(cost).partition(" ")
    return f"{digits.rstrip('0').rstrip('.') if '.' in digits else digits} {prefix}".strip()
