"""Implicit Q-learning against a solved world, and the parts of its losses."""

import pytest
import torch

from esper.rl import IQL, EpisodesInMemory, GaussianNetwork, Imitation, ImitationConfig, IQLConfig, RLError, replay
from esper.rl.iql import RANGES, expectile_loss
from tests.rl import lock
from tests.rl.cases import ragged, rollout, small_network

QUICK = IQLConfig(discount=lock.DISCOUNT, steps=250, batch=32, expectile=0.95, polyak=0.1, learning_rate=1e-2)
MIXED = [lock.MISTAKEN, lock.MISTAKEN, lock.MISTAKEN, lock.EARLY, lock.LATE]


def learner(seed: int, config: IQLConfig = QUICK) -> IQL:
    return IQL(lock.network(seed), (lock.network(100 + seed), lock.network(200 + seed)), config)


@pytest.mark.parametrize("seed", range(3))
def test_the_best_policy_is_found_in_a_mixture_where_cloning_repeats_the_usual_mistake(seed):
    """C-offline: each recorded policy knows half of the lock at most; the reference is value iteration."""
    training, held_out = EpisodesInMemory(lock.recorded(MIXED, 40, seed)).split(0.1, torch.Generator().manual_seed(0))
    _, best = lock.solved()
    clone = lock.network(seed)
    Imitation(clone, ImitationConfig(passes=8)).learn(training, held_out)
    found = learner(seed)
    found.learn(training)
    assert lock.worth(found.network) == pytest.approx(best, abs=1e-4)
    assert lock.worth(clone) < 0.5 * best


def test_v_lies_between_the_mean_of_what_was_done_and_the_best():
    """The expectile: at a half it is what the recorded policies have on average."""
    rows = lock.recorded(MIXED, 40, seed=0)
    seen = {"vector": torch.eye(lock.DIALS).unsqueeze(1), "mask": lock.masks(lock.DIALS, 1)}
    values = []
    for expectile in (0.5, 0.95):
        found = learner(0, IQLConfig(**vars(QUICK) | {"expectile": expectile, "steps": 120}))
        found.learn(EpisodesInMemory(rows))
        state, starts = found.network.memory.start(lock.DIALS), torch.ones(lock.DIALS, 1, dtype=torch.bool)
        values.append(found.network.encode(seen, state, starts).values.flatten())
    best, _ = lock.solved()
    assert bool((values[0] < values[1]).all())
    assert bool((values[1] < best + 0.15).all())


def test_q_is_what_the_critic_says_plus_nats_of_used_heads_alone():
    """Unused heads are masked: what is written in their place moves nothing."""
    network = small_network()
    rows = ragged(network)
    found = IQL(network, (small_network(1), small_network(2)), IQLConfig(sharpness=0.5))
    judge = found.judges[0]
    rows = rows._replace(state=judge.memory.start(rows.rows))
    judged = replay(judge, rows)
    nats = torch.where(rows.free, judged.log_probs, 0.0).sum(dim=-1)
    expected = judged.values + 0.5 * found.moments.deviation * nats
    torch.testing.assert_close(found.q(judge, rows)[rows.valid], expected[rows.valid])


def test_an_unused_head_of_a_judge_gets_no_gradient():
    network = small_network()
    rows = rollout(network, rows=6, steps=8)
    silent = rows._replace(choices=torch.zeros_like(rows.choices))
    found = IQL(network, (small_network(1), small_network(2)))
    judge = found.judges[0]
    found.q(judge, silent).sum().backward()
    own = judge.head_gradients()[list(network.heads).index("style")]
    assert not any(bool(gradient.any()) for gradient in own)


def test_believed_networks_follow_by_polyak_and_get_no_gradient():
    rows = lock.recorded(MIXED, 4, seed=0)
    found = learner(0, IQLConfig(**vars(QUICK) | {"polyak": 0.25}))
    before = [each.clone() for each in found.believed[1].parameters()]
    found.step(rows)
    followed = zip(before, found.believed[1].parameters(), found.judges[1].parameters(), strict=True)
    for old, believed, judge in followed:
        torch.testing.assert_close(believed, old + 0.25 * (judge - old))
        assert not believed.requires_grad


def test_a_step_that_ends_a_cut_episode_teaches_no_q():
    """What follows it was not recorded; a terminated one is followed by nothing, which is known."""
    rows = lock.recorded(MIXED, 8, seed=1)
    cut = rows.ends & (rows.bootstrap != 0)
    assert bool(cut.any())
    found, other = learner(0), learner(0)
    found.step(rows)
    other.step(rows._replace(rewards=torch.where(cut, 1e3, rows.rewards)))
    for one, same in zip(found.judges[0].parameters(), other.judges[0].parameters(), strict=True):
        assert torch.equal(one, same)


def test_a_network_of_real_numbers_is_refused():
    networks = [GaussianNetwork(2, ("push",), torch.tensor([-1.0]), torch.tensor([1.0])) for _ in range(3)]
    with pytest.raises(RLError, match="actions are real numbers, of which Q would be a parabola"):
        IQL(networks[0], (networks[1], networks[2]))


def test_errors_above_count_the_expectile_and_those_below_the_rest():
    found = expectile_loss(torch.tensor([2.0, -2.0]), 0.9)
    torch.testing.assert_close(found, torch.tensor([3.6, 0.4]))


@pytest.mark.parametrize("name", RANGES)
def test_setting_outside_its_range_is_refused(name):
    with pytest.raises(RLError, match=f"{name} = -1; give a value from"):
        IQLConfig(**{name: -1})
