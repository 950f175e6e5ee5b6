"""Events of every type, and logs to read."""

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from esper.contracts import Event, Stage, StageChanged
from esper.telemetry import (
    DecisionMade,
    EpisodeFinished,
    EventLog,
    HeadFigures,
    RewardPaid,
    RoundFinished,
    RunStarted,
    UpdateMade,
)
from esper.telemetry.events import EVENTS

RECORDED = Path(__file__).parent / "recorded"
"""The directory of a run: two rounds, the second played again after a crash, then an event of every type it lacked.

Its log was written by version 0.1.0, before events were read by msgspec, but for the EpisodeStarted at its end.
"""
LEAVES = {
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(),
    str: st.text(max_size=20),
    bool: st.booleans(),
    type(None): st.none(),
}


def values_of(annotation: Any) -> st.SearchStrategy[Any]:
    """Anything that the annotation allows."""
    if annotation in LEAVES:
        return LEAVES[annotation]
    arguments = get_args(annotation)
    if get_origin(annotation) is tuple:
        return st.lists(values_of(arguments[0]), max_size=4).map(tuple)
    if get_origin(annotation) is dict:
        return st.dictionaries(values_of(arguments[0]), values_of(arguments[1]), max_size=4)
    if arguments:
        return st.one_of(*map(values_of, arguments))
    if issubclass(annotation, Enum):
        return st.sampled_from(annotation)
    hints = get_type_hints(annotation)
    return st.builds(annotation, **{each.name: values_of(hints[each.name]) for each in fields(annotation)})


ONE_OF_EACH = st.tuples(*map(values_of, EVENTS.values()))
HEADS = ("op", "slot", "blueprint", "style", "tempo", "alpha_target", "alpha_speed", "alpha_curve")
HEAD = HeadFigures(steps=50, entropy=0.6, gradient_norm=0.1, lowest_ratio=0.5, highest_ratio=2.0, kl=0.02)
UPDATE = UpdateMade(
    policy_loss=-0.02, value_loss=0.3, kl=0.01, clipped=0.05, gradient_norm=0.5, advantage_mean=0.0,
    advantage_deviation=0.1, return_mean=0.4, return_deviation=0.2, explained_variance=0.5, value_error=0.12,
    bellman_error=0.05, steps=600,
    forced_steps=50, optimiser_steps=20, skipped_steps=0, stopped_early=False, heads=dict.fromkeys(HEADS, HEAD),
    seconds=1.0, anchor_kl=0.03,
)  # fmt: skip
STARTED = RunStarted("0.1.0", ("digits", "rösti"), 3, 2, 7, "twin", "process", 2, "cpu")


def in_sql(value: Any) -> Any:
    """As SQL gives it back."""
    if is_dataclass(value):
        return {each.name: in_sql(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, tuple):
        return [in_sql(each) for each in value]
    if isinstance(value, dict):
        return {key: in_sql(each) for key, each in value.items()}
    return value.name if isinstance(value, Enum) else value


def log_of(directory: Path, *written: tuple[int, int | None, Iterable[Event]]) -> Path:
    """A log with these batches of (round, episode, events)."""
    path = directory / "events.jsonl"
    with EventLog(path) as log:
        for round_number, episode, events in written:
            log.write_all(events, round_number, episode)
    return path


def decision(epoch: int, op: str, **heads: Any) -> DecisionMade:
    unused = dict.fromkeys(("slot", "blueprint", "style", "tempo", "alpha_target", "alpha_speed", "alpha_curve"))
    given = {"forced": False, "refused": (), "value": 0.5, "probabilities": {}, **unused, **heads}
    return DecisionMade(epoch, op, **given)


def finished(**changed: Any) -> EpisodeFinished:
    given: dict[str, Any] = {
        "task": "digits", "policy": "learned", "purpose": "train", "total": 0.5, "quality": 0.9, "twin_quality": 0.8,
        "growth": 1.5, "fossilized": 1, "epochs": 9, "forced": 2, "ops": {"WAIT": 5}, "panic": None, "seconds": 1.5,
    }  # fmt: skip
    return EpisodeFinished(**(given | changed))


def round_finished(total: float) -> RoundFinished:
    return RoundFinished(total, 0.9, 0.1, 1.5, 0.25, 0.5, {"WAIT": 0.5, "PRUNE": 0.5}, 0, 2.0, 1.0)


def stem_from(epoch: int, before: Stage, after: Stage) -> StageChanged:
    return StageChanged(epoch, "stem", before, after, ("because",))


def episode(**ending: Any) -> list[Event]:
    """In one slot a seed is pruned, and a second one is kept; its first blending is taken back once."""
    return [
        stem_from(0, Stage.DORMANT, Stage.GERMINATED),
        decision(0, "GERMINATE", slot="stem", blueprint="norm", style="GATED", tempo="FAST", alpha_target="FULL"),
        RewardPaid(0, 0.0, {"rent": -0.1, "gain_over_twin": 0.1}, 0.5, 1.0, 1.1, {"stem": 0.01}),
        stem_from(1, Stage.GERMINATED, Stage.PRUNED),
        decision(1, "PRUNE", slot="stem"),
        RewardPaid(1, 0.0, {}, 0.5, 1.0, 1.0),
        stem_from(2, Stage.PRUNED, Stage.EMBARGOED),
        stem_from(3, Stage.EMBARGOED, Stage.RESETTING),
        stem_from(4, Stage.RESETTING, Stage.DORMANT),
        decision(4, "GERMINATE", slot="stem", blueprint="attention", refused=("the slot was cooling",)),
        stem_from(5, Stage.DORMANT, Stage.GERMINATED),
        decision(5, "GERMINATE", slot="stem", blueprint="conv", style="GATED", tempo="SLOW", alpha_target="HALF"),
        stem_from(6, Stage.GERMINATED, Stage.TRAINING),
        stem_from(7, Stage.TRAINING, Stage.BLENDING),
        RewardPaid(7, 0.0, {}, 0.6, 1.0, 1.2, {"stem": 0.02}),
        stem_from(8, Stage.BLENDING, Stage.HOLDING),
        stem_from(9, Stage.HOLDING, Stage.BLENDING),
        stem_from(10, Stage.BLENDING, Stage.HOLDING),
        RewardPaid(10, 0.0, {}, 0.7, 1.0, 1.2, {"stem": 0.03}),
        stem_from(11, Stage.HOLDING, Stage.FOSSILIZED),
        finished(**ending),
    ]
