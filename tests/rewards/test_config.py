"""Every setting on both sides of its range, and the settings that must go together."""

import math
from dataclasses import MISSING, fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esper.contracts import ACCURACY_GRAIN, LOSS_GRAIN, Op
from esper.rewards import CrashPays, InvalidRewardConfig, ProxyTooHeavy, RewardConfig
from esper.rewards.config import LARGEST_PROXY_RATIO, OF_GRAIN

CONFIG = RewardConfig(outcomes=10)


@pytest.mark.parametrize("setting", fields(RewardConfig), ids=lambda setting: setting.name)
def test_setting_outside_its_range_is_refused(setting):
    low, high = setting.metadata["range"]
    assert setting.metadata["meaning"]
    assert setting.default is MISSING or low <= setting.default <= high
    for wrong in (low - 1, high + 1, math.nan, math.inf, "0.5", True, None):
        with pytest.raises(InvalidRewardConfig, match=f"{setting.name} is .*; give"):
            RewardConfig(**{"outcomes": 10, setting.name: wrong})


def test_loss_scale_comes_from_the_task():
    """R4-M4: the baseline is the loss of guessing among the task's classes or tokens; there is no default."""
    assert RewardConfig(outcomes=50_257).baseline_loss_nats == pytest.approx(10.825, abs=1e-3)
    with pytest.raises(TypeError, match="outcomes"):
        RewardConfig()
    with pytest.raises(InvalidRewardConfig, match="whole number of classes"):
        RewardConfig(outcomes=10.5)


@given(st.floats(0.0, 10.0), st.floats(0.0, 2.5))
def test_proxy_may_weigh_only_a_part_of_contribution(contribution_weight, shaping_weight):
    """R4-M2."""
    given = {"outcomes": 10, "contribution_weight": contribution_weight, "shaping_weight": shaping_weight}
    if shaping_weight <= LARGEST_PROXY_RATIO * contribution_weight:
        assert RewardConfig(**given, termination_penalty=100.0).shaping_weight == shaping_weight
    else:
        with pytest.raises(ProxyTooHeavy, match=r"give at most 0\.25 of it"):
            RewardConfig(**given, termination_penalty=100.0)


def test_penalty_that_would_make_a_crash_pay_is_refused():
    with pytest.raises(CrashPays, match=r"give at least 1\.85"):
        RewardConfig(outcomes=10, termination_penalty=1.0)
    with pytest.raises(CrashPays, match="give at least 5"):
        RewardConfig(outcomes=10, gain_weight=5.0)


def test_seed_can_be_kept_in_time():
    with pytest.raises(InvalidRewardConfig, match="neither early nor late"):
        RewardConfig(outcomes=10, holding_grace_share=0.05)


def test_every_op_has_its_cost_in_the_configuration():
    """R4-M5: intervention costs live in the configuration only."""
    names = {op: f"{op.name.lower()}_cost" for op in Op if op is not Op.WAIT}
    costs = {name: 0.001 * (place + 1) for place, name in enumerate(names.values())}
    config = RewardConfig(outcomes=10, **costs)
    assert {op: config.cost_of(op) for op in names} == {op: costs[name] for op, name in names.items()}
    assert config.cost_of(Op.WAIT) == 0.0


def test_costs_are_as_small_as_the_differences_that_count():
    usual, fine = RewardConfig.at_rent(0.05, 65), RewardConfig.at_rent(0.05, 65, grain=LOSS_GRAIN)
    assert {name for name in vars(usual) if getattr(usual, name) != getattr(fine, name)} == {
        *(name for name in OF_GRAIN if getattr(usual, name))
    }
    for op in Op:
        assert fine.cost_of(op) == pytest.approx(usual.cost_of(op) * LOSS_GRAIN / ACCURACY_GRAIN)
    assert fine.negligible_gain == pytest.approx(LOSS_GRAIN)
    assert {f"{op.name.lower()}_cost" for op in Op if op is not Op.WAIT} <= set(OF_GRAIN)
