"""Recorded episodes: what is in them, and how they are split."""

import pytest
import torch

from esper.rl import Contents, EpisodesInMemory, NoSteps, join, returns_to_go
from tests.rl import lock

HABITS = [lock.MISTAKEN, lock.EARLY]


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def test_a_pass_gives_every_episode_once_in_an_order_of_the_generator():
    rows = lock.recorded(HABITS, 10, seed=0)
    batches = list(EpisodesInMemory(rows).batches(6, generator()))
    assert [batch.rows for batch in batches] == [6, 6, 6, 2]
    given = sorted(batch.rewards[row].sum().item() for batch in batches for row in range(batch.rows))
    assert given == pytest.approx(sorted(rows.rewards.sum(dim=1).tolist()))
    again = join(list(EpisodesInMemory(rows).batches(6, generator())))
    assert torch.equal(again.choices, join(batches).choices)
    other = join(list(EpisodesInMemory(rows).batches(6, torch.Generator().manual_seed(4))))
    assert not torch.equal(other.rewards, join(batches).rewards)


def test_no_batch_has_a_step_behind_its_longest_episode():
    rows = lock.recorded(HABITS, 10, seed=0)
    for batch in EpisodesInMemory(rows).batches(1, generator()):
        assert bool(batch.valid.all())


def test_a_split_keeps_every_episode_on_one_side():
    rows = lock.recorded(HABITS, 10, seed=0)
    training, held_out = EpisodesInMemory(rows).split(0.25, generator())
    assert (training.rows.rows, held_out.rows.rows) == (15, 5)
    steps = training.rows.valid.sum() + held_out.rows.valid.sum()
    assert steps == rows.valid.sum()
    one = EpisodesInMemory(rows.take(torch.tensor([0])))
    with pytest.raises(NoSteps, match="there is one episode; give at least two"):
        one.split(0.5, generator())


def test_contents_are_counted_and_returns_to_go_are_discounted_sums():
    rows = lock.recorded(HABITS, 10, seed=0)
    found = Contents.of(EpisodesInMemory(rows), heads=2, discount=0.9, batch=7)
    expected = []
    for row in range(rows.rows):
        steps = int(rows.valid[row].sum())
        for step in range(steps):
            after = 0.9 ** (steps - step) * rows.bootstrap[row, steps - 1]
            expected.append(float(sum(0.9**k * rows.rewards[row, step + k] for k in range(steps - step)) + after))
    assert (found.episodes, found.steps) == (20, int(rows.valid.sum()))
    assert found.returns.mean == pytest.approx(sum(expected) / len(expected), abs=1e-5)
    assert returns_to_go(rows, 0.9)[rows.valid].tolist() == pytest.approx(expected, abs=1e-5)
    turned = int((rows.choices[..., 0][rows.valid] == lock.TURN).sum())
    assert found.chosen.tolist() == [found.steps - turned, turned]


def test_no_episodes_are_refused():
    class Nothing:
        def batches(self, episodes, generator):
            return iter(())

    with pytest.raises(NoSteps, match="there are no episodes to learn from; record some first"):
        Contents.of(Nothing(), 2, 1.0, 8)
