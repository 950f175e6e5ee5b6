"""Modes as compositions of terms."""

import math
from dataclasses import replace

import pytest
from hypothesis import given

from esper.rewards import TERMS_OF, Ending, MissingTwin, Mode, TermName, needs_twin, reward
from tests.rewards.cases import CONFIG, configs, snapshot, step, transitions
from tests.rewards.test_terms import bounds


@given(transitions(), configs())
def test_terms_sum_to_the_total_exactly_and_everything_is_finite(transition, config):
    """R4-C2, R4-M1, R4-H11: every mode, any configuration in range, whatever was measured."""
    for mode in Mode:
        result = reward(transition, mode, config)
        assert tuple(result.terms) == TERMS_OF[mode]
        assert result.total == sum(result.terms.values())
        largest = bounds(config, len(transition.after.slots))
        assert math.isfinite(result.total)
        assert abs(result.total) <= sum(largest[name] for name in TERMS_OF[mode]) + 1e-9
        assert all(math.copysign(1.0, worth) == 1.0 for worth in result.terms.values() if worth == 0.0)


def test_modes_that_compare_with_the_twin_say_so():
    assert {mode for mode in Mode if needs_twin(mode)} == {Mode.TWIN, Mode.LOSS, Mode.SHAPED, Mode.SIMPLIFIED}


@pytest.mark.parametrize("mode", [mode for mode in Mode if needs_twin(mode)])
def test_missing_twin_is_an_error_and_not_a_gain_of_zero(mode):
    with pytest.raises(MissingTwin, match=f"mode '{mode}' .* one of the modes sparse, minimal, solo, frugal"):
        reward(step(snapshot()), mode, CONFIG)


def test_every_mode_knows_what_a_crash_costs():
    for mode in Mode:
        assert {TermName.TERMINATION, TermName.TERMINAL_OBJECTIVE} & set(TERMS_OF[mode])


@given(transitions(ending=Ending.TRUNCATED), configs())
def test_a_crash_is_never_a_way_out(transition, config):
    """However bad things stand, being ended by the governor is no better than the horizon."""
    crash = replace(transition, ending=Ending.TERMINATED)
    for mode in (Mode.SIMPLIFIED, Mode.SPARSE, Mode.MINIMAL, Mode.LOSS, Mode.TWIN):
        assert reward(crash, mode, config).total <= reward(transition, mode, config).total + 1e-9
