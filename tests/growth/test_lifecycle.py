"""All pairs of stages through the pure state machine."""

import itertools
from dataclasses import replace

import pytest

from esper.contracts import RULES, AlphaCurve, AlphaMode, AlphaSpeed, AlphaTarget, Stage, Style, Tempo
from esper.growth import AlphaSchedule, IllegalTransition, Thresholds
from esper.growth.lifecycle import Plan, SlotState

THRESHOLDS = Thresholds(horizon=25)
PLAN = Plan("norm", Style.LINEAR_ADD, Tempo.FAST, AlphaTarget.FULL)


def state_in(stage: Stage) -> SlotState:
    rule = RULES[stage]
    schedule = AlphaSchedule(target=1.0) if rule.holds_seed else AlphaSchedule()
    return SlotState(stage, plan=PLAN if rule.holds_seed else None, schedule=schedule)


OPERATIONS = {
    "germinated": lambda state: state.germinated(PLAN),
    "advanced": SlotState.advanced,
    "lowered": lambda state: state.retargeted(AlphaTarget.HALF, 3, AlphaCurve.LINEAR, Style.LINEAR_ADD),
    "pruned": lambda state: state.pruned(0, AlphaCurve.LINEAR),
    "faded": lambda state: state.pruned(3, AlphaCurve.LINEAR),
    "fossilized": SlotState.fossilized,
}


def test_each_legal_pair_of_stages_and_no_other_is_reached_by_an_operation_or_by_the_clock():
    reached = set()
    clock = {"ticked": lambda state: state.ticked(Thresholds(horizon=1))}
    for stage, (name, operation) in itertools.product(Stage, (OPERATIONS | clock).items()):
        try:
            after = operation(state_in(stage))
        except IllegalTransition:
            continue
        reached.add((stage, after.stage))
        assert after.age == 0 or name == "ticked", (stage, name)
    legal = {(stage, after) for stage in Stage for after in RULES[stage].may_become}
    assert legal <= reached
    assert {(before, after) for before, after in reached if before is not after} == legal


def test_pruning_at_alpha_above_zero_ramps_down_and_then_removes():
    state = state_in(Stage.HOLDING).pruned(AlphaSpeed.FAST, AlphaCurve.LINEAR)
    alphas = []
    while state.stage is Stage.BLENDING:
        alphas.append(state.schedule.alpha)
        state = state.ticked(THRESHOLDS)
    assert alphas == pytest.approx([1.0, 2 / 3, 1 / 3])
    assert state == SlotState(Stage.PRUNED)


@pytest.mark.parametrize("stage", [Stage.GERMINATED, Stage.TRAINING, Stage.HOLDING])
def test_pruning_without_ticks_removes_at_once(stage):
    assert state_in(stage).pruned(AlphaSpeed.INSTANT, AlphaCurve.LINEAR) == SlotState(Stage.PRUNED)


@pytest.mark.parametrize("target", AlphaTarget)
def test_a_newborn_is_at_full_strength_until_it_has_trained(target):
    state = SlotState().germinated(replace(PLAN, alpha_target=target))
    assert (state.schedule.alpha, state.alpha_target) == (1.0, target)
    state = state.advanced().ticked(THRESHOLDS).advanced()
    assert state.stage is (Stage.HOLDING if target is AlphaTarget.FULL else Stage.BLENDING)
    for _ in range(PLAN.tempo):
        state = state.ticked(THRESHOLDS)
    assert state.schedule.alpha == state.alpha_target == target


@pytest.mark.parametrize("speed", AlphaSpeed)
def test_another_operator_is_taken_on_at_alpha_zero_and_ramps_up_from_there(speed):
    state = state_in(Stage.HOLDING).retargeted(AlphaTarget.MOST, speed, AlphaCurve.LINEAR, Style.GATED)
    path = [(state.plan.style, state.schedule.alpha)]
    while state.schedule.mode is not AlphaMode.STILL:
        assert state.alpha_target == AlphaTarget.MOST, "it is not on its way out"
        state = state.ticked(THRESHOLDS)
        path.append((state.plan.style, state.schedule.alpha))
    ticks = max(speed, AlphaSpeed.FAST)
    assert [style for style, _ in path] == [PLAN.style] * ticks + [Style.GATED] * ticks
    steps = [abs(after - before) for (_, before), (_, after) in itertools.pairwise(path)]
    assert max(steps) <= 1.0 / ticks + 1e-9
    assert state.advanced().stage is Stage.HOLDING


