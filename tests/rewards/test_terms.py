"""Each term alone."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esper.contracts import WAIT, Action, Op, Stage
from esper.rewards import TERMS, TERMS_OF, Ending, Mode, RewardConfig, TermName, Twin
from esper.rewards.terms import (
    alpha_shock,
    holding_penalty,
    intervention_cost,
    legitimacy_discount,
    terminal_objective,
    termination,
)
from tests.rewards.cases import CONFIG, configs, slot, snapshot, step, table, transitions, walks


def value(name, transition, config=CONFIG):
    return TERMS[name].value(transition, config)


def test_every_term_of_the_issue_exists_with_unit_and_meaning():
    """C-rewards: shaping, counterfactual contribution, rent, anti-gaming, sparse and loss-based parts."""
    assert set(TERMS) == set(TermName)
    assert {name for names in TERMS_OF.values() for name in names} == set(TermName)
    for term in TERMS.values():
        assert term.unit
        assert term.meaning


def bounds(config, slots):
    """The largest size of each term with this many slots."""
    claims = 2 * config.contribution_weight * max(1, slots)
    return {
        TermName.CONTRIBUTION: claims,
        TermName.ATTRIBUTION_DISCOUNT: 2 * claims,
        TermName.RATIO_PENALTY: config.ratio_weight,
        TermName.RANSOMWARE: config.ransomware_weight,
        TermName.GAIN_OVER_TWIN: 2 * config.gain_weight,
        TermName.QUALITY: config.gain_weight,
        TermName.LOSS_GAIN: 2 * config.loss_weight,
        TermName.RENT: config.rent_weight * math.log(config.growth_limit),
        TermName.SHAPING: slots * config.shaping_weight,
        TermName.INTERVENTION_COST: 0.1,
        TermName.ALPHA_SHOCK: slots * config.alpha_shock_weight,
        TermName.HOLDING_PENALTY: slots * config.holding_penalty_limit,
        TermName.LEGITIMACY_DISCOUNT: slots * config.contribution_weight * config.legitimacy_weight,
        TermName.TERMINAL_OBJECTIVE: config.sparse_scale,
        TermName.TERMINATION: config.termination_penalty,
    }


@given(transitions(), configs())
def test_every_term_is_finite_and_bounded_whatever_was_measured(transition, config):
    """R4-C2, R4-M1, R4-H11, R4-M3: any configuration in range; None, NaN, infinities, an empty host, no horizon."""
    largest = bounds(config, len(transition.after.slots))
    for name in TermName:
        worth = value(name, transition, config)
        assert math.isfinite(worth), name
        assert abs(worth) <= largest[name] + 1e-9, name


PENALTIES = {
    TermName.INTERVENTION_COST,
    TermName.ALPHA_SHOCK,
    TermName.HOLDING_PENALTY,
    TermName.LEGITIMACY_DISCOUNT,
    TermName.TERMINATION,
}


@given(transitions(), configs())
def test_penalties_never_pay(transition, config):
    for name in PENALTIES:
        assert value(name, transition, config) <= 0.0


@given(walks(), configs())
def test_every_potential_telescopes_over_any_walk(steps, config):
    """R4-H8: the discounted sum is the discounted worth at the end minus the worth at the start, term by term."""
    for name, term in TERMS.items():
        if term.potential is None:
            continue
        total = sum(config.discount**t * term.value(step, config) for t, step in enumerate(steps))
        last = config.discount ** len(steps) * term.potential(steps[-1].end, config)
        assert math.isclose(total, last - term.potential(steps[0].start, config), abs_tol=1e-9), name


@given(transitions(ending=Ending.TERMINATED), configs())
def test_nothing_is_worth_anything_after_the_governor(transition, config):
    for name, term in TERMS.items():
        if term.potential is not None:
            assert value(name, transition, config) == -term.potential(transition.start, config)
    assert termination(transition, config) == -config.termination_penalty
    assert alpha_shock(transition, config) == 0.0


def test_executed_ops_cost_and_waiting_is_free():
    """R4-M5."""
    germinate = Action(Op.GERMINATE, "a", blueprint="norm")
    assert intervention_cost(step(snapshot(slot()), action=germinate), CONFIG) == -CONFIG.germinate_cost
    assert intervention_cost(step(snapshot(slot()), action=WAIT), CONFIG) == 0.0


@pytest.mark.parametrize(
    ("before", "after", "shock"), [(0.0, 0.5, 0.0), (0.0, 1.0, 0.5), (1.0, 0.0, 0.5), (1.0, 0.8, 0.0), (0.2, 0.9, 0.2)]
)
def test_alpha_shock_is_the_change_beyond_the_tolerance_in_every_slot(before, after, shock):
    def at(alpha):
        return snapshot(slot("a", Stage.BLENDING, alpha=alpha), slot("b", Stage.BLENDING, alpha=alpha))

    assert alpha_shock(step(at(before), at(after)), CONFIG) == pytest.approx(-2 * 0.02 * shock)


def held(*ages, horizon=25):
    slots = (slot(name, Stage.HOLDING, age=age, alpha=1.0) for name, age in zip("abcd", ages, strict=False))
    return snapshot(*slots, horizon=horizon)


def test_holding_costs_more_by_the_epoch_up_to_a_limit():
    """R4-H11, R4-M3: linear and bounded, after a grace that fits the horizon."""
    costs = [holding_penalty(step(held(age)), CONFIG) for age in range(100)]
    assert costs[:8] == pytest.approx([0, 0, 0, 0, 0, 0, -0.002, -0.004])
    assert min(costs) == costs[-1] == -CONFIG.holding_penalty_limit
    assert holding_penalty(step(held(7, 100)), CONFIG) == pytest.approx(-0.014)
    assert holding_penalty(step(held(7, horizon=100)), CONFIG) == 0.0


def test_fossils_are_not_held():
    kept = snapshot(slot("a", Stage.FOSSILIZED, age=90, alpha=1.0))
    assert holding_penalty(step(held(90), kept), CONFIG) == 0.0


@pytest.mark.parametrize(("age", "lost"), [(0, 0.25), (1, 0.125), (2, 0.0), (10, 0.0)])
def test_seed_kept_too_soon_loses_a_part_of_its_share(age, lost):
    """S7-anti-gaming: the legitimacy discount at fossilising."""
    before = snapshot(slot("a", Stage.HOLDING, age=age, alpha=1.0))
    after = snapshot(slot("a", Stage.FOSSILIZED, alpha=1.0))
    fossilise = step(before, after, Action(Op.FOSSILIZE, "a"), table_after=table(none=0.2, a=0.6))
    assert legitimacy_discount(fossilise, CONFIG) == pytest.approx(-lost * 0.4)


def test_legitimacy_is_asked_only_at_fossilising_and_only_of_what_is_paid():
    before = snapshot(slot("a", Stage.HOLDING, alpha=1.0))
    after = snapshot(slot("a", Stage.FOSSILIZED, alpha=1.0), quality=0.6)
    worthless = step(before, after, table_after=table(none=0.2, a=0.6), twin_after=Twin(0.6, None))
    for other in (step(before), step(after), step(before, after), worthless):
        assert legitimacy_discount(other, CONFIG) == 0.0


def test_legitimacy_without_a_demand_or_a_horizon_still_wants_one_epoch():
    """R4-C2, R4-M1: no division by the epochs that nobody asked for."""
    lenient = RewardConfig(outcomes=10, legitimacy_share=0.0)
    for config, horizon in ((lenient, 25), (CONFIG, 0)):
        for age, lost in ((0, 0.1), (1, 0.0)):
            before = snapshot(slot("a", Stage.HOLDING, age=age, alpha=1.0), horizon=horizon)
            after = snapshot(slot("a", Stage.FOSSILIZED, alpha=1.0), horizon=horizon)
            kept = step(before, after, table_after=table(none=0.2, a=0.6))
            assert legitimacy_discount(kept, config) == pytest.approx(-lost)


def test_seed_that_is_delivered_as_it_is_held_must_have_shown_itself_too():
    """Otherwise waiting for the horizon would be a way around the price of keeping too soon."""
    qualities = table(none=0.2, a=0.6)

    def lost(age, ready=True, ending=Ending.TRUNCATED):
        held = snapshot(slot("a", Stage.HOLDING, age=age, alpha=1.0, ready=ready), quality=0.6, horizon=25)
        return legitimacy_discount(step(held, table_after=qualities, ending=ending), CONFIG)

    assert lost(0) < lost(1) < 0.0 == lost(9)
    assert lost(0, ready=False) == lost(0, ending=Ending.RUNNING) == 0.0


def test_terminal_objective_is_quality_minus_rent_at_the_horizon_only():
    kept = slot("a", Stage.FOSSILIZED, alpha=1.0, parameters=200)
    grown = step(snapshot(kept, quality=0.75, host=100, total=300))
    assert terminal_objective(grown, CONFIG) == 0.0
    expected = 0.75 - 0.08 * math.log(3)
    assert terminal_objective(replace(grown, ending=Ending.TRUNCATED), CONFIG) == pytest.approx(expected)
    assert terminal_objective(replace(grown, ending=Ending.TERMINATED), CONFIG) == -1.0


def test_unmeasured_quality_earns_nothing_and_rent_is_due():
    kept = slot("a", Stage.FOSSILIZED, alpha=1.0, parameters=200)
    lost = step(snapshot(kept, quality=math.nan, host=100, total=300), ending=Ending.TRUNCATED)
    assert terminal_objective(lost, CONFIG) == pytest.approx(-0.08 * math.log(3))


@given(st.floats(0.01, 100.0), st.floats(0.0, 1.0), st.integers(100, 10**6))
def test_sparse_scale_has_its_full_effect(scale, quality, total):
    """R4-H10: the clamp comes before the scale, so that twice the scale is twice the reward."""
    kept = slot("a", Stage.FOSSILIZED, alpha=1.0, parameters=total)
    ended = step(snapshot(kept, quality=quality), ending=Ending.TRUNCATED)
    plain = terminal_objective(ended, CONFIG)
    assert abs(plain) <= 1.0
    scaled = terminal_objective(ended, RewardConfig(outcomes=10, sparse_scale=scale))
    assert scaled == pytest.approx(scale * plain)
    worst = terminal_objective(replace(ended, ending=Ending.TERMINATED), RewardConfig(outcomes=10, sparse_scale=scale))
    assert worst <= scaled


def test_seeds_are_paid_in_every_slot_whatever_the_action_names():
    """A reward for one slot only would leave the other seeds unpaid on most steps."""
    slots = [slot(name, Stage.HOLDING, alpha=1.0) for name in "ab"]
    before, after = table(none=0.2, a=0.3, b=0.3, ab=0.4), table(none=0.2, a=0.3, b=0.4, ab=0.5)
    for action in (WAIT, Action(Op.FOSSILIZE, "a")):
        grown = step(snapshot(*slots), action=action, table_before=before, table_after=after)
        assert value(TermName.CONTRIBUTION, grown) == pytest.approx(0.1)


@pytest.mark.parametrize("mode", Mode)
def test_terms_of_a_mode_are_named_once(mode):
    assert len(set(TERMS_OF[mode])) == len(TERMS_OF[mode])
