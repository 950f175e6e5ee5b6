"""Removal cost is a claim; the joint gain is what is paid."""

import math

import pytest
from hypothesis import given

from esper.contracts import Stage
from esper.rewards import Ending, Moment, Twin
from esper.rewards.credit import credit, held_to_ransom, overclaimed
from tests.rewards.cases import CONFIG, configs, slot, snapshot, table, transitions

HELD = slot("a", Stage.HOLDING, alpha=1.0), slot("b", Stage.HOLDING, alpha=1.0)
KEPT = slot("a", Stage.FOSSILIZED, alpha=1.0), slot("b", Stage.HOLDING, alpha=1.0)
ALONE = (slot("a", Stage.HOLDING, alpha=1.0),)


def of(slots, table, quality=0.5, twin=None, ending=Ending.RUNNING):
    return Moment(snapshot(*slots, quality=quality), table, twin, ending)


def test_seeds_that_need_each_other_are_paid_once():
    """S7-anti-gaming, attribution: each removal costs the whole gain of 0.3, and 0.3 is paid, not 0.6."""
    both = credit(of(HELD, table(none=0.3, a=0.3, b=0.3, ab=0.6)), CONFIG)
    assert both.claimed == pytest.approx(0.6)
    assert both.paid == pytest.approx(0.3)


def test_seeds_that_can_stand_in_for_each_other_are_paid_their_joint_gain():
    """Contributions alone would pay nothing here, and punish the second of two good seeds."""
    both = credit(of(HELD, table(none=0.2, a=0.7, b=0.7, ab=0.8)), CONFIG)
    assert both.paid == pytest.approx(0.6)
    assert both.claimed == pytest.approx(0.6)


def test_harm_is_charged():
    assert credit(of(ALONE, table(none=0.5, a=0.3)), CONFIG).paid == pytest.approx(-0.2)


def test_what_the_twin_has_too_is_not_paid():
    adapted = table(none=0.2, a=0.6)
    assert credit(of(ALONE, adapted, 0.6), CONFIG).paid == pytest.approx(0.4)
    assert credit(of(ALONE, adapted, 0.6, Twin(0.5, None)), CONFIG).paid == pytest.approx(0.1)
    assert credit(of(ALONE, adapted, 0.6, Twin(0.7, None)), CONFIG).paid == 0.0


def test_what_was_not_measured_is_neither_claimed_nor_paid():
    for broken in ({}, table(none=0.2, a=math.nan), table(none=math.nan, a=0.6)):
        seeds = credit(of(ALONE, broken, twin=Twin(0.1, None)), CONFIG)
        assert (seeds.claimed, seeds.paid) == (0.0, 0.0)


def test_credit_that_was_not_kept_lapses_at_the_end_and_debt_stays():
    good = table(none=0.3, a=0.4, b=0.4, ab=0.5)
    assert credit(of(KEPT, good), CONFIG).paid == pytest.approx(0.2)
    assert credit(of(KEPT, good, ending=Ending.TRUNCATED), CONFIG).paid == pytest.approx(0.1)
    bad = table(none=0.3, a=0.4, b=0.2, ab=0.3)
    assert credit(of(KEPT, bad, ending=Ending.TRUNCATED), CONFIG).paid == pytest.approx(0.0)
    assert credit(of(HELD, bad, ending=Ending.TRUNCATED), CONFIG).paid == pytest.approx(-0.1)


def test_credit_for_a_held_seed_that_is_ready_does_not_lapse():
    good = table(none=0.3, a=0.4, b=0.4, ab=0.5)
    ready = slot("a", Stage.HOLDING, alpha=1.0, ready=True), slot("b", Stage.HOLDING, alpha=1.0)
    assert credit(of(ready, good, ending=Ending.TRUNCATED), CONFIG).paid == pytest.approx(0.1)
    assert credit(of(HELD, good, ending=Ending.TRUNCATED), CONFIG).paid == pytest.approx(0.0)


def test_debt_is_never_more_than_all_quality():
    """A credit of 1/3 lapses beside debts of twice 2/3."""
    slots = (slot(name, Stage.HOLDING, alpha=1.0) for name in "abc")
    harm = table(none=1.0, a=1.0, b=0.0, c=0.0, ab=1.0, ac=1.0, bc=0.0, abc=0.0)
    seeds = credit(of(slots, harm, quality=0.0, ending=Ending.TRUNCATED), CONFIG)
    assert (seeds.claimed, seeds.paid) == (-1.0, -1.0)


def test_removal_that_hurts_for_no_gain_is_ransom():
    """With b the network is worse than with all off, and a only makes up for it."""
    moment = of(HELD, table(none=0.5, a=0.5, b=0.3, ab=0.5))
    assert held_to_ransom(moment, CONFIG) == {"a": pytest.approx(0.2 - CONFIG.suspicious_contribution)}
    assert overclaimed(moment, CONFIG) == {}
    assert credit(moment, CONFIG).paid == 0.0


def test_ransom_of_a_single_seed_shows_against_the_twin_only():
    adapted = table(none=0.2, a=0.6)
    assert held_to_ransom(of(ALONE, adapted, 0.6), CONFIG) == {}
    assert set(held_to_ransom(of(ALONE, adapted, 0.6, Twin(0.6, None)), CONFIG)) == {"a"}


def test_claim_out_of_proportion_is_no_ransom_while_something_is_gained():
    moment = of(HELD, table(none=0.5, a=0.5, b=0.2, ab=0.55))
    assert held_to_ransom(moment, CONFIG) == {}
    assert overclaimed(moment, CONFIG) == {"a": pytest.approx(0.35 - 3.0 * 0.05)}


def test_gain_within_the_noise_is_not_paid_to_ransom():
    assert credit(of(HELD, table(none=0.5, a=0.5, b=0.3, ab=0.505)), CONFIG).paid == 0.0
    assert credit(of(HELD, table(none=0.5, a=0.5, b=0.5, ab=0.505)), CONFIG).paid == pytest.approx(0.005)


@pytest.mark.parametrize("gain", [0.0, 0.02])
def test_small_contributions_are_beneath_suspicion(gain):
    moment = of(HELD, table(none=0.5, a=0.5, b=0.42 + gain, ab=0.5 + gain))
    assert held_to_ransom(moment, CONFIG) == overclaimed(moment, CONFIG) == {}


@given(transitions(), configs())
def test_nobody_is_paid_more_than_he_claims_or_all_together_gained(transition, config):
    for moment in (transition.start, transition.end):
        seeds = credit(moment, config)
        assert -1.0 <= seeds.paid <= seeds.claimed + 1e-12
        assert seeds.paid <= max(0.0, moment.proven_gain or 0.0)
        assert not set(held_to_ransom(moment, config)) & set(overclaimed(moment, config))
