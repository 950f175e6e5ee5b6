"""Earlier rollouts in an update: judged by the present policy, counted by what has become of their choices."""

from dataclasses import replace

import pytest
import torch

from esper.rl import Learner, replay
from esper.rl.reuse import Rollout, recalled, rollout_in
from tests.rl.cases import STEADY, assert_same, everything_of, ragged, rollout, small_network, tensors_of


def moved(seed: int = 0, size: float = 0.3):
    """A network, and rows that it made before its weights moved."""
    network = small_network(seed)
    rows = ragged(network, ends=0.4)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(size * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed)))
    return network, Rollout(rows, (0, 1, 0, 1))


def test_a_rollout_alone_is_learned_from_as_it_is():
    network, newest = moved()
    experience = recalled(network, newest, (), 0.0)
    assert experience.sequences is newest.sequences
    assert torch.equal(experience.counts, torch.ones_like(newest.sequences.rewards))
    assert experience.groups == newest.groups


def test_old_rows_have_the_probabilities_and_values_of_the_present_policy():
    network, old = moved()
    newest = Rollout(rollout(network, rows=2, steps=9, seed=5), (1, 1))
    experience = recalled(network, newest, [old], 0.1)
    whole, now = experience.sequences, replay(network, old.sequences, 0.1)
    assert (whole.rows, experience.groups) == (6, (1, 1, 0, 1, 0, 1))
    fresh = whole.take(torch.arange(2))
    for name, tensor in tensors_of(newest.sequences).items():
        assert torch.equal(tensors_of(fresh)[name], tensor), name
    steps = old.sequences.valid.shape[1]
    free, valid = old.sequences.free, old.sequences.valid
    torch.testing.assert_close(whole.log_probs[2:, :steps][free], now.log_probs[free].detach())
    torch.testing.assert_close(whole.values[2:, :steps][valid], now.values[valid].detach())
    torch.testing.assert_close(whole.rewards[2:, :steps], old.sequences.rewards)
    assert not whole.values[2:][~whole.valid[2:]].any()


@pytest.mark.parametrize("size", [0.01, 3.0])
def test_an_old_decision_counts_by_how_much_likelier_all_of_it_has_become_up_to_1(size):
    network, old = moved(size=size)
    newest = Rollout(rollout(network, rows=1, steps=6), (0,))
    counts = recalled(network, newest, [old], 0.0).counts
    assert torch.equal(counts[:1], torch.ones(1, 6))
    rows = old.sequences
    moves = (replay(network, rows).log_probs - rows.log_probs).detach()
    ratio = torch.where(rows.free, moves, 0.0).sum(dim=-1).exp()
    torch.testing.assert_close(counts[1:][rows.valid], ratio[rows.valid].clamp(max=1.0))
    assert bool((ratio > 1.5).any()) == (size == 3.0)


def test_what_is_expected_after_a_row_has_changed_as_the_value_of_its_last_state_has():
    """A stale bootstrap beside fresh values would be an error of the critic's whole progress. Termination stays 0."""
    network, old = moved(size=3.0)
    rows, now = old.sequences, replay(network, old.sequences)
    experience = recalled(network, Rollout(rollout(network, rows=1, steps=6), (0,)), [old], 0.0)
    again = experience.sequences.bootstrap[1:]
    cut = rows.bootstrap != 0
    assert cut.any()
    assert (rows.ends & ~cut).any()
    torch.testing.assert_close(again[cut], (rows.bootstrap + now.values - rows.values).detach()[cut])
    assert not again[~cut].any()


