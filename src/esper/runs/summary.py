"""Figures of a round, an evaluation and an update."""

from collections.abc import Sequence
from typing import Any

from esper.rl import UpdateMetrics
from esper.telemetry import EpisodeFinished, EvaluationMade, HeadFigures, RoundFinished, UpdateMade, interval, mean


def summarise(finished: Sequence[EpisodeFinished], seconds: float) -> RoundFinished:
    """Means over the episodes of a round."""
    epochs = sum(each.epochs for each in finished)
    ops: dict[str, int] = {}
    for each in finished:
        for op, count in each.ops.items():
            ops[op] = ops.get(op, 0) + count
    free = sum(ops.values())
    return RoundFinished(
        total=mean([each.total for each in finished]),
        quality=mean([each.quality for each in finished]),
        gain=mean_gain(finished),
        growth=mean([each.growth for each in finished]),
        forced_share=sum(each.forced for each in finished) / epochs,
        waiting_share=ops.get("WAIT", 0) / free if free else None,
        ops={op: count / free for op, count in ops.items()},
        rollbacks=sum(each.panic is not None for each in finished),
        seconds=seconds,
        episodes_per_second=len(finished) / max(seconds, 1e-9),
    )


def evaluated(finished: Sequence[EpisodeFinished], best: float | None) -> EvaluationMade:
    """Means and the 95 % interval of the mean return, from Student's distribution."""
    totals = [each.total for each in finished]
    low, high = interval(totals)
    tasks = dict.fromkeys(each.task for each in finished)
    total = mean(totals)
    return EvaluationMade(
        total=total,
        low=low,
        high=high,
        quality=mean([each.quality for each in finished]),
        gain=mean_gain(finished),
        growth=mean([each.growth for each in finished]),
        by_task={task: mean([each.total for each in finished if each.task == task]) for task in tasks},
        best=best is None or total > best,
    )


def mean_gain(finished: Sequence[EpisodeFinished]) -> float | None:
    """Quality over the twins'; None without twins."""
    gains = [each.quality - each.twin_quality for each in finished if each.twin_quality is not None]
    return mean(gains) if gains else None


def update_event(metrics: UpdateMetrics, seconds: float) -> UpdateMade:
    """The metrics of the learner, as an event."""
    figures: dict[str, Any] = {name: value for name, value in vars(metrics).items() if name != "heads"}
    heads = {name: HeadFigures(**vars(head)) for name, head in metrics.heads.items()}
    return UpdateMade(**figures, heads=heads, seconds=seconds)
