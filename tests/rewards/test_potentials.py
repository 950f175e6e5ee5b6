"""What moments are worth."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esper.contracts import ADVANCES_TO, RULES, AlphaMode, Stage
from esper.rewards import Ending, Moment, RewardConfig, Twin, potential
from esper.rewards.modes import Mode
from esper.rewards.potentials import gain_over_twin, loss_gain, progress, ransomware, ratio_penalty, rent, shaping
from tests.rewards.cases import CONFIG, configs, slot, snapshot, table, transitions

FORWARD = (Stage.DORMANT, Stage.GERMINATED, Stage.TRAINING, Stage.BLENDING, Stage.HOLDING, Stage.FOSSILIZED)


def test_forward_is_the_way_that_the_lifecycle_goes():
    assert all(later in RULES[earlier].may_become for earlier, later in itertools.pairwise(FORWARD))
    assert list(ADVANCES_TO) == list(FORWARD[1:4])


@given(st.integers(0, 100), st.integers(0, 100), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_no_progress_inside_a_stage_is_worth_as_much_as_the_next_stage(age, later_age, alpha, later_alpha):
    """S7-anti-gaming: a potential that is not monotone along the lifecycle would make waiting pay."""
    for earlier, later in itertools.pairwise(FORWARD):
        here = progress(slot(stage=earlier, age=age, alpha=alpha, alpha_target=1.0))
        assert here < progress(slot(stage=later, age=later_age, alpha=later_alpha, alpha_target=1.0))


@pytest.mark.parametrize("stage", Stage)
def test_time_in_a_stage_is_worth_nothing(stage):
    assert progress(slot(stage=stage, age=0)) == progress(slot(stage=stage, age=20))


@pytest.mark.parametrize("stage", [stage for stage in Stage if RULES[stage].cools])
def test_cooling_slot_is_worth_as_much_as_a_dormant_one(stage):
    assert progress(slot(stage=stage)) == progress(slot()) == 0.0


def test_seed_on_its_way_out_is_worth_nothing():
    leaving = slot(stage=Stage.BLENDING, alpha=0.9, alpha_target=0.0, alpha_mode=AlphaMode.FALLING)
    assert progress(leaving) == 0.0


def test_shaping_counts_every_slot_and_nothing_once_the_episode_is_over():
    slots = [slot("a", Stage.FOSSILIZED, alpha=1.0), slot("b", Stage.TRAINING), slot("c")]
    running = Moment(snapshot(*slots), {})
    assert shaping(running, CONFIG) == pytest.approx(0.05 * 1.3)
    for ending in (Ending.TRUNCATED, Ending.TERMINATED):
        assert shaping(Moment(snapshot(*slots), {}, ending=ending), CONFIG) == 0.0


@pytest.mark.parametrize(
    ("host", "total", "expected"),
    [(230, 230, 0.0), (230, 460, 0.08 * math.log(2)), (100, 10**9, 0.08 * math.log(1000)), (100, 50, 0.0), (0, 0, 0.0)],
)
def test_rent_is_the_logarithm_of_growth_within_its_limit(host, total, expected):
    assert rent(Moment(snapshot(host=host, total=total), {}), CONFIG) == pytest.approx(-expected)


def test_at_the_horizon_rent_is_due_for_what_is_delivered():
    ready, failing = (
        slot("a", Stage.HOLDING, alpha=1.0, parameters=100, ready=True),
        slot("b", Stage.HOLDING, alpha=1.0, parameters=800),
    )
    present = snapshot(ready, failing, host=100, total=1000)
    assert rent(Moment(present, {}), CONFIG) == pytest.approx(-0.08 * math.log(10))
    assert rent(Moment(present, {}, ending=Ending.TRUNCATED), CONFIG) == pytest.approx(-0.08 * math.log(2))


def test_gain_over_the_twin_is_a_difference_of_fractions():
    assert gain_over_twin(Moment(snapshot(quality=0.7), {}, Twin(0.2, 1.0)), CONFIG) == pytest.approx(0.5)
    assert gain_over_twin(Moment(snapshot(quality=0.1), {}, Twin(0.2, 1.0)), CONFIG) == pytest.approx(-0.1)
    for unknown in (None, math.nan):
        assert gain_over_twin(Moment(snapshot(quality=unknown), {}, Twin(0.2, 1.0)), CONFIG) == 0.0


@pytest.mark.parametrize("outcomes", [2, 10, 50_257])
def test_loss_gain_has_the_scale_of_the_task(outcomes):
    """R4-M4: from the loss of guessing to none is worth 1 in every task, and a lower loss is worth more."""
    config = RewardConfig(outcomes=outcomes)
    guessing = Twin(None, math.log(outcomes))
    assert loss_gain(Moment(snapshot(loss=0.0), {}, guessing), config) == pytest.approx(1.0)
    assert loss_gain(Moment(snapshot(loss=math.log(outcomes) / 2), {}, guessing), config) == pytest.approx(0.5)
    assert loss_gain(Moment(snapshot(loss=1e300), {}, guessing), config) == -1.0
    for unknown in (None, math.nan, math.inf):
        assert loss_gain(Moment(snapshot(loss=unknown), {}, guessing), config) == 0.0


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_anti_gaming_penalties_are_linear_and_bounded(first, second):
    """R4-H11, R4-M3: none grows faster than what it penalises."""
    held = slot("a", Stage.HOLDING, alpha=1.0), slot("b", Stage.HOLDING, alpha=1.0)
    for penalty, weight, gained in ((ransomware, 0.3, 0.0), (ratio_penalty, 0.1, 0.02)):
        off = 1.0 - gained

        def worth(claim, penalty=penalty, off=off, gained=gained):
            """Seed a makes up for a harm of `claim` that b does."""
            qualities = table(none=off, a=off, b=max(0.0, 1.0 - claim), ab=off + gained)
            return penalty(Moment(snapshot(*held, quality=off + gained), qualities), CONFIG)

        assert abs(worth(first) - worth(second)) <= weight * abs(first - second) + 1e-9
        assert worth(1.0) < worth(0.5) < 0.0
        # Each of two seeds holds nearly all quality.
        most = table(none=0.95, a=0.0, b=0.0, ab=0.95 + gained)
        assert penalty(Moment(snapshot(*held, quality=0.95), most), CONFIG) == -weight


@given(transitions(), configs())
def test_no_moment_is_worth_less_than_the_price_of_a_crash(transition, config):
    """R4-C2: finite whatever was measured, and never below the bound that the configuration states."""
    for mode in Mode:
        for moment in (transition.start, transition.end):
            worth = potential(moment, mode, config)
            assert math.isfinite(worth)
            assert worth >= -config.deepest_potential - 1e-9
