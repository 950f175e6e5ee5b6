"""Each anomaly is raised by what it is named after, once, and by nothing else."""

import inspect
import math
import random
import re
from dataclasses import fields, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esper.contracts import RansomwareSuspected, RewardHackingSuspected
from esper.telemetry import (
    KINDS,
    AnomalyConfig,
    Detector,
    EpisodeFinished,
    Expectations,
    HeadFigures,
    Record,
    RoundFinished,
    UpdateMade,
    anomalies,
    tame,
)
from esper.telemetry.anomalies import Ema, Hysteresis, Limit
from esper.telemetry.anomaly_kinds import RANGES, InvalidThreshold
from esper.telemetry.log import line_of
from tests.telemetry.cases import HEAD, HEADS, ONE_OF_EACH, UPDATE, decision, finished

EXPECTED = Expectations(rounds=200, exploration=0.05, max_gradient_norm=0.5, target_kl=0.03)
ROUND = RoundFinished(0.5, 0.9, 0.1, 1.5, 0.1, 0.5, {"WAIT": 0.5, "PRUNE": 0.5}, 0, 2.0, 1.0)


def detector(**changes):
    return Detector(AnomalyConfig(**changes), EXPECTED)


def fed(watcher, *events):
    return [anomaly for event in events for anomaly in watcher.see(event)]


def with_head(name, **changes):
    return replace(UPDATE, heads=UPDATE.heads | {name: replace(HEAD, **changes)})


def play(round_events=(), share=0.5, **ending):
    """A round of four learned episodes."""
    episodes = [event for _ in range(4) for event in (*round_events, finished(**ending))]
    return [*episodes, replace(ROUND, waiting_share=share)]


def healthy_update(draw, number):
    """As in a run that learns: the critic gets better, entropy falls, gradients are large at first; all of it noisy."""
    done = number / 200

    def head():
        settled = max(0.25, 1.0 - done + draw.uniform(-0.1, 0.1))
        return HeadFigures(draw.randint(3, 60), settled, 0.1, draw.uniform(0.1, 0.9), draw.uniform(1.1, 6.0))

    return replace(
        UPDATE,
        kl=draw.uniform(0.0, 0.05),
        gradient_norm=draw.uniform(0.3, 0.8) + (2.0 if number < 3 else 0.0) + (1.5 if number % 17 == 0 else 0.0),
        return_mean=0.2 + 0.4 * done + draw.uniform(-0.1, 0.1),
        value_error=0.3 if number == 0 else draw.uniform(0.05, 0.18),
        explained_variance=draw.uniform(-8.0, 1.0),
        heads={name: head() for name in HEADS},
    )


def test_two_hundred_healthy_updates_raise_nothing():
    """Whatever explained variance says; suspicions and rollbacks happen now and then."""
    watcher, draw = detector(), random.Random(0)
    suspicion = RewardHackingSuspected(3, "stem", 0.2, 0.05)
    for number in range(200):
        panic = "loss rose" if number % 9 == 0 else None
        assert not fed(watcher, finished(panic=panic), suspicion, finished(), *play(share=0.8))
        assert not fed(watcher, healthy_update(draw, number))


def test_two_hundred_rounds_of_a_control_that_only_waits_raise_nothing():
    """Masks that force everything leave no choice, and other policies are not the learner's fault."""
    watcher = detector()
    nothing = replace(
        UPDATE, heads=dict.fromkeys(HEADS, HeadFigures(0, None, 0.0, 1.0, 1.0)), gradient_norm=0.3, kl=0.0, clipped=0.0
    )
    forced = replace(ROUND, waiting_share=None, forced_share=1.0, ops={})
    suspicions = [RewardHackingSuspected(3, "stem", 0.2, 0.05), RansomwareSuspected(3, "stem", 0.2, 0.0)]
    for policy, purpose in (("none", "compare"), ("random", "compare"), ("greedy", "evaluate")):
        control = finished(policy=policy, purpose=purpose, fossilized=0, panic="loss rose", total=math.nan)
        for _ in range(200):
            assert not fed(watcher, *suspicions, control, finished(fossilized=0, ops={}), forced, nothing)


DRIFT = [UPDATE] * 15 + [replace(UPDATE, gradient_norm=0.5 * 1.4**step) for step in range(20)]
PROVOKED = {
    "ratio_explosion": [with_head("tempo", highest_ratio=30.0)],
    "ratio_collapse": [with_head("style", lowest_ratio=0.01)] * 3,
    "kl_spike": [replace(UPDATE, kl=0.2)],
    "value_collapse": [replace(UPDATE, value_error=0.3)] * 20,
    "non_finite": [replace(UPDATE, skipped_steps=2, gradient_norm=math.nan)],
    "gradient_drift": DRIFT,
    "entropy_collapse": [with_head("blueprint", entropy=0.17)] * 5,
    "no_growth_collapse": play(share=0.99) * 5,
    "nothing_grew": play(fossilized=0) * 10,
    "reward_hacking": play([RewardHackingSuspected(3, "stem", 0.2, 0.05)]) * 3,
    "ransomware": play([RansomwareSuspected(3, "stem", 0.2, 0.0)]) * 3,
    "rollbacks": play(panic="loss rose") * 3,
}


