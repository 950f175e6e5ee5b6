"""A picture of one episode: the stages of every slot, alpha, and quality beside that of the twin."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from esper.contracts import ACCURACY, Event, Metric, SlotId, Stage
from esper.telemetry import DecisionMade, RewardPaid, spans

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {
    Stage.GERMINATED: "#cfe8cf",
    Stage.TRAINING: "#9fd09f",
    Stage.BLENDING: "#f2c14e",
    Stage.HOLDING: "#e58f3a",
    Stage.FOSSILIZED: "#8c564b",
    Stage.PRUNED: "#bbbbbb",
    Stage.EMBARGOED: "#dddddd",
    Stage.RESETTING: "#eeeeee",
}
"""A dormant slot is left white."""


@dataclass(frozen=True)
class EpisodeStory:
    """An episode in the terms of a picture. Curves have one number per epoch."""

    title: str
    horizon: int
    slots: tuple[SlotId, ...]
    events: tuple[Event, ...]
    alphas: Sequence[Mapping[SlotId, float]]
    twin: Sequence[float]
    metric: Metric = ACCURACY


def draw_episode(story: EpisodeStory, out: Path) -> bool:
    """Draw the episode as a PNG; False if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure  # an extra: playing does without it
    except ImportError:
        return False
    figure = Figure(figsize=(9, 3.2 + 0.55 * len(story.slots)), layout="constrained")
    axes, slots = figure.subplots(2, 1, sharex=True, height_ratios=[2.4, 0.55 * len(story.slots) + 0.4])
    _draw_quality(axes, story)
    _draw_slots(slots, story)
    figure.savefig(out, dpi=140)
    return True


def _draw_quality(axes: "Axes", story: EpisodeStory) -> None:
    paid = [event for event in story.events if isinstance(event, RewardPaid)]
    grown, twin = _told(story, [each.quality for each in paid]), _told(story, story.twin)
    metric, label = story.metric, "evaluation quality (%)"
    axes.plot([each.epoch + 1 for each in paid], grown, color="#c8102e", label="grown")
    axes.plot(range(len(twin)), twin, color="#1a1a1a", ls="--", label="no growth")
    axes.set_ylabel(label if metric == ACCURACY else f"evaluation {metric.name} ({metric.unit})".removesuffix(" ()"))
    axes.set_title(story.title, fontsize=11)
    growth = axes.twinx()
    growth.step([each.epoch + 1 for each in paid], [each.growth for each in paid], where="post", color="#0072b2", lw=1)
    growth.set_ylabel("parameters / host's", color="#0072b2")
    growth.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="upper left" if metric.higher_is_better else "upper right", fontsize=9)


def _told(story: EpisodeStory, qualities: Sequence[float]) -> list[float]:
    """As the metric tells them; accuracies in percent."""
    return [100 * each if story.metric == ACCURACY else story.metric.score(each) for each in qualities]


def _draw_slots(axes: "Axes", story: EpisodeStory) -> None:
    """A band per slot, coloured by stage, with alpha as a line in it and the blueprint where it was planted."""
    for span in spans(story.events, story.horizon):
        row = story.slots.index(span.slot)
        axes.barh(row, span.end - span.begin, left=span.begin, height=0.8, color=COLOURS[span.stage])
    for row, slot in enumerate(story.slots):
        heights = [row + 0.4 - 0.8 * alphas.get(slot, 0.0) for alphas in story.alphas]
        axes.step(range(len(heights)), heights, where="post", color="#333333", lw=0.9)
    for event in story.events:
        if isinstance(event, DecisionMade) and event.op == "GERMINATE" and event.slot in story.slots:
            where = (event.epoch + 0.15, story.slots.index(event.slot))
            axes.annotate(str(event.blueprint), where, va="center", fontsize=8)
    axes.set_yticks(range(len(story.slots)), story.slots)
    axes.set_ylim(len(story.slots) - 0.5, -0.5)
    axes.set_xlim(0, story.horizon)
    axes.set_xlabel("epoch")
    used = dict.fromkeys(span.stage for span in spans(story.events, story.horizon))
    for stage in used:
        axes.bar(0, 0, color=COLOURS[stage], label=stage.name.lower())
    axes.plot([], [], color="#333333", lw=0.9, label="alpha, 0 to 1")
    axes.legend(frameon=False, fontsize=8, ncols=len(used) + 1, loc="upper center", bbox_to_anchor=(0.5, -0.32))
