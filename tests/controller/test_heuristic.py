"""The rules, one by one on real observations, and all together in the world."""

import math
from dataclasses import replace

import pytest
import torch

from esper.contracts import (
    ACCURACY_GRAIN,
    LOSS_GRAIN,
    Action,
    ActionCodec,
    AlphaSpeed,
    EsperError,
    HostSnapshot,
    ObservationFields,
    Op,
    SlotSnapshot,
    Snapshot,
    Stage,
    Topology,
)
from esper.controller import Arrays, Heuristic, HeuristicConfig, HeuristicState, InvalidHeuristic, MissingFeature
from esper.environment import FIELDS, GrowEnv, Observer, find_task
from esper.growth import Thresholds, blueprints_for
from tests.controller.playing import play
from tests.environment.worlds import POINTWISE

OFFERS = ("norm", "attention", "conv_small", "conv_light")
EMPTY = SlotSnapshot("a", Topology.CNN, channels=8, position=0, blueprints=OFFERS)
HELD = replace(
    EMPTY, stage=Stage.HOLDING, age=5, blueprint="conv_small", alpha=1.0, alpha_target=1.0,
    parameters=300, gradient_norm=0.1, contribution=0.3,
)  # fmt: skip
LOW = replace(HELD, contribution=0.015)
TRAINED = replace(HELD, stage=Stage.TRAINING, alpha=0.0, alpha_target=0.0, contribution=None)
KEPT = replace(HELD, stage=Stage.FOSSILIZED)
POLICY = Heuristic(FIELDS)


def seen(*slots: SlotSnapshot, quality: float | None = 0.3, epoch: int = 5) -> tuple[Arrays, ActionCodec]:
    """What the environment shows of these slots, named a, b, c, at a horizon of 25 epochs."""
    slots = tuple(
        replace(slot, slot=name, position=i) for i, (name, slot) in enumerate(zip("abc", slots, strict=False))
    )
    snapshot = Snapshot(HostSnapshot(epoch, 25, 230, 230, evaluation_quality=quality), slots)
    observer = Observer(slots, Thresholds())
    return observer.observe(snapshot), observer.codec


def decide(
    *slots: SlotSnapshot,
    epochs: int = 1,
    state: HeuristicState | None = None,
    policy: Heuristic = POLICY,
    quality: float | None = 0.3,
    epoch: int = 5,
) -> tuple[Action, HeuristicState]:
    """The last decision after the same sight for some epochs, and the state after it."""
    observation, codec = seen(*slots, quality=quality, epoch=epoch)
    state = policy.start(codec) if state is None else state
    for _ in range(epochs):
        decision, state = policy.act(observation, state, torch.Generator())
    return codec.decode(decision.choices), state


def op_and_slot(*slots: SlotSnapshot, **more) -> tuple[Op, str | None]:
    action, _ = decide(*slots, **more)
    return action.op, action.slot


def next_seed(*slots: SlotSnapshot, state: HeuristicState | None = None, policy: Heuristic = POLICY):
    """The first decision on the plateau that is not to wait."""
    for _ in range(9):
        action, state = decide(*slots, state=state, policy=policy)
        if action.op is not Op.WAIT:
            break
    assert action.op is Op.GERMINATE
    return action, state


# Keeping and removing


def test_a_held_seed_that_helps_is_fossilised_before_anything_else():
    assert op_and_slot(TRAINED, replace(HELD, anomalies=("spike",)), HELD) == (Op.FOSSILIZE, "c")


def test_a_held_seed_below_the_threshold_is_not_fossilised_although_the_gate_would():
    assert Thresholds().min_contribution <= 0.015 < HeuristicConfig().min_contribution
    assert op_and_slot(LOW) == (Op.WAIT, None)


def test_a_seed_with_an_anomaly_is_pruned_at_once():
    action, _ = decide(EMPTY, replace(TRAINED, anomalies=("non-finite gradient",)))
    assert (action.op, action.slot, action.alpha_speed) == (Op.PRUNE, "b", AlphaSpeed.INSTANT)


def test_a_held_seed_that_stays_low_is_pruned_when_patience_ends():
    for epochs, op in ((1, Op.WAIT), (2, Op.WAIT), (3, Op.PRUNE)):
        assert op_and_slot(LOW, epochs=epochs)[0] is op


