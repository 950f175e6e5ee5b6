"""The world of tables shows what the live world shows, lives by its rules, and pays what the survey measured."""

import importlib
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from esper.contracts import WAIT, Action, AlphaSpeed, AlphaTarget, Op, Stage, Style, Tempo
from esper.controller import Schedule, ScheduledSeed
from esper.environment import FIELDS, GrowEnv
from esper.runs.survey import read_survey

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))
world = importlib.import_module("table_world")

SURVEY = ROOT / "surveys" / "small-dev.parquet"
TASKS = world.table_tasks(SURVEY)
SURVEYED = read_survey(SURVEY)
COURSES = [course for task in SURVEYED.tasks for course in task.courses]
QUICK = min(range(len(TASKS)), key=lambda place: (TASKS[place].horizon, TASKS[place].hosts[0].rows))
LIFE = [name for name in FIELDS.slots if name not in {"gradient_norm", "contribution"}]
"""What of a slot follows from actions and clock alone."""


def still(task):
    return world.TableEnv([task], noise=0.0)


def shown(observation, name):
    """As surveys keep it: NaN for what was not measured."""
    return np.where(observation[f"{name}_valid"] == 1, observation[name], np.nan)


def best_single(task):
    """The index of the surveyed single seed that gains most on every survey seed."""
    gains = (task.evaluation - task.evaluation[:1]).min(axis=1)
    return max(task.singles.items(), key=lambda single: gains[single[1]])


@pytest.mark.parametrize("place", range(0, len(TASKS), 7))
def test_a_host_alone_shows_what_the_survey_saw(place):
    env, course = still(TASKS[place]), COURSES[place]
    env.reset(seed=0)
    assert env.codec.slots == course.slots
    assert env.codec.blueprints == course.blueprints
    for epoch in range(len(course.host)):
        observation, *_, info = env.step(env.codec.encode(WAIT))
        surveyed = {"host": course.host, "slots": course.slot_features, "blueprints": course.offers}
        for name, found in surveyed.items():
            known = [getattr(FIELDS, name).index(feature) for feature in getattr(SURVEYED.fields, name)]
            np.testing.assert_allclose(shown(observation, name)[..., known], found[epoch], atol=2e-5)
        assert info["quality"] == pytest.approx(course.qualities[epoch])


def test_spaces_first_observation_and_infos_are_those_of_the_live_world():
    table, live = still(TASKS[QUICK]), GrowEnv(TASKS[QUICK].name, reward_mode="solo")
    here, _ = table.reset(seed=0)
    there, _ = live.reset(seed=COURSES[QUICK].seed)
    assert table.action_space == live.action_space
    assert table.observation_space == live.observation_space
    assert list(here) == list(there)
    for name, array in there.items():
        assert here[name].dtype == array.dtype
        np.testing.assert_allclose(here[name], array, atol=1e-4, err_msg=name)
    waited = [env.step(env.codec.encode(WAIT))[-1] for env in (table, live)]
    assert waited[0].keys() == waited[1].keys()
    assert table.task.horizon == live.task.horizon


@pytest.mark.parametrize("speed", [AlphaSpeed.INSTANT, AlphaSpeed.FAST])
def test_slots_live_as_they_do_in_the_live_world(speed):
    """Only what a seed is worth may differ, so its contribution and whether it may be kept are not compared."""
    table, live = still(TASKS[QUICK]), GrowEnv(TASKS[QUICK].name, reward_mode="solo")
    slots, blueprint = table.codec.slots, TASKS[QUICK].slots[0].blueprints[-1]
    born = Action(Op.GERMINATE, slots[0], blueprint, Style.GATED, Tempo.FAST, AlphaTarget.HALF)
    plan = [WAIT, born, *[Action(Op.ADVANCE, slots[0])] * 4, Action(Op.PRUNE, slots[0], alpha_speed=speed)]
    plan += [WAIT] * (table.task.horizon - len(plan))
    table.reset(seed=0)
    live.reset(seed=COURSES[QUICK].seed)
    columns, stages = [FIELDS.slots.index(name) for name in LIFE], set()
    growth = FIELDS.host.index("growth")
    for action in plan:
        here, _, _, over, told = table.step(table.codec.encode(action))
        there, _, _, ended, said = live.step(live.codec.encode(action))
        assert (told["executed"], bool(told["refused"]), over) == (said["executed"], bool(said["refused"]), ended)
        np.testing.assert_allclose(shown(here, "slots")[:, columns], shown(there, "slots")[:, columns], atol=1e-5)
        np.testing.assert_array_equal(here["slots_valid"], there["slots_valid"])
        np.testing.assert_array_equal(here["blueprints_valid"], there["blueprints_valid"])
        assert here["host"][growth] == pytest.approx(there["host"][growth], abs=1e-5)
        legal = [op for op in Op if op is not Op.FOSSILIZE]
        np.testing.assert_array_equal(here["mask_op_slot"][legal], there["mask_op_slot"][legal])
        stages.add(table.snapshot.slots[0].stage)
    assert over
    assert stages >= {Stage.DORMANT, Stage.GERMINATED, Stage.TRAINING, Stage.BLENDING, Stage.EMBARGOED}


