"""Every op in every stage, and each gate on both sides of each of its conditions."""

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esper.contracts import LEGAL_IN, RULES, Action, AlphaMode, Gate, Op, SlotSnapshot, Stage, Topology
from esper.growth import InvalidThresholds, Thresholds, judge

THRESHOLDS = Thresholds(horizon=25)
READY = SlotSnapshot(
    slot="stem",
    topology=Topology.CNN,
    channels=8,
    position=0,
    blueprints=("norm", "conv_heavy"),
    age=20,
    blueprint="norm",
    alpha=1.0,
    alpha_target=1.0,
    parameters=16,
    gradient_norm=0.1,
    contribution=0.2,
)
"""A slot that every gate would let pass."""


def act(op: Op) -> Action:
    return Action(op, "stem", blueprint="norm")


def test_op_passes_a_ready_slot_exactly_in_its_legal_stages():
    for op, stage in itertools.product(Op, Stage):
        verdict = judge(act(op), replace(READY, stage=stage), THRESHOLDS)
        assert bool(verdict) == (stage in LEGAL_IN[op]), (op, stage)
        assert verdict.reasons


REFUSALS = [
    (Gate.G2, Op.ADVANCE, Stage.TRAINING, {"age": 1}, "1 of at least 2 epochs"),
    (Gate.G2, Op.ADVANCE, Stage.TRAINING, {"gradient_norm": None}, "no gradient of the seed was measured"),
    (Gate.G2, Op.ADVANCE, Stage.TRAINING, {"gradient_norm": math.nan}, "nan"),
    (Gate.G2, Op.ADVANCE, Stage.TRAINING, {"gradient_norm": math.inf}, "inf"),
    (Gate.G2, Op.ADVANCE, Stage.TRAINING, {"gradient_norm": 0.0}, "dead"),
    (Gate.G1, Op.ADVANCE, Stage.GERMINATED, {"parameters": 0}, "empty"),
    (Gate.G3, Op.ADVANCE, Stage.BLENDING, {"alpha": 0.6, "alpha_mode": AlphaMode.RISING}, "still rising"),
    (Gate.G3, Op.ADVANCE, Stage.BLENDING, {"alpha_target": 0.0, "alpha_mode": AlphaMode.FALLING}, "being pruned"),
    (Gate.G5, Op.FOSSILIZE, Stage.HOLDING, {"contribution": None}, "not measured"),
    (Gate.G5, Op.FOSSILIZE, Stage.HOLDING, {"contribution": 0.009}, "below 0.01"),
    (Gate.G5, Op.FOSSILIZE, Stage.HOLDING, {"contribution": math.nan}, "nan"),
    (Gate.G5, Op.FOSSILIZE, Stage.HOLDING, {"anomalies": ("non-finite gradient",)}, "non-finite gradient"),
    (Gate.G5, Op.FOSSILIZE, Stage.HOLDING, {"age": 0}, "0 of at least 1 epochs"),
    (Gate.G5, Op.FOSSILIZE, Stage.HOLDING, {"alpha_mode": AlphaMode.FALLING}, "still falling"),
]


@pytest.mark.parametrize(("gate", "op", "stage", "change", "reason"), REFUSALS)
def test_gate_refuses_and_says_why(gate, op, stage, change, reason):
    verdict = judge(act(op), replace(READY, stage=stage, **change), THRESHOLDS)
    assert not verdict
    assert verdict.gate is gate
    assert any(reason in text for text in verdict.reasons), verdict.reasons


def test_germination_of_an_unknown_blueprint_gets_a_hint():
    verdict = judge(
        Action(Op.GERMINATE, "stem", blueprint="conv_hevy"), replace(READY, stage=Stage.DORMANT), THRESHOLDS
    )
    assert not verdict
    assert verdict.gate is Gate.G0
    assert "did you mean 'conv_heavy'?" in verdict.reasons[0]


@pytest.mark.parametrize("mode", AlphaMode)
def test_alpha_is_retargeted_only_while_it_stands_still(mode):
    verdict = judge(act(Op.SET_ALPHA_TARGET), replace(READY, stage=Stage.HOLDING, alpha_mode=mode), THRESHOLDS)
    assert bool(verdict) == (mode is AlphaMode.STILL)


def test_a_seed_is_not_pruned_twice():
    falling = replace(READY, stage=Stage.BLENDING, alpha_target=0.0, alpha_mode=AlphaMode.FALLING)
    assert judge(act(Op.PRUNE), falling, THRESHOLDS).reasons == ("already being pruned",)


@given(st.integers(1, 1000), st.integers(1, 10))
def test_minimum_ages_scale_with_the_horizon(horizon, factor):
    short, long = Thresholds(horizon=horizon), Thresholds(horizon=horizon * factor)
    for name in ("min_training_epochs", "min_holding_epochs", "embargo_epochs"):
        assert 1 <= getattr(short, name) <= getattr(long, name)
        assert getattr(long, name) <= factor * (getattr(short, name) + 1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"horizon": 0}, "at least 1"),
        ({"training_share": 1.5}, "between 0 and 1"),
        ({"embargo_share": -0.1}, "between 0 and 1"),
        ({"min_gradient_norm": 0.0}, "positive"),
        ({"min_contribution": 5.0}, "fraction"),
    ],
)
def test_thresholds_outside_their_range_are_refused(wrong, message):
    with pytest.raises(InvalidThresholds, match=message):
        Thresholds(**wrong)


snapshots = st.builds(
    replace,
    st.just(READY),
    stage=st.sampled_from(Stage),
    age=st.integers(0, 40),
    alpha=st.floats(0.01, 1.0),
    alpha_target=st.sampled_from([0.0, 0.5, 0.7, 1.0]),
    alpha_mode=st.sampled_from(AlphaMode),
    gradient_norm=st.none() | st.floats(),
    contribution=st.none() | st.floats(),
    anomalies=st.sampled_from([(), ("loss spike",)]),
)


@given(st.sampled_from(Op), snapshots)
def test_judging_never_raises_and_never_allows_what_the_tables_forbid(op, snapshot):
    verdict = judge(act(op), snapshot, THRESHOLDS)
    assert verdict.reasons
    if verdict and op is not Op.WAIT:
        assert snapshot.stage in LEGAL_IN[op]
        assert not RULES[snapshot.stage].cools
