"""Every setting is checked, acts, and is composed by one rule."""

import math
from dataclasses import fields, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from esper.rl import Learner, PPOConfig, RLError
from esper.rl.config import _RANGES
from tests.rl.cases import SIZES, STEADY, rollout, small_network, weights_of

ANOTHER = {
    "discount": 0.5,
    "smoothing": 0.2,
    "epochs": 3,
    "minibatches": 2,
    "reuse": 2,
    "learning_rate": 0.02,
    "final_learning_rate": 0.02,
    "clip": 0.01,
    "value_clip": math.inf,
    "value_weight": 2.0,
    "entropy_weight": 0.5,
    "final_entropy_weight": 0.5,
    "head_entropy": {"slot": 7.0},
    "target_kl": 1e-6,
    "max_gradient_norm": 0.01,
    "weight_decay": 0.1,
    "exploration": 0.3,
    "return_momentum": 0.9,
    "critic_updates": 1,
    "anchor_weight": 3.0,
    "anchor_share": 0.6,
}
BASE = replace(STEADY, epochs=4, value_clip=0.05, anchor_weight=0.5, anchor_share=1.0)


def learned(config: PPOConfig) -> dict:
    """Weights after two rollouts and updates in the middle of training."""
    network = small_network()
    learner = Learner(network, config)
    for seed in (1, 2):
        learner.update(rollout(network, rows=4, seed=seed, exploration=config.exploration), progress=0.5)
    return weights_of(network)


@pytest.mark.parametrize("name", [field.name for field in fields(PPOConfig)])
def test_every_setting_changes_what_is_learned(name):
    """R0-P4, R1-H2: no setting is a half-feature; there is none for an entropy floor, adaptive or not."""
    assert ANOTHER.keys() == {field.name for field in fields(PPOConfig)}
    assert not any("floor" in field.name or "adaptive" in field.name for field in fields(PPOConfig))
    one, other = learned(BASE), learned(replace(BASE, **{name: ANOTHER[name]}))
    assert any(not torch.equal(one[weight], other[weight]) for weight in one)


@pytest.mark.parametrize("name", _RANGES)
def test_setting_outside_its_range_is_refused(name):
    low, high = _RANGES[name]
    assert getattr(PPOConfig(**{name: low}), name) == low
    assert getattr(PPOConfig(**{name: high}), name) == high
    too_high = [] if high == math.inf else [high * 1.001, math.inf]
    for wrong in (low - 1e-9, math.nan, -math.inf, *too_high):
        with pytest.raises(RLError, match=f"{name} = .*; give a value from"):
            PPOConfig(**{name: wrong})


def test_only_a_limit_may_be_infinite():
    """R1-M2: which turns it off."""
    assert {name for name, (_, high) in _RANGES.items() if high == math.inf} == {"value_clip", "target_kl"}


def test_every_number_has_a_range_or_a_least_value():
    checked = {*_RANGES, "epochs", "minibatches", "reuse", "head_entropy"}
    assert checked == {field.name for field in fields(PPOConfig)}


@pytest.mark.parametrize("name", ["epochs", "minibatches", "reuse"])
def test_fewer_than_one_pass_or_part_is_refused(name):
    with pytest.raises(RLError, match=f"{name} = 0; give a whole number from 1 on"):
        PPOConfig(**{name: 0})


def test_misspelt_head_in_the_table_of_factors_is_refused_at_construction():
    """R0-P3: by the learner, which knows the heads; a head that is not named has the documented factor 1."""
    with pytest.raises(RLError, match="head_entropy names 'solt'; the heads are op, slot, style"):
        Learner(small_network(), PPOConfig(head_entropy={"solt": 2.0}))
    assert Learner(small_network(), PPOConfig(head_entropy={"slot": 2.0})).config.entropy_weights([*SIZES], 0.0) == [
        0.01,
        0.02,
        0.01,
    ]


@pytest.mark.parametrize("factor", [-0.1, 101.0, math.nan])
def test_factor_outside_its_range_is_refused(factor):
    """R0-P3."""
    with pytest.raises(RLError, match=r"head_entropy of 'slot' = .*; give a value from 0 to 100"):
        PPOConfig(head_entropy={"slot": factor})


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 5), st.floats(-0.5, 1.5))
def test_entropy_weight_is_the_annealed_base_times_the_factor_of_the_head(first, last, factor, progress):
    """R2-HIGH3: the one rule, and it stays at its ends outside of training."""
    config = PPOConfig(entropy_weight=first, final_entropy_weight=last, head_entropy={"slot": factor})
    within = min(max(progress, 0.0), 1.0)
    base = (1 - within) * first + within * last
    assert config.entropy_weights(["op", "slot"], progress) == pytest.approx([base, base * factor], abs=1e-9)


@given(st.floats(-0.5, 1.5))
def test_learning_rate_goes_to_its_last_value_on_a_straight_line(progress):
    config = PPOConfig(learning_rate=1e-2, final_learning_rate=1e-3)
    within = min(max(progress, 0.0), 1.0)
    assert config.learning_rate_at(progress) == pytest.approx(1e-2 - 9e-3 * within)
