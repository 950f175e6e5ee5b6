"""Random configurations and moments within all that is allowed, and a few plain ones."""

import itertools
import math
from dataclasses import fields, replace

from hypothesis import strategies as st

from esper.contracts import (
    RULES,
    WAIT,
    Action,
    AlphaMode,
    HostSnapshot,
    Op,
    SlotSnapshot,
    Snapshot,
    Stage,
    Topology,
)
from esper.rewards import Ending, RewardConfig, Transition, Twin
from esper.rewards.config import LARGEST_PROXY_RATIO

CONFIG = RewardConfig(outcomes=10)
NAMES = "abcd"


def slot(name="a", stage=Stage.DORMANT, **facts):
    return SlotSnapshot(
        slot=name,
        topology=Topology.CNN,
        channels=8,
        position=0,
        blueprints=("norm",),
        stage=stage,
        **facts,
    )


def snapshot(*slots, quality=0.5, loss=1.0, host=100, total=None, epoch=5, horizon=25):
    total = host if total is None else total
    return Snapshot(HostSnapshot(epoch, horizon, host, total, evaluation_loss=loss, evaluation_quality=quality), slots)


def table(**qualities):
    """`table(none=0.2, a=0.5, ab=0.6)`: qualities by the letters of the seeds that are on."""
    return {frozenset("" if name == "none" else name): value for name, value in qualities.items()}


def step(before, after=None, action=WAIT, **rest):
    given = {"table_before": {}, "table_after": {}, **rest}
    return Transition(before, before if after is None else after, action, **given)


# Anything goes

NOT_FINITE = (math.nan, math.inf, -math.inf)
fractions = st.none() | st.sampled_from(NOT_FINITE) | st.floats(0.0, 1.0)
losses = st.none() | st.floats()


def _setting(setting):
    low, high = setting.metadata["range"]
    return st.integers(low, high) if setting.name == "outcomes" else st.sampled_from([low, high]) | st.floats(low, high)


@st.composite
def configs(draw):
    """Every setting anywhere in its range, then moved as little as the settings that go together ask for."""
    settings = {setting.name: draw(_setting(setting)) for setting in fields(RewardConfig)}
    most = LARGEST_PROXY_RATIO * settings["contribution_weight"]
    settings["shaping_weight"] = min(settings["shaping_weight"], most)
    settings["holding_grace_share"] = max(settings["holding_grace_share"], settings["legitimacy_share"])
    penalty = settings.pop("termination_penalty")
    deepest = RewardConfig(**settings, termination_penalty=100.0).deepest_potential
    return RewardConfig(**settings, termination_penalty=max(penalty, deepest))


@st.composite
def slots(draw, name):
    stage = draw(st.sampled_from(Stage))
    alpha = draw(st.just(0.0) | st.floats(0.0, 1.0) | st.just(math.nan)) if RULES[stage].holds_seed else 0.0
    return slot(
        name,
        stage,
        age=draw(st.integers(0, 1000)),
        alpha=alpha,
        alpha_target=draw(st.sampled_from([0.0, 0.5, 1.0])),
        alpha_mode=draw(st.sampled_from(AlphaMode)),
        parameters=draw(st.integers(0, 10**9)),
        gradient_norm=draw(losses),
        contribution=None if alpha == 0.0 else draw(losses),
        ready=stage is Stage.HOLDING and draw(st.booleans()),
    )


@st.composite
def snapshots(draw, names):
    host = draw(st.integers(0, 10**12))
    return Snapshot(
        HostSnapshot(
            epoch=draw(st.integers(0, 1000)),
            horizon=draw(st.integers(0, 1000)),
            parameters=host,
            total_parameters=draw(st.integers(0, 10**400)),
            train_loss=draw(losses),
            evaluation_loss=draw(losses),
            evaluation_quality=draw(fractions),
            gradient_norm=draw(losses),
        ),
        tuple(draw(slots(name)) for name in names),
    )


@st.composite
def tables(draw, names):
    """Nothing, every coalition, or only those that the contract promises."""
    if draw(st.integers(0, 4)) == 0:
        return {}
    full = draw(st.sets(st.sampled_from(names))) if names else set()
    sizes = range(len(full) + 1) if draw(st.booleans()) else {0, max(0, len(full) - 1), len(full)}
    coalitions = [frozenset(some) for size in sizes for some in itertools.combinations(sorted(full), size)]
    qualities = st.floats(0.0, 1.0) if draw(st.booleans()) else st.floats(0.0, 1.0) | st.sampled_from(NOT_FINITE)
    return {coalition: draw(qualities) for coalition in coalitions}


twins = st.builds(Twin, fractions, losses)
actions = st.builds(Action, st.sampled_from(Op), slot=st.just("a"), blueprint=st.just("norm"))


@st.composite
def transitions(draw, ending=None):
    names = NAMES[: draw(st.integers(0, len(NAMES)))]
    return Transition(
        draw(snapshots(names)),
        draw(snapshots(names)),
        draw(actions),
        draw(tables(names)),
        draw(tables(names)),
        draw(twins),
        draw(twins),
        draw(st.sampled_from(Ending)) if ending is None else ending,
    )


@st.composite
def walks(draw):
    """Steps that follow each other: each starts where the one before ended. The last one ends at the horizon."""
    names = NAMES[: draw(st.integers(0, len(NAMES)))]
    length = draw(st.integers(1, 6))
    moments = [(draw(snapshots(names)), draw(tables(names)), draw(twins)) for _ in range(length + 1)]
    steps = [
        Transition(one[0], two[0], draw(actions), one[1], two[1], one[2], two[2])
        for one, two in itertools.pairwise(moments)
    ]
    return [*steps[:-1], replace(steps[-1], ending=Ending.TRUNCATED)]