def test_pruning_a_seed_that_changes_its_operator_removes_it():
    state = state_in(Stage.HOLDING).retargeted(AlphaTarget.FULL, 3, AlphaCurve.LINEAR, Style.GATED).ticked(THRESHOLDS)
    state = state.pruned(AlphaSpeed.FAST, AlphaCurve.LINEAR)
    assert state.alpha_target == 0.0
    while state.stage is Stage.BLENDING:
        state = state.ticked(THRESHOLDS)
    assert state == SlotState(Stage.PRUNED)


def test_an_emptied_slot_cools_down_by_the_clock_alone():
    state, stages = SlotState(Stage.PRUNED), []
    while state.stage is not Stage.DORMANT:
        stages.append(state.stage)
        state = state.ticked(THRESHOLDS)
    assert stages == [Stage.PRUNED, *[Stage.EMBARGOED] * THRESHOLDS.embargo_epochs, Stage.RESETTING]


@pytest.mark.parametrize("stage", [stage for stage in Stage if not RULES[stage].cools])
def test_the_clock_alone_moves_no_other_stage(stage):
    state = state_in(stage)
    for _ in range(50):
        state = state.ticked(THRESHOLDS)
    assert state.stage is stage
    assert state.age == 50


@pytest.mark.parametrize("target", [AlphaTarget.HALF, AlphaTarget.MOST])
def test_a_new_target_sends_holding_back_to_blending_until_it_is_reached(target):
    state = state_in(Stage.HOLDING).retargeted(target, 3, AlphaCurve.COSINE, Style.LINEAR_ADD)
    assert state.stage is Stage.BLENDING
    for _ in range(3):
        state = state.ticked(THRESHOLDS)
    assert state.schedule.alpha == target
    assert state.advanced().stage is Stage.HOLDING


def test_an_instant_target_keeps_holding_and_forgets_the_old_contribution():
    held = SlotState(Stage.HOLDING, plan=PLAN, schedule=AlphaSchedule(target=1.0), contribution=0.2)
    lowered = held.retargeted(AlphaTarget.HALF, 0, AlphaCurve.LINEAR, Style.LINEAR_ADD)
    assert (lowered.stage, lowered.schedule.alpha, lowered.contribution) == (Stage.HOLDING, 0.5, None)


def test_a_fossil_keeps_the_alpha_it_was_held_at():
    state = SlotState(Stage.HOLDING, plan=PLAN, schedule=AlphaSchedule(target=0.7)).fossilized()
    for _ in range(10):
        state = state.ticked(THRESHOLDS)
    assert (state.stage, state.schedule.alpha) == (Stage.FOSSILIZED, 0.7)


IMPOSSIBLE = [
    {"stage": Stage.DORMANT, "plan": PLAN},
    {"stage": Stage.TRAINING},
    {"stage": Stage.TRAINING, "plan": PLAN},
    {"stage": Stage.TRAINING, "plan": PLAN, "schedule": AlphaSchedule(1.0, 0.5, 3)},
    {"stage": Stage.HOLDING, "plan": PLAN},
    {"stage": Stage.FOSSILIZED, "plan": PLAN, "schedule": AlphaSchedule(0.0, 1.0, 3, elapsed=1)},
    {"stage": Stage.HOLDING, "plan": PLAN, "schedule": AlphaSchedule(target=1.0), "next_style": Style.GATED},
    {"stage": Stage.DORMANT, "contribution": 0.1},
]


@pytest.mark.parametrize("fields", IMPOSSIBLE)
def test_a_state_that_cannot_be_is_refused(fields):
    with pytest.raises(IllegalTransition, match=r"cannot|go together|needs|not measured"):
        SlotState(**fields)