def test_a_good_epoch_restores_patience():
    _, state = decide(LOW, epochs=2)
    good = replace(LOW, contribution=0.5, age=0)  # too young for its gate
    _, state = decide(good, state=state)
    assert op_and_slot(LOW, epochs=2, state=state)[0] is Op.WAIT


def test_a_contribution_that_was_not_measured_is_not_a_low_one():
    assert op_and_slot(replace(HELD, contribution=None), epochs=10) == (Op.WAIT, None)
    _, state = decide(LOW, epochs=2)
    _, state = decide(replace(HELD, contribution=None), state=state)
    assert op_and_slot(LOW, state=state)[0] is Op.PRUNE, "neither forgiven nor counted"


def test_what_is_being_pruned_is_left_alone():
    leaving = replace(HELD, stage=Stage.BLENDING, alpha_target=0.0, anomalies=("spike",))
    assert op_and_slot(leaving, epochs=5) == (Op.WAIT, None)


# Going on and growing


def test_the_first_slot_that_may_advance_does():
    assert op_and_slot(EMPTY, TRAINED, TRAINED, epochs=9) == (Op.ADVANCE, "b")


def test_a_seed_germinates_once_quality_has_been_on_a_plateau():
    for epochs, op in ((1, Op.WAIT), (2, Op.WAIT), (3, Op.GERMINATE)):
        assert op_and_slot(EMPTY, epochs=epochs)[0] is op


def test_small_steps_add_up_to_an_improvement():
    state = None
    for quality in (0.300, 0.306, 0.312, 0.318, 0.324, 0.330, 0.336):
        action, state = decide(EMPTY, state=state, quality=quality)
        assert action.op is Op.WAIT
    assert state.best_quality == pytest.approx(0.336)


def test_quality_that_was_not_measured_makes_no_plateau():
    assert op_and_slot(EMPTY, epochs=9, quality=None) == (Op.WAIT, None)


@pytest.mark.parametrize("other", [replace(TRAINED, age=0), LOW], ids=["training", "held"])
def test_no_third_seed_germinates_while_two_are_on_their_way(other):
    patient = Heuristic(FIELDS, HeuristicConfig(patience_holding=99))
    assert op_and_slot(EMPTY, other, other, epochs=9, policy=patient)[0] is Op.WAIT
    assert op_and_slot(EMPTY, other, epochs=3, policy=patient) == (Op.GERMINATE, "a")
    one, three = (Heuristic(FIELDS, HeuristicConfig(patience_holding=99, max_active=most)) for most in (1, 3))
    assert op_and_slot(EMPTY, other, epochs=9, policy=one)[0] is Op.WAIT
    assert op_and_slot(EMPTY, other, other, epochs=3, policy=three) == (Op.GERMINATE, "a")


def test_fossils_do_not_count_as_on_their_way():
    assert op_and_slot(KEPT, KEPT, EMPTY, epochs=3) == (Op.GERMINATE, "c")


def test_nothing_germinates_late_or_where_nothing_is_free():
    assert op_and_slot(EMPTY, epochs=3, epoch=17)[0] is Op.GERMINATE
    assert op_and_slot(EMPTY, epochs=9, epoch=18)[0] is Op.WAIT
    assert op_and_slot(KEPT, replace(EMPTY, stage=Stage.EMBARGOED), epochs=9)[0] is Op.WAIT


# Choosing and learning


def test_the_first_seed_mixes_and_comes_closest_to_doubling_the_host_neither_cheapest_nor_largest():
    """Logarithms of growth: conv_small 0.32 in the narrow slot and 0.90 in the others, conv_light 0.56 and 1.36."""
    action, _ = next_seed(EMPTY, replace(EMPTY, channels=4), EMPTY)
    assert HeuristicConfig().seed_size == math.log(2.0)
    assert (action.slot, action.blueprint) == ("b", "conv_light")


@pytest.mark.parametrize(
    ("size", "slot", "blueprint"),
    [(0.0, "b", "conv_small"), (0.9, "a", "conv_small"), (10.0, "a", "conv_light")],
    ids=["cheapest", "middling", "largest"],
)
def test_the_right_size_is_a_setting(size, slot, blueprint):
    policy = Heuristic(FIELDS, HeuristicConfig(seed_size=size))
    action, _ = next_seed(EMPTY, replace(EMPTY, channels=4), EMPTY, policy=policy)
    assert (action.slot, action.blueprint) == (slot, blueprint)


