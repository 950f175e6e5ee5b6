"""What is compared in the world of tables is played and scored as it would be one by one."""

import importlib
import sys
from pathlib import Path

import pytest
import torch

from esper.contracts import Op
from esper.controller import ControllerNetwork, Learned
from esper.environment import FIELDS
from esper.rl import act, log_probabilities, replay

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


@torch.no_grad()
def test_the_expected_score_is_that_of_what_is_drawn():
    """Head by head, as it is drawn: op, then slot, then blueprint."""
    net = network(1)
    rows, worth = first.ranker_plays(TASKS, ground.Lockstep(TASKS), [3])
    seen = {name: value[:, : first.LOOK + 1] for name, value in rows.observation.items()}
    encoded = net.encode(seen, rows.state, rows.starts[:, : first.LOOK + 1])

    def chances(level, slot=0):
        choices = torch.tensor([Op.GERMINATE, slot, 0, 0, 0, 0, 0, 0]).expand(1, first.LOOK + 1, -1)
        return log_probabilities(*net.logits(encoded, seen, level, choices))[0, first.LOOK, 0].exp()

    _, slots, blueprints = worth.shape
    drawn = sum(chances(1)[slot] * (chances(2, slot)[:blueprints] * worth[0, slot]).sum() for slot in range(slots))
    expected = chances(0)[Op.GERMINATE] * drawn
    torch.testing.assert_close(first.expected_score(net, rows, worth), expected, atol=1e-5, rtol=1e-4)


def test_both_stages_lead_to_a_controller_that_does_what_the_ranker_does(monkeypatch):
    for name, number in {"EPISODES": 60, "TOGETHER": 30, "IMITATING": 40, "CHOOSING": 10, "BATCH": 16}.items():
        monkeypatch.setattr(first, name, number)
    rows, _ = first.ranker_plays(TASKS, ground.Lockstep(TASKS), list(range(100, 110)))

    def nats(net):
        again = replay(net, rows)
        return -(again.log_probs * (again.free & rows.valid.unsqueeze(-1))).sum().item()

    assert nats(first.first_network(TASKS, seed=0)) < 0.5 * nats(network())