@pytest.mark.parametrize(("kind", "events"), PROVOKED.items(), ids=PROVOKED)
def test_it_is_raised_once_with_figures_reasons_and_advice(kind, events):
    """R4-H2, C-telemetry: one by one, and nothing else is raised by it."""
    assert PROVOKED.keys() == KINDS.keys()
    watcher = detector()
    raised = fed(watcher, *events)
    assert [each.kind for each in raised] == [kind]
    message = raised[0].message
    assert message.endswith(f": {KINDS[kind].why}; {KINDS[kind].remedy}")
    assert any(letter.isdigit() for letter in message.split(":")[0])
    assert raised[0].figures
    assert list(watcher.standing.values()) == raised
    assert not fed(watcher, events[-1]), "it still stands"


@pytest.mark.parametrize(("kind", "events"), PROVOKED.items(), ids=PROVOKED)
def test_it_is_over_when_all_is_well_again_and_can_come_back(kind, events):
    watcher = detector()
    fed(watcher, *events)
    assert not fed(watcher, *play() * 2, *[UPDATE] * 60)
    assert not watcher.standing
    assert kind in {each.kind for each in fed(watcher, *events)}


def test_the_worst_head_is_named_with_its_own_figures():
    """R1-L4."""
    update = replace(
        UPDATE,
        heads=UPDATE.heads
        | {"slot": replace(HEAD, highest_ratio=25.0), "tempo": replace(HEAD, highest_ratio=99.0, steps=7, entropy=0.4)},
    )
    (raised,) = fed(detector(), update)
    assert "the head 'tempo'" in raised.message
    assert raised.figures == {
        "steps": 7.0, "gradient_norm": 0.1, "lowest_ratio": 0.5, "highest_ratio": 99.0, "entropy": 0.4,
        "kl": 0.02,
    }  # fmt: skip


def test_heads_without_a_choice_are_never_the_worst():
    unused = HeadFigures(0, None, 0.0, 0.0, 1e9)
    assert not fed(detector(), *[replace(UPDATE, heads=UPDATE.heads | {"slot": unused})] * 5)


def test_entropy_is_judged_over_real_choices_above_what_exploration_gives():
    few = with_head("op", entropy=0.0, steps=15)
    floor = with_head("op", entropy=0.18)
    assert not fed(detector(), *[few] * 20)
    assert fed(detector(), *[floor] * 5)
    assert not fed(Detector(AnomalyConfig(), replace(EXPECTED, exploration=0.0)), *[floor] * 5)


def test_each_head_has_its_own_alarm_for_entropy():
    both = replace(UPDATE, heads=UPDATE.heads | dict.fromkeys(("op", "slot"), replace(HEAD, entropy=0.0)))
    watcher = detector()
    assert [each.message.split("'")[1] for each in fed(watcher, *[both] * 9)] == ["op", "slot"]
    fed(watcher, with_head("slot", entropy=0.0))
    assert list(watcher.standing) == [("entropy_collapse", "slot")]


def test_a_policy_may_settle_late_in_the_run():
    """R4-M21: entropy depends on the phase, and so do gradient norms."""
    watcher = detector()
    assert not fed(watcher, *[UPDATE] * 150, *[with_head("op", entropy=0.0)] * 50)
    assert not fed(detector(), *[replace(UPDATE, gradient_norm=0.01)] * 2, *[replace(UPDATE, gradient_norm=40.0)] * 8)


def test_gradients_that_clipping_copes_with_are_no_drift():
    """R4-H14, R4-M11: the defaults fit the gradient clip of the run, whatever that is."""
    grown = [replace(UPDATE, gradient_norm=0.1)] * 20 + [replace(UPDATE, gradient_norm=2.0)] * 10
    assert not fed(detector(), *grown)
    strict = Detector(AnomalyConfig(), replace(EXPECTED, max_gradient_norm=0.1))
    assert [each.kind for each in fed(strict, *grown)] == ["gradient_drift"]


def test_vanished_gradients_are_a_drift_too():
    raised = fed(detector(), *[UPDATE] * 20, *[replace(UPDATE, gradient_norm=0.0)] * 20)
    assert [each.kind for each in raised] == ["gradient_drift"]
    assert raised[0].figures["times"] < 0.02


