"""What is compared in the world of tables is played and scored as it would be one by one."""

import importlib
import sys
from pathlib import Path

import pytest
import torch

from esper.contracts import WAIT
from esper.controller import ControllerNetwork, Learned
from esper.environment import FIELDS
from esper.rl import act, replay
from esper.runs.policies import find_policy

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))
world, ground, first = map(importlib.import_module, ("table_world", "proving_ground", "first_weights"))
TASKS = world.table_tasks(ROOT / "surveys" / "small-dev.parquet")[::9]


def network(seed=0, kind=ControllerNetwork):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = kind(FIELDS)
        for parameter in made.parameters():
            parameter.data.add_(0.1 * torch.randn_like(parameter))
    return made


def test_greedy_play_of_many_environments_at_once_is_that_of_each_alone():
    net, worlds = network(), list(range(len(TASKS)))
    _, scores = ground.Lockstep(TASKS).play(net, [world.TableEnv([task]) for task in TASKS], worlds, None)
    policy, tasks = Learned(net, greedy=True), zip(TASKS, worlds, strict=True)
    assert scores == pytest.approx([world.play(world.TableEnv([task]), policy, seed).score for task, seed in tasks])
    assert len(set(scores)) > 1


@pytest.mark.parametrize("kind", [ControllerNetwork, ground.Blind])
def test_what_is_learned_from_is_what_was_played(kind):
    net, envs = network(kind=kind), [world.TableEnv(TASKS) for _ in range(6)]
    rows, _ = ground.Lockstep(TASKS).play(net, envs, list(range(6)), torch.Generator().manual_seed(0), 0.1)
    rows.check(len(net.heads))
    again = replay(net, rows, 0.1)
    known = rows.valid.unsqueeze(-1)
    torch.testing.assert_close(again.log_probs * known, rows.log_probs * known, atol=1e-4, rtol=1e-4)


def test_a_blind_network_decides_where_to_grow_without_a_look_at_offers():
    env = world.TableEnv(TASKS[:1])
    observation, _ = env.reset(seed=0)
    seen = {name: torch.from_numpy(array).unsqueeze(0) for name, array in observation.items()}
    other = seen | {"blueprints": torch.rand_like(seen["blueprints"])}
    for kind, same in ((ground.Blind, True), (ControllerNetwork, False)):
        net = network(kind=kind)
        made = (act(net, each, net.memory.start(1), torch.tensor([True]), None) for each in (seen, other))
        assert torch.allclose(*(each.distributions[0] for each in made)) is same


RANKER = find_policy("ranker")


def plays(seeds):
    return first.ranker_plays(RANKER, TASKS, ground.Lockstep(TASKS), seeds)


def test_episodes_of_odd_seeds_are_seen_an_epoch_later_and_decided_at_once(monkeypatch):
    monkeypatch.setattr(first, "BLINDNESS", 0.0)
    shown = plays([4, 5])
    assert shown.decided.tolist() == [1, 0]
    steps = shown.rows.valid.sum(dim=1).tolist()
    whole = [plays([seed]).rows.valid.sum().item() for seed in (4, 5)]
    assert steps == whole
    env = world.TableEnv(TASKS, ground.RENTS)
    env.reset(seed=5)
    assert steps[1] == env.task.horizon - 1


def test_what_is_not_measured_is_hidden_in_the_whole_episode_and_the_ranker_decides_without():
    seed = next(seed for seed in range(0, 1000, 2) if first.unmeasured(seed) == first.UNMEASURED["gains"])
    shown = plays([seed])
    column = FIELDS.blueprints.index("gain_push")
    assert not shown.rows.observation["blueprints_valid"][..., column].any()
    assert shown.rows.observation["blueprints_valid"].any()
    assert shown.decided.tolist() == [1], "it waits for gains, but not for ever"
    often = [bool(first.unmeasured(seed)) for seed in range(400)]
    assert sum(often) / 400 == pytest.approx(1 - (1 - first.BLINDNESS) ** 4, abs=0.08)


def test_what_was_expected_of_seeds_is_kept_from_the_step_of_the_decision(monkeypatch):
    monkeypatch.setattr(first, "BLINDNESS", 0.0)
    shown = plays([4])
    env = world.TableEnv(TASKS, ground.RENTS)
    env.reset(seed=4)
    observation, *_ = env.step(env.codec.encode(WAIT))
    worths = torch.from_numpy(RANKER.worths(observation, env.codec)).float()
    torch.testing.assert_close(shown.worths[0][tuple(map(slice, worths.shape))], worths)
    assert shown.worths[0].isfinite().sum() == worths.isfinite().sum(), "padding is worth nothing"


def test_nothing_is_as_likely_as_the_best_seed_not_to_pay():
    nothing = -torch.inf
    chances = first.chances(torch.tensor([[[0.0, nothing]], [[0.03, 0.0]], [[-0.3, -0.3]]]))
    torch.testing.assert_close(chances.sum(dim=1), torch.ones(3))
    torch.testing.assert_close(chances[0], torch.tensor([0.5, 0.5, 0.0]))
    assert chances[1].argmax() == 1
    torch.testing.assert_close(chances[1, 1] / chances[1, 2], torch.tensor(2.0).exp())
    assert chances[2, 0] > 0.99


def test_first_weights_do_what_the_ranker_does_and_are_as_unsure(monkeypatch):
    for name, number in {"EPISODES": 60, "TOGETHER": 30, "STEPS": 60, "DECISIONS": 32}.items():
        monkeypatch.setattr(first, name, number)
    unseen, newborn = plays(list(range(100, 110))), network()
    learned = first.first_network(RANKER, TASKS, seed=0)
    with torch.no_grad():
        assert first.surprise(learned, unseen) < 0.5 * first.surprise(newborn, unseen)
        assert first.unsureness(learned, unseen) < 0.7 * first.unsureness(newborn, unseen)
