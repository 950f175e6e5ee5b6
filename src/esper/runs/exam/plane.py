"""Quality against a cost as a picture: a dot per seed, means with intervals, and the front."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any, Literal

from esper.contracts import UNITS
from esper.runs.exam.drawing import CONTROL_LOOK, MARKERS, OTHERS, REFERENCE_LOOK, drawn, label_of
from esper.runs.exam.statistics import Estimate, rows_of
from esper.runs.exam.summary import CONTROL, PolicySummary, Section
from esper.telemetry.exam_row import ExamRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COSTS = {"parameters": "parameters", "training_flops": "training FLOPs"}
"""Fields of a row, and what they are called."""
EDGE: dict[str, Any] = {"markeredgecolor": "white", "markeredgewidth": 0.9}
NARROW = 4.0
"""A log axis that spans less than this factor is ticked like a plain one."""


@dataclass(frozen=True)
class Plane:
    """The policies of a task in a plane: what they are judged by against one of `COSTS`."""

    cost: str
    section: Section
    rows: Sequence[ExamRow]
    """Of any tasks."""
    reference: str

    @property
    def label(self) -> str:
        return COSTS[self.cost]

    @property
    def title(self) -> str:
        return f"{self.judged_by.capitalize()} against {self.label}"

    @property
    def judged_by(self) -> str:
        """The metric that all is judged by, or quality."""
        return self.section.judged_by or "quality"

    @property
    def _lower_is_better(self) -> bool:
        return self.section.judged_by in UNITS

    def _told(self, row: ExamRow) -> float:
        return row.told if self._lower_is_better else 100 * row.quality

    def _mean_told(self, each: PolicySummary) -> tuple[float, list[list[float]]]:
        """The mean, and how far its interval goes."""
        if self._lower_is_better:
            return each.told.value, _arms(each.told, 1)
        return 100 * each.quality.value, _arms(each.quality, 100)

    def draw(self, kind: Literal["svg", "png"]) -> bytes | None:
        """An image file, the same bytes for the same plane; None if matplotlib is not installed."""
        rows_of_legend = (len(self.section.policies) + 2) // 2
        return drawn(self._draw_in, (5.6, 4.3 + 0.27 * rows_of_legend), kind)

    def _draw_in(self, figure: "Figure") -> None:
        self._draw_on(figure.add_subplot())
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=11, handletextpad=0.3)

    def _draw_on(self, axes: "Axes") -> None:
        looks = zip(cycle(OTHERS), cycle(MARKERS), strict=False)
        special = {CONTROL: CONTROL_LOOK, self.reference: REFERENCE_LOOK}
        for each in self.section.policies:
            self._draw_policy(axes, each, *(special.get(each.policy) or next(looks)))
        self._draw_front(axes)
        self._scale(axes)
        axes.set_xlabel(f"{self.label} (log scale)" if axes.get_xscale() == "log" else self.label)
        axes.set_ylabel(f"test {self.judged_by}" if self._lower_is_better else f"test {self.judged_by} (%)")
        axes.grid(color="#e6e6e6", linewidth=0.8)
        axes.set_axisbelow(True)

    def _own(self, policy: str) -> list[ExamRow]:
        return rows_of([row for row in self.rows if row.task == self.section.title], policy)

    def _mean(self, each: PolicySummary) -> Estimate:
        """Of the cost."""
        return each.parameters if self.cost == "parameters" else each.training_flops

    def _draw_policy(self, axes: "Axes", each: PolicySummary, colour: str, marker: str) -> None:
        own, is_reference, cost = self._own(each.policy), each.policy == self.reference, self._mean(each)
        costs, qualities = [getattr(row, self.cost) for row in own], [self._told(row) for row in own]
        axes.scatter(costs, qualities, s=13, marker=marker, color=colour, alpha=0.33, linewidths=0, zorder=2)
        told, arm = self._mean_told(each)
        mean, order = (cost.value, told), 6 if is_reference else 4
        arms: dict[str, Any] = {"xerr": _arms(cost, 1), "yerr": arm}
        axes.errorbar(*mean, **arms, fmt="none", ecolor=colour, elinewidth=2, capsize=3, zorder=order)
        size = 12.5 if is_reference else 10.5
        axes.plot(*mean, marker, color=colour, markersize=size, label=label_of(each.policy), zorder=order + 1, **EDGE)

    def _draw_front(self, axes: "Axes") -> None:
        """A staircase: the best that is had, on average, at no more than a cost. It goes on to the right edge."""
        front: list[tuple[float, float]] = []
        sign = -1 if self._lower_is_better else 1
        means = ((self._mean(each).value, self._mean_told(each)[0]) for each in self.section.policies)
        for cost, told in sorted(means, key=lambda mean: (mean[0], -sign * mean[1])):
            if not front or sign * told > sign * front[-1][1]:
                front.append((cost, told))
        costs, qualities = zip(*front, (10 * max(self._costs()), front[-1][1]), strict=True)
        style: dict[str, Any] = {"color": "#555555", "linewidth": 1.4, "linestyle": (0, (4, 2)), "zorder": 3}
        axes.step(costs, qualities, where="post", label="front of the means", **style)

    def _costs(self) -> list[float]:
        """All that must fit on the axis."""
        means = [self._mean(each) for each in self.section.policies]
        seeds = [float(getattr(row, self.cost)) for each in self.section.policies for row in self._own(each.policy)]
        return [*seeds, *(end for mean in means for end in (mean.low, mean.high))]

    def _scale(self, axes: "Axes") -> None:
        """A log axis with ticks that read as numbers; a plain one if something costs nothing."""
        from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullLocator

        low, high = min(self._costs()), max(self._costs())
        if low <= 0:
            axes.set_xlim(left=-0.05 * (high or 1), right=1.05 * (high or 1))
        else:
            room = max((high / low) ** 0.07, 1.03)
            axes.set_xscale("log")
            axes.set_xlim(low / room, high * room)
            is_narrow = high / low < NARROW
            axes.xaxis.set_major_locator(MaxNLocator(5) if is_narrow else LogLocator(subs=(1, 2, 5), numticks=99))
            axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(EngFormatter())


def _arms(number: Estimate, scale: float) -> list[list[float]]:
    """How far the interval goes down and up."""
    return [[max(0.0, scale * (number.value - number.low))], [max(0.0, scale * (number.high - number.value))]]
