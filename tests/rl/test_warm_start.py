"""Going on from a policy worth keeping: the critic first, near where it began, and exactly after an interruption."""

from dataclasses import replace

import pytest
import torch

from esper.rl import BadCheckpoint, Learner, load_checkpoint, replay, restore, restore_weights, save_checkpoint
from tests.rl.cases import STEADY, assert_same, everything_of, rollout, small_network, weights_of

ANCHORED = replace(STEADY, anchor_weight=1.0, anchor_share=1.0)


def moved_by(config, updates: int = 3) -> tuple[float, Learner]:
    """How far the policy is from its start after some updates, in squared nats, and the learner."""
    network = small_network()
    rows = rollout(network, rows=8, steps=8)
    learner = Learner(network, config)
    for seed in range(updates):
        learner.update(rollout(network, rows=8, steps=8, seed=seed))
    with torch.no_grad():
        away = (replay(network, rows).log_probs - rows.log_probs)[rows.free]
    return away.square().mean().item(), learner


def test_the_critic_learns_alone_first_and_the_policy_after_it():
    """First updates do not destroy a policy whose critic is still to come."""
    network = small_network()
    learner = Learner(network, replace(STEADY, critic_updates=2))
    critic = {f"critic.{name}" for name in network.critic.state_dict()}
    for number in range(3):
        before = weights_of(network)
        learner.update(rollout(network, rows=4, seed=number))
        changed = {name for name, value in weights_of(network).items() if not torch.equal(value, before[name])}
        assert (changed <= critic) == (number < 2), changed
        assert changed & critic


def test_a_critic_that_learned_alone_expects_returns_better():
    rows = rollout(small_network(), rows=8, steps=8)
    learner = Learner(small_network(), replace(STEADY, critic_updates=20))
    errors = []
    for _ in range(10):
        with torch.no_grad():
            rows = rows._replace(values=replay(learner.network, rows).values)
        errors.append(learner.update(rows).value_error)
    assert errors[-1] < 0.95 * errors[1]


def test_the_anchor_keeps_the_policy_near_where_it_began():
    free, _ = moved_by(STEADY)
    kept, learner = moved_by(ANCHORED)
    assert kept < 0.5 * free
    assert all(not parameter.requires_grad for parameter in learner.anchor.parameters())


def test_the_divergence_from_the_anchor_is_told_and_is_none_without_one():
    _, learner = moved_by(ANCHORED, updates=1)
    rows = rollout(learner.network, rows=4, steps=6)
    with torch.no_grad():
        away = (replay(learner.anchor, rows).log_probs - rows.log_probs).masked_fill(~rows.free, 0.0)
    expected = (away.expm1() - away).sum() / rows.free.any(dim=-1).sum()
    learner.config = replace(learner.config, epochs=1)
    assert learner.update(rows).anchor_kl == pytest.approx(expected.item(), rel=1e-4)
    _, other = moved_by(STEADY, updates=1)
    assert other.update(rows).anchor_kl is None


def test_the_weight_of_the_anchor_falls_to_zero_at_its_share_of_the_training():
    config = replace(STEADY, anchor_weight=2.0, anchor_share=0.5)
    assert [config.anchor_weight_at(progress) for progress in (0.0, 0.25, 0.5, 1.0)] == [2.0, 1.0, 0.0, 0.0]


def test_what_is_estimated_has_in_the_mean_the_gradient_of_the_divergence_of_the_policy_from_the_anchor():
    logits = torch.randn(5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    anchor = torch.randn(5, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).log_softmax(dim=0)
    policy = logits.log_softmax(dim=0)
    away = anchor - policy
    estimated = (policy.detach().exp() * (away.expm1() - away)).sum()
    true = (anchor.exp() * (anchor - policy)).sum()
    torch.testing.assert_close(*(torch.autograd.grad(each, logits, retain_graph=True) for each in (estimated, true)))


def test_a_learner_goes_on_bit_for_bit_with_its_anchor(tmp_path):
    """The frozen policy is in the checkpoint."""
    config = replace(ANCHORED, critic_updates=1)
    _, learner = moved_by(config)
    path = tmp_path / "learner.pt"
    save_checkpoint(path, learner, {})
    other = Learner(small_network(seed=5), config)
    restore(load_checkpoint(path), other)
    for each in (learner, other):
        each.update(rollout(small_network(), rows=4, seed=9), progress=0.3)
    assert_same(everything_of(learner), everything_of(other))
    assert_same(weights_of(learner.anchor), weights_of(other.anchor))


def test_weights_alone_begin_a_new_course_with_an_anchor_of_its_own(tmp_path):
    _, learner = moved_by(ANCHORED)
    path = tmp_path / "learner.pt"
    save_checkpoint(path, learner, {})
    _, other = moved_by(ANCHORED)
    restore_weights(load_checkpoint(path), other)
    other.update(rollout(other.network, rows=4))
    assert_same(weights_of(other.anchor), weights_of(learner.network))


def test_an_anchor_that_does_not_fit_is_refused_and_nothing_is_changed(tmp_path):
    _, learner = moved_by(ANCHORED)
    learner.anchor.actor = torch.nn.Linear(3, 2)
    path = tmp_path / "learner.pt"
    save_checkpoint(path, learner, {})
    other = Learner(small_network(seed=5), ANCHORED)
    before = everything_of(other)
    with pytest.raises(BadCheckpoint, match=r"weight 'actor\.weight' is .* in the checkpoint and .* in the network"):
        restore(load_checkpoint(path), other)
    assert_same(everything_of(other), before)