def test_counted_old_decisions_have_the_gradient_of_the_present_policy():
    """Of two heads, the second used under the first's choice 1: the first is credited with what the second does now."""
    op, kind = torch.tensor([0.0, 0.0], requires_grad=True), torch.tensor([3.0, 0.0, 0.0])
    pays = torch.tensor([[0.0, 0.0, 0.0], [1.0, -0.5, -0.5]])

    def chances(op, kind):
        first, second = op.softmax(0), kind.softmax(0)
        return torch.stack([torch.cat([first[:1], torch.zeros(2)]), first[1] * second])

    then, now = chances(torch.tensor([0.0, 0.0]), torch.zeros(3)), chances(op, kind)
    on_policy = torch.autograd.grad((now * pays).sum(), op, retain_graph=True)[0]
    ratio = (now / then.clamp(min=1e-9)).detach()
    score = op.log_softmax(0).unsqueeze(-1)
    joint = torch.autograd.grad((then * ratio * pays * score).sum(), op, retain_graph=True)[0]
    torch.testing.assert_close(joint, on_policy)
    of_first = (op.softmax(0) / torch.tensor([0.5, 0.5])).detach().unsqueeze(-1)
    alone = torch.autograd.grad((then * of_first * pays * score).sum(), op)[0]
    assert on_policy[1] > 0.2
    assert alone[1] < 0.05


def test_before_the_first_step_no_ratio_differs_from_one_whatever_was_recalled():
    """So that the clip range and the KL target are about this update alone."""
    learner = Learner(small_network(), replace(STEADY, reuse=3, learning_rate=0.05, epochs=3))
    for seed in range(3):
        learner.update(rollout(learner.network, seed=seed))
    still = replace(learner.config, learning_rate=1e-8, final_learning_rate=0.0, epochs=1)
    learner.config = still
    metrics = learner.update(rollout(learner.network, seed=7), progress=1.0)
    assert metrics.kl == pytest.approx(0.0, abs=1e-9)
    assert all(abs(ratio - 1) < 1e-4 for h in metrics.heads.values() for ratio in (h.lowest_ratio, h.highest_ratio))


@pytest.mark.parametrize(("reuse", "kept"), [(1, []), (2, [3]), (3, [3, 2]), (9, [3, 2, 1, 0])])
def test_a_learner_keeps_as_many_rollouts_as_it_will_use_again(reuse, kept):
    learner = Learner(small_network(), replace(STEADY, reuse=reuse))
    rollouts = [rollout(learner.network, seed=seed) for seed in range(4)]
    for each in rollouts:
        learner.update(each)
    assert len(learner.past) == len(kept)
    for past, seed in zip(learner.past, kept, strict=True):
        assert torch.equal(past.sequences.rewards, rollouts[seed].rewards)
        assert past.sequences.rewards.data_ptr() != rollouts[seed].rewards.data_ptr()


def test_counters_and_figures_of_returns_are_of_the_newest_rollout():
    learner = Learner(small_network(), replace(STEADY, reuse=4))
    for seed in range(3):
        rows = ragged(learner.network, (seed + 1, 2))
        metrics = learner.update(rows)
        assert metrics.steps == seed + 3
    assert learner.counters.environment_steps == 3 + 4 + 5


def test_what_was_learned_before_still_teaches():
    """A newest rollout of equal rewards teaches the policy nothing; an earlier one beside it does."""
    outcomes = []
    for reuse in (1, 2):
        learner = Learner(small_network(), replace(STEADY, reuse=reuse, value_weight=0.0, entropy_weight=0.0, epochs=1))
        learner.update(rollout(learner.network, seed=1))
        learner.optimizer.state.clear()
        before = everything_of(learner)["actor.weight"]
        flat = rollout(learner.network, seed=2)
        flat = flat._replace(**{name: torch.zeros_like(flat.values) for name in ("rewards", "values", "bootstrap")})
        learner.update(flat)
        outcomes.append(torch.equal(before, everything_of(learner)["actor.weight"]))
    assert outcomes == [True, False]


def test_a_rollout_written_plainly_comes_back_the_same():
    network, old = moved()
    again = rollout_in(old.plain(), network)
    assert again.groups == old.groups
    assert_same(tensors_of(again.sequences), tensors_of(old.sequences))