def test_size_without_weight_decides_nothing():
    policy = Heuristic(FIELDS, HeuristicConfig(size_weight=0.0))
    action, _ = next_seed(EMPTY, replace(EMPTY, channels=4), policy=policy)
    assert (action.slot, action.blueprint) == ("a", "conv_small"), "the first of those that mix"


def test_without_the_bonus_size_alone_decides():
    wide = replace(EMPTY, channels=16)
    plain = Heuristic(FIELDS, HeuristicConfig(mixing_bonus=0.0))
    assert next_seed(wide)[0].blueprint == "conv_small"
    assert next_seed(wide, policy=plain)[0].blueprint == "attention", "of size 0.50, conv_small is of 1.90"


def test_only_what_fits_the_slot_is_chosen():
    assert next_seed(replace(EMPTY, blueprints=("attention",)))[0].blueprint == "attention"


def test_a_seed_pruned_for_low_contribution_makes_the_next_choice_another_one():
    action, state = next_seed(EMPTY, EMPTY)
    assert (action.slot, action.blueprint) == ("a", "conv_small")
    pruned, state = decide(LOW, EMPTY, epochs=3, state=state)
    assert (pruned.op, pruned.slot) == (Op.PRUNE, "a")
    again, _ = next_seed(replace(EMPTY, stage=Stage.EMBARGOED), EMPTY, state=state)
    assert again.blueprint != "conv_small"


def test_a_seed_pruned_for_an_anomaly_says_nothing_about_its_blueprint():
    _, state = next_seed(EMPTY, EMPTY)
    pruned, after = decide(replace(TRAINED, anomalies=("spike",)), EMPTY, state=state)
    assert pruned.op is Op.PRUNE
    assert after.expected == state.expected
    assert after.planted == (None, None)


def test_a_kept_seed_raises_its_blueprint_by_what_it_contributes():
    plain = Heuristic(FIELDS, HeuristicConfig(mixing_bonus=0.0))
    action, state = next_seed(EMPTY, EMPTY, policy=plain)
    assert action.blueprint == "conv_small"
    failed, state = decide(LOW, EMPTY, epochs=3, state=state, policy=plain)
    assert failed.op is Op.PRUNE
    action, state = next_seed(replace(EMPTY, stage=Stage.EMBARGOED), EMPTY, state=state, policy=plain)
    assert (action.slot, action.blueprint) == ("b", "attention")
    untaught, _ = next_seed(EMPTY, KEPT, state=replace(state, expected=(0.1,) * 4), policy=plain)
    kept, after = decide(EMPTY, HELD, state=state, policy=plain)
    assert kept.op is Op.FOSSILIZE
    assert after.expected[1] == pytest.approx(state.expected[1] + 0.3)
    assert next_seed(EMPTY, KEPT, state=after, policy=plain)[0].blueprint == "attention"
    assert untaught.blueprint == "conv_small"


def test_a_seed_that_somebody_else_planted_teaches_nothing():
    _, state = decide(HELD)
    assert state.expected == (0.1,) * len(OFFERS)


# In the world


def test_after_an_inert_seed_it_tries_and_keeps_another():
    task = replace(POINTWISE, horizon=60, blueprints=("inert", "conv_heavy"))
    one_at_a_time = Heuristic(FIELDS, HeuristicConfig(max_active=1))
    turns = [turn.executed for turn in play(GrowEnv(task, "frugal"), one_at_a_time, 0)]
    planted = [action.blueprint for action in turns if action.op is Op.GERMINATE]
    assert planted[:2] == ["inert", "conv_heavy"]
    assert next(action.op for action in turns if action.op in (Op.PRUNE, Op.FOSSILIZE)) is Op.PRUNE
    assert any(action.op is Op.FOSSILIZE for action in turns)


def test_it_earns_more_than_waiting_on_the_default_task():
    task = find_task("digits-pointwise")
    ours = ("norm", "attention", "depthwise", "bottleneck", "conv_small", "conv_light", "conv_heavy")
    env = GrowEnv(replace(task, blueprints=ours))
    assert sum(turn.reward for turn in play(env, Heuristic(FIELDS), 0)) > 0.05, "waiting earns 0"