@pytest.mark.parametrize("keeps", [True, False])
def test_a_seed_planted_as_in_the_survey_scores_what_was_measured_there(keeps):
    """Whether it becomes a fossil or is held to the end."""
    place = max(range(len(TASKS)), key=lambda each: TASKS[each].seen.gains.max() * (TASKS[each].seen.host < 0.7))
    task, other = SURVEYED.tasks[place // 2], 1 - place % 2
    assert TASKS[place].name == task.task
    (slot, blueprint), index = best_single(task)
    policy = Schedule((ScheduledSeed(1, slot, blueprint, fossilize=keeps),))
    ended = world.play(still(TASKS[place]), policy, seed=3)
    measured = (task.evaluation + task.test)[[0, index], other] / 2
    inside = np.clip(measured, 0.002, 0.998)
    expected = 100 * (inside[1] - inside[0] - task.rent * task.growth_log[index, other])
    assert ended.growth > 1
    assert ended.score == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("place", "seed"), [(0, 1), (11, 2), (30, 3)])
def test_rewards_add_up_to_what_is_delivered_less_the_untrained_host(place, seed):
    env = world.TableEnv([TASKS[place]], noise=0.0)
    ended = world.play(env, world.find_policy("random"), seed)
    kept = [place for place, slot in enumerate(env.snapshot.slots) if slot.delivered]
    quality = world.moved(env.twin_quality, sum(env._added(env.task.seen.gains)[kept]))
    rent = env.rent * math.log(ended.growth)
    assert ended.total == pytest.approx(quality - rent - env.task.hosts[0].evaluation_quality)


def test_a_removed_seed_leaves_the_host_as_it_was():
    env = still(TASKS[0])
    env.reset(seed=0)
    slot = env.codec.slots[0]
    born = Action(Op.GERMINATE, slot, TASKS[0].slots[0].blueprints[0])
    for action in (WAIT, born, WAIT, Action(Op.PRUNE, slot, alpha_speed=AlphaSpeed.INSTANT)):
        *_, info = env.step(env.codec.encode(action))
    assert info["quality"] == pytest.approx(env.twin_quality)
    while not (told := env.step(env.codec.encode(WAIT)))[3]:
        pass
    assert told[-1]["score"] == 0.0


def test_an_episode_is_a_function_of_its_seed_alone():
    policy, env = world.find_policy("ranker"), world.TableEnv(TASKS, rents=(0.01, 0.3))
    first = [world.play(env, policy, seed) for seed in (5, 6, 5)]
    assert first[0] == first[2] != first[1]
    assert first[0] == world.play(world.TableEnv(TASKS, rents=(0.01, 0.3)), policy, 5)


def test_a_drawn_rent_is_shown_and_lies_in_its_range():
    env, place = world.TableEnv(TASKS, rents=(0.01, 0.3)), FIELDS.host.index("rent")
    rents = []
    for seed in range(50):
        observation, _ = env.reset(seed=seed)
        assert observation["host"][place] == pytest.approx(math.log10(env.rent), abs=1e-5)
        rents.append(env.rent)
    assert 0.01 <= min(rents) < 0.03
    assert 0.1 < max(rents) <= 0.3


def test_a_seed_rises_to_its_gain_and_a_late_one_to_less():
    rises = [world.risen(1, epochs, 20) for epochs in range(20)]
    assert rises[0] == 0.0
    assert rises == sorted(rises)
    assert rises[19] == pytest.approx(1.0)
    assert world.risen(0, 20, 20) == 1.0
    assert world.risen(7, 13, 20) > world.risen(10, 10, 20) > world.risen(14, 6, 20) > 0.0
