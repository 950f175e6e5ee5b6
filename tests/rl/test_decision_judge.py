"""What a judge reads of a decision, and how its Q begins."""

import torch

from esper.rl import DecisionJudge
from tests.rl.cases import ragged, small_network


def test_only_heads_that_were_used_move_what_a_decision_is_worth():
    """Every choice of a used head does; what is written in the place of an unused one does not."""
    network = small_network()
    rows, judge = ragged(network), DecisionJudge(small_network(1), hidden=8)
    used = network.uses[rows.choices[..., 0]]
    for head, size in enumerate(network.sizes[1:], start=1):
        changed = rows.choices.clone()
        changed[..., head] = (changed[..., head] + 1) % size
        same = judge(rows) == judge(rows._replace(choices=changed))
        assert bool(used[..., head][rows.valid].any())
        assert torch.equal(same[rows.valid], ~used[..., head][rows.valid])


def test_what_happened_before_moves_what_a_decision_is_worth():
    """A judge has a memory of its own, from the start of each row."""
    network = small_network()
    rows, judge = ragged(network, (6, 6), ends=0.0), DecisionJudge(small_network(1), hidden=8)
    other = rows.observation["vector"].clone()
    other[:, 0] += 1.0
    moved = judge(rows) != judge(rows._replace(observation={**rows.observation, "vector": other}))
    assert bool(moved.all())


def test_a_newborn_judge_expects_about_the_mean_return():
    network = small_network()
    rows, judge = ragged(network), DecisionJudge(small_network(1), hidden=8)
    before = judge(rows)
    judge.rescale(-500.0, 20.0)
    torch.testing.assert_close(judge(rows), before * 20.0 - 500.0)