DECISIONS = {
    ("digits-pointwise", Topology.CNN): (
        (7, Op.GERMINATE, "block0", "conv_light"), (8, Op.ADVANCE, "block0"), (10, Op.ADVANCE, "block0"),
        (11, Op.FOSSILIZE, "block0"),
        (16, Op.GERMINATE, "block1", "conv_light"), (17, Op.ADVANCE, "block1"), (19, Op.ADVANCE, "block1"),
        (20, Op.FOSSILIZE, "block1"),
    ),
    ("spirals", Topology.DENSE): (
        (5, Op.GERMINATE, "layer0", "mlp_small"), (6, Op.ADVANCE, "layer0"),
        (7, Op.GERMINATE, "layer1", "mlp_small"), (8, Op.ADVANCE, "layer0"), (9, Op.FOSSILIZE, "layer0"),
        (10, Op.ADVANCE, "layer1"), (12, Op.ADVANCE, "layer1"), (13, Op.FOSSILIZE, "layer1"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "topology"), DECISIONS, ids=[name for name, _ in DECISIONS])
def test_on_tasks_judged_by_accuracy_it_decides_what_it_always_did(name, topology):
    ours = tuple(each.name for each in blueprints_for(topology) if each.build.__module__.startswith("esper."))
    executed = [turn.executed for turn in play(GrowEnv(replace(find_task(name), blueprints=ours)), POLICY, 100)]
    assert (
        tuple(told(epoch, each) for epoch, each in enumerate(executed) if each.op is not Op.WAIT)
        == (DECISIONS[name, topology])
    )


def told(epoch: int, action: Action) -> tuple[object, ...]:
    planted = (action.blueprint,) if action.op is Op.GERMINATE else ()
    return (epoch, action.op, action.slot, *planted)


@pytest.mark.parametrize("contribution", [0.3, 0.021, 0.019, -0.1])
@pytest.mark.parametrize("quality", [0.3, 0.311])
def test_a_loss_is_read_on_its_own_scale(contribution, quality):
    """Where a fifth of a difference counts, it decides on a fifth as on the whole elsewhere."""
    choices, states = [], []
    for grain, part in ((ACCURACY_GRAIN, 1.0), (LOSS_GRAIN, LOSS_GRAIN / ACCURACY_GRAIN)):
        slots = replace(HELD, contribution=part * contribution), EMPTY
        observation, codec = seen(*slots, quality=part * quality)
        observation["mask_op_slot"][Op.FOSSILIZE, 0] = 1  # the gate asks for the grain, and is not asked here
        state = POLICY.start(replace(codec, grain=grain))
        decision, state = POLICY.act(observation, replace(state, best_quality=0.3), torch.Generator())
        choices.append(decision.choices)
        states.append((state.low_epochs, state.stale_epochs))
    assert choices[0] == choices[1]
    assert states[0] == states[1]


def test_what_it_plays_says_on_which_scale_it_judges():
    for name, grain in (("spirals", ACCURACY_GRAIN), ("family:text/0", LOSS_GRAIN)):
        env = GrowEnv(find_task(name), "solo")
        assert env.codec.grain == env.task.grain == grain
        assert env.world.thresholds_for(env.task).min_contribution == grain


# Mistakes


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("min_contribution", 2.0, "min_contribution is 2.0; give a number from -1 to 1"),
        ("patience_holding", 0, "patience_holding is 0; give a number of at least 1"),
        ("last_start", float("nan"), "last_start is nan; give a number from 0 to 1"),
        ("seed_size", -0.1, "seed_size is -0.1; give a number from 0 to 10"),
        ("size_weight", 1.1, "size_weight is 1.1; give a number from 0 to 1"),
        ("max_active", 0, "max_active is 0; give a number of at least 1"),
    ],
)
def test_a_setting_outside_its_range_is_refused(setting, value, message):
    with pytest.raises(InvalidHeuristic, match=message):
        HeuristicConfig(**{setting: value})


def test_a_number_that_the_observation_lacks_is_named():
    slots = tuple("sead" if name == "seed" else name for name in FIELDS.slots)
    other = ObservationFields(FIELDS.host, slots, FIELDS.blueprints)
    with pytest.raises(MissingFeature, match="the observation has no number 'seed'; did you mean 'sead'"):
        Heuristic(other)
    assert issubclass(MissingFeature, EsperError)