def test_divergence_is_a_spike_only_far_beyond_the_target():
    wide = Detector(AnomalyConfig(), replace(EXPECTED, target_kl=0.5))
    assert not fed(wide, replace(UPDATE, kl=0.9))
    assert fed(wide, replace(UPDATE, kl=1.1))
    assert fed(Detector(AnomalyConfig(), replace(EXPECTED, target_kl=math.inf)), replace(UPDATE, kl=0.2))


def test_a_critic_is_not_blamed_where_returns_do_not_vary():
    constant = replace(UPDATE, return_deviation=0.0, value_error=0.05, explained_variance=None)
    assert not fed(detector(), *[constant] * 50)


def test_values_that_are_not_finite_are_found_before_the_update():
    assert [each.kind for each in fed(detector(), *play([decision(0, "WAIT", value=math.nan)]))] == ["non_finite"]


def test_figures_that_are_not_finite_spoil_nothing_that_comes_later():
    lost = replace(UPDATE, value_error=math.nan, return_mean=math.inf, gradient_norm=math.nan, kl=math.nan)
    watcher = detector()
    assert [each.kind for each in fed(watcher, lost, UPDATE, *[UPDATE] * 30)] == ["non_finite"]
    assert "gradient_drift" in {each.kind for each in fed(watcher, *DRIFT)}


def test_what_is_tame_changes_nothing():
    """So a long log can be replayed without it."""
    events = [event for provoked in PROVOKED.values() for event in (decision(0, "WAIT"), *provoked)]
    whole, part = detector(), detector()
    assert fed(whole, *events) == fed(part, *[event for event in events if not tame(event)])
    assert any(map(tame, events))
    assert not tame(UPDATE)
    assert not tame(finished())


@given(st.lists(ONE_OF_EACH, min_size=1, max_size=4))
@settings(max_examples=30)
def test_whatever_is_written_the_detector_never_fails(batches):
    """A run must not end because of what watches it."""
    watcher = detector(value_updates=1, gradient_warmup=1, entropy_updates=1, barren_rounds=1)
    for batch in batches:
        learned = replace(finished(), total=next(each.total for each in batch if isinstance(each, EpisodeFinished)))
        for event in (*batch, learned, *(each for each in batch if isinstance(each, RoundFinished | UpdateMade))):
            for anomaly in watcher.see(event):
                assert line_of(Record(0.0, 0, None, anomaly))


numbers = st.floats(-1e6, 1e6)


@given(numbers, numbers, st.floats(0.05, 1.0))
def test_a_moving_mean_starts_with_the_first_number_and_forgets_by_its_weight(old, new, weight):
    mean = Ema(weight)
    assert mean.add(old) == old
    for step in range(1, 20):
        assert mean.add(new) == pytest.approx(new + (old - new) * (1 - weight) ** step, rel=1e-6, abs=1e-6)


limits = st.tuples(st.floats(-10, 10), st.floats(0.01, 5), st.integers(1, 4), st.sampled_from([1.0, -1.0]))
figures = st.lists(st.one_of(st.floats(-20, 20), st.just(math.nan), st.just(math.inf), st.just(-math.inf)))


@given(limits, figures)
def test_an_alarm_is_raised_after_its_patience_and_not_again_before_it_is_over(shape, seen):
    threshold, gap, patience, sign = shape
    limit, alarm = Limit(threshold, threshold - sign * gap, patience), Hysteresis()
    measured = [figure for figure in seen if not math.isnan(figure)]
    raised = []
    for at, figure in enumerate(measured):
        assert not alarm.see(math.nan, limit)
        before = alarm.standing
        if alarm.see(figure, limit):
            raised.append(at)
            assert not before
            recent = measured[at - patience + 1 : at + 1]
            assert len(recent) == patience
            assert all(sign * each >= sign * threshold for each in recent)
        assert alarm.standing or not before or sign * figure <= sign * limit.clear_at
    for first, second in pairwise(raised):
        assert any(sign * each <= sign * limit.clear_at for each in measured[first + 1 : second])


def test_every_threshold_has_a_range():
    for name in (each.name for each in fields(AnomalyConfig)):
        low, high = RANGES[name]
        assert low <= getattr(AnomalyConfig(), name) <= high
        for wrong in (low - 1, high + 1, math.nan):
            with pytest.raises(InvalidThreshold, match=rf"anomalies.{name} = .*; give a value from"):
                AnomalyConfig(**{name: wrong})


def test_every_threshold_decides_something():
    """R2-LOW4, R1-L2: no setting is reserved for the future; the detector reads them all."""
    used = set(re.findall(r"config\.(\w+)", inspect.getsource(anomalies)))
    assert used == {each.name for each in fields(AnomalyConfig)}


def test_an_alarm_for_entropy_must_be_over_above_where_it_begins():
    with pytest.raises(InvalidThreshold, match=r"entropy_clear = 0.1; give a value above entropy_low = 0.2"):
        AnomalyConfig(entropy_low=0.2, entropy_clear=0.1)
