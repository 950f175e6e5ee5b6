"""A picture of a run: how the controller learned, and what it is worth beside the controls."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from esper.telemetry import EpisodeFinished, EvaluationMade, RoundFinished, effective, read_log

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {"greedy": "#d1495b", "heuristic": "#30638e", "random": "#8d96a3", "none": "#222222"}
LABELS = {"greedy": "learned", "none": "no growth"}


def draw_run(events: Path, out: Path) -> bool:
    """Draw the run of an event log as a PNG; False if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure  # an extra: training does without it
    except ImportError:
        return False
    told = read_log(events, only=(RoundFinished, EvaluationMade, EpisodeFinished))
    records = effective(each for each in told if getattr(each.event, "purpose", "compare") == "compare")
    rounds = [(each.round + 1, each.event) for each in records if isinstance(each.event, RoundFinished)]
    evaluations = [(each.round + 1, each.event) for each in records if isinstance(each.event, EvaluationMade)]
    compared = [each.event for each in records if isinstance(each.event, EpisodeFinished)]
    figure = Figure(figsize=(11 if compared else 6, 4.2), layout="constrained")
    learning, *worth = figure.subplots(1, 2 if compared else 1, squeeze=False)[0]
    learning.plot([at for at, _ in rounds], [each.total for _, each in rounds], color="#d1495b", label="training")
    learning.errorbar(
        [at for at, _ in evaluations],
        [each.total for _, each in evaluations],
        yerr=[[each.total - each.low for _, each in evaluations], [each.high - each.total for _, each in evaluations]],
        fmt="o",
        color="#30638e",
        capsize=3,
        label="greedy, evaluation seeds (95 %)",
    )
    learning.set(xlabel="round", ylabel="return (mean)", title="learning")
    learning.legend(frameon=False)
    for axes in worth:
        _scatter(axes, compared)
    figure.savefig(out, dpi=130)
    return True


def _scatter(axes: "Axes", compared: Sequence[EpisodeFinished]) -> None:
    """One dot per held-out seed and policy, a large one for the mean."""
    for policy in dict.fromkeys(each.policy for each in compared):
        rows = [each for each in compared if each.policy == policy]
        growth, quality = [each.growth for each in rows], [each.quality * 100 for each in rows]
        colour = COLOURS.get(policy, "#66a182")
        axes.scatter(growth, quality, s=14, alpha=0.5, color=colour)
        mean = (sum(growth) / len(rows), sum(quality) / len(rows))
        axes.scatter(*mean, s=90, color=colour, edgecolor="white", label=LABELS.get(policy, policy), zorder=3)
    axes.set(xlabel="parameters / host parameters", ylabel="evaluation quality (%)", title="held-out seeds")
    axes.set_xscale("log")
    axes.legend(frameon=False, loc="best")
