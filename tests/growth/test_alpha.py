import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esper.contracts import AlphaCurve, AlphaMode
from esper.growth import AlphaSchedule

levels = st.floats(0.0, 1.0)
schedules = st.builds(AlphaSchedule, levels, levels, st.integers(0, 12), st.sampled_from(AlphaCurve))


def walk(schedule: AlphaSchedule) -> list[AlphaSchedule]:
    states = [schedule]
    while states[-1].elapsed < states[-1].ticks:
        states.append(states[-1].tick())
    return states


@given(schedules)
def test_alpha_is_monotone_never_overshoots_and_arrives_exactly(schedule):
    alphas = [state.alpha for state in walk(schedule)]
    low, high = sorted((schedule.start, schedule.target))
    assert all(low <= alpha <= high for alpha in alphas)
    assert alphas == sorted(alphas, reverse=schedule.target < schedule.start)
    assert alphas[-1] == schedule.target
    assert walk(schedule)[-1].mode is AlphaMode.STILL


@given(schedules)
def test_ticking_past_the_end_changes_nothing(schedule):
    end = walk(schedule)[-1]
    assert end.tick() == end


@given(schedules, levels, st.sampled_from(AlphaCurve))
def test_without_ticks_a_new_target_acts_at_once(schedule, target, curve):
    assert schedule.retarget(target, 0, curve).alpha == target


@given(schedules, st.data())
def test_a_new_ramp_starts_where_alpha_is(schedule, data):
    state = data.draw(st.sampled_from(walk(schedule)))
    ramp = state.retarget(data.draw(levels), 5, AlphaCurve.COSINE)
    assert ramp.alpha == pytest.approx(state.alpha, abs=1e-12)


@pytest.mark.parametrize("ticks", [3, 5, 8])
@pytest.mark.parametrize("curve", AlphaCurve)
def test_a_ramp_takes_exactly_its_ticks(curve, ticks):
    alphas = [state.alpha for state in walk(AlphaSchedule(0.0, 1.0, ticks, curve))]
    assert len(alphas) == ticks + 1
    assert alphas[0] == 0.0
    assert all(0.0 < alpha < 1.0 for alpha in alphas[1:-1])


def test_sigmoids_follow_the_logistic_function_of_their_steepness():
    for curve in (AlphaCurve.SIGMOID_GENTLE, AlphaCurve.SIGMOID, AlphaCurve.SIGMOID_SHARP):
        logistic = [1 / (1 + math.exp(-curve.steepness * (i / 8 - 0.5))) for i in range(9)]
        scaled = [(value - logistic[0]) / (logistic[-1] - logistic[0]) for value in logistic]
        assert [state.alpha for state in walk(AlphaSchedule(0.0, 1.0, 8, curve))] == pytest.approx(scaled)


@pytest.mark.parametrize("wrong", [{"start": -0.1}, {"target": 1.1}, {"target": math.nan}, {"ticks": 2, "elapsed": 3}])
def test_impossible_schedule_is_refused(wrong):
    with pytest.raises(ValueError, match=r"must lie between|elapsed"):
        AlphaSchedule(**wrong)
