"""Implicit Q-learning against a solved world, and the parts of its losses."""

import pytest
import torch
from torch import Tensor

from esper.rl import (
    IQL,
    Buffer,
    DecisionJudge,
    EpisodesInMemory,
    GaussianNetwork,
    Imitation,
    ImitationConfig,
    IQLConfig,
    RLError,
    Sequences,
    VectorConfig,
    act,
)
from esper.rl.iql import RANGES, expectile_loss
from tests.rl import lock

QUICK = IQLConfig(discount=lock.DISCOUNT, steps=250, batch=32, expectile=0.95, polyak=0.1, learning_rate=1e-2)
MIXED = [lock.MISTAKEN, lock.MISTAKEN, lock.MISTAKEN, lock.EARLY, lock.LATE]


def learner(seed: int, config: IQLConfig = QUICK) -> IQL:
    return IQL(lock.network(seed), (judge(100 + seed), judge(200 + seed)), config)


def judge(seed: int) -> DecisionJudge:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return DecisionJudge(lock.network(seed), hidden=16)


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


def test_real_numbers_that_paid_are_found_where_a_clone_does_what_was_done_in_the_mean():
    """Two habits, of which one pays; between them nothing does, and nobody ever was there."""
    draws = torch.Generator().manual_seed(0)
    numbers = torch.where(torch.rand(400, 1, generator=draws) < 0.7, -0.6, 0.6)
    numbers = numbers + 0.1 * torch.randn(400, 1, generator=draws)
    rows = pushes(numbers, paid=(numbers[:, 0] > 0).float())
    network, config = pusher(0), IQLConfig(steps=150, batch=64, learning_rate=1e-2, polyak=0.1)
    IQL(network, (DecisionJudge(pusher(1), 16), DecisionJudge(pusher(2), 16)), config).learn(EpisodesInMemory(rows))
    assert 0.4 < pushed(network) < 0.8
    clone = pusher(0)
    training, held_out = EpisodesInMemory(rows).split(0.1, draws)
    Imitation(clone, ImitationConfig(passes=8, learning_rate=1e-2)).learn(training, held_out)
    assert -0.4 < pushed(clone) < 0.0


def pusher(seed: int) -> GaussianNetwork:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        bounds = torch.tensor([-1.0]), torch.tensor([1.0])
        return GaussianNetwork(1, ("push",), *bounds, VectorConfig(hidden=8, memory=0, critic=8))


def pushes(numbers: Tensor, paid: Tensor) -> Sequences:
    """Episodes of one step each, in which the same is seen."""
    count = len(numbers)
    over, buffer = torch.ones(count, dtype=torch.bool), Buffer(count, 1, {"vector": torch.zeros(1)}, 1, continuous=True)
    buffer.begin(pusher(0).memory.start(count))
    buffer.decide({"vector": torch.zeros(count, 1)}, over, numbers, torch.zeros(count, 1), over[:, None])
    buffer.conclude(torch.zeros(count), paid, over, torch.zeros(count))
    return buffer.sequences()


def pushed(network: GaussianNetwork) -> float:
    """What it does greedily."""
    seen, first = {"vector": torch.zeros(1, 1)}, torch.tensor([True])
    return act(network, seen, network.memory.start(1), first, None).choices.item()


def test_errors_above_count_the_expectile_and_those_below_the_rest():
    found = expectile_loss(torch.tensor([2.0, -2.0]), 0.9)
    torch.testing.assert_close(found, torch.tensor([3.6, 0.4]))


@pytest.mark.parametrize("name", RANGES)
def test_setting_outside_its_range_is_refused(name):
    with pytest.raises(RLError, match=f"{name} = -1; give a value from"):
        IQLConfig(**{name: -1})
