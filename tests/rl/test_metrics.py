"""What an update says of itself: typed, complete, and true."""

from dataclasses import fields, replace
from types import NoneType
from typing import get_args, get_type_hints

import pytest
import torch

from esper.rl import HeadMetrics, Learner, PPOConfig, UpdateMetrics
from tests.rl.cases import SIZES, STEADY, alone, ragged, rollout, small_network


def update(network, sequences, config=STEADY, **options) -> UpdateMetrics:
    return Learner(network, config, **options).update(sequences)


@pytest.mark.parametrize("masked", [True, False])
def test_every_field_is_filled_with_its_type(masked):
    """R0-P5, R0-T1, R0-T2, R4-M12, R1-M3: one typed structure of plain numbers, and nothing in it is left empty."""
    network = small_network()
    metrics = update(network, rollout(network, masked=masked), replace(STEADY, anchor_weight=0.1))
    for part in (metrics, *metrics.heads.values()):
        hints = get_type_hints(type(part))
        for field in fields(part):
            value, hint = getattr(part, field.name), hints[field.name]
            if field.name == "heads":
                continue
            kinds = get_args(hint) or (hint,)
            assert type(value) in kinds, field.name
            assert type(value) is not NoneType, field.name
    assert list(metrics.heads) == list(SIZES)


def test_figures_are_those_of_the_experience():
    """R0-T1, R0-T2: mean and deviation of the advantages before normalisation, over the steps that had a choice."""
    network = small_network()
    sequences = ragged(network)
    learner = Learner(network, STEADY)
    metrics = learner.update(sequences)
    valid, free = sequences.valid, sequences.free & sequences.valid.unsqueeze(-1)
    returns = Learner(small_network(), STEADY)._targets(alone(sequences)).returns
    errors = (returns - sequences.values)[valid]
    raw = (returns - sequences.values)[free.any(dim=-1)]
    assert metrics.advantage_mean == pytest.approx(raw.mean().item(), abs=1e-6)
    assert metrics.advantage_deviation == pytest.approx(raw.std(correction=0).item(), abs=1e-6)
    assert metrics.return_mean == pytest.approx(returns[valid].mean().item(), abs=1e-6)
    assert metrics.return_deviation == pytest.approx(returns[valid].std(correction=0).item(), abs=1e-6)
    assert metrics.value_error == pytest.approx(errors.square().mean().sqrt().item(), abs=1e-6)
    following = torch.where(
        sequences.ends, sequences.bootstrap, torch.nn.functional.pad(sequences.values[:, 1:], (0, 1))
    )
    steps = (sequences.rewards + STEADY.discount * following - sequences.values)[valid]
    assert metrics.bellman_error == pytest.approx(steps.square().mean().sqrt().item(), abs=1e-6)
    explained = 1 - errors.var(correction=0) / returns[valid].var(correction=0)
    assert metrics.explained_variance == pytest.approx(explained.item(), abs=1e-4)
    assert metrics.steps == int(valid.sum()) == 13
    assert metrics.forced_steps == int((valid & ~free.any(dim=-1)).sum())
    assert [head.steps for head in metrics.heads.values()] == free.sum(dim=(0, 1)).tolist()


def test_figures_leave_the_device_in_one_transfer(monkeypatch):
    """R1-M1, R4-M14: one question per optimiser step, and one list of all metrics at the end."""
    network = small_network()
    sequences = rollout(network)
    learner = Learner(network, STEADY)
    learner.update(sequences)
    asked = []
    fetch = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda tensor: asked.append(tensor.numel()) or fetch(tensor))
    metrics = learner.update(sequences)
    assert asked[:-1] == [2] * metrics.optimiser_steps
    assert asked[-1] > 20


def test_measuring_asks_the_device_once_whatever_it_is_asked_by(monkeypatch):
    """R1-M1, R4-M14."""
    network = small_network()
    sequences = rollout(network)
    learner = Learner(network, STEADY)
    learner.update(sequences)
    asked = []
    for name in ("tolist", "item", "__bool__", "__int__", "__float__", "numpy", "cpu"):
        method = getattr(torch.Tensor, name)

        def spy(tensor, *rest, method=method, name=name):
            asked.append(name)
            return method(tensor, *rest)

        monkeypatch.setattr(torch.Tensor, name, spy)
    before = []
    learner.optimizer.register_step_post_hook(lambda *_: before.append(len(asked)))
    learner.update(sequences)
    assert asked[before[-1] :] == ["tolist"]


@pytest.mark.parametrize("head", range(len(SIZES)), ids=SIZES)
@pytest.mark.parametrize("push", [8.0, -8.0])
def test_worst_head_is_the_one_whose_ratio_left_one_the_furthest(head, push):
    """R1-L4: up or down, and not always the first."""
    network = small_network()
    sequences = rollout(network, rows=8, steps=8)
    with torch.no_grad():
        network.actor.bias[4 * head] += push
    metrics = update(network, sequences, PPOConfig(target_kl=1e-3))
    assert metrics.stopped_early
    assert metrics.worst_head == [*SIZES][head]
    worst = metrics.heads[metrics.worst_head]
    assert max(worst.highest_ratio, 1 / worst.lowest_ratio) > 10


def test_a_ratio_that_fell_counts_as_much_as_one_that_rose():
    """R1-L4: a hundredth is further from 1 than fifty."""
    network = small_network()
    metrics = update(network, rollout(network))
    fell, rose = HeadMetrics(1, 0.5, 1.0, 0.01, 1.1, 0.1), HeadMetrics(1, 0.5, 1.0, 0.9, 50.0, 0.1)
    assert replace(metrics, heads={"rose": rose, "fell": fell}).worst_head == "fell"
    vanished = replace(fell, lowest_ratio=0.0)
    assert replace(metrics, heads={"rose": rose, "vanished": vanished}).worst_head == "vanished"


def test_a_head_without_a_choice_has_no_entropy_and_no_kl_rather_than_zero():
    network = small_network()
    sequences = rollout(network)
    free = sequences.free.clone()
    free[..., 2] = False
    metrics = update(network, sequences._replace(free=free))
    assert metrics.heads["style"] == HeadMetrics(0, None, 0.0, 1.0, 1.0, None)
    assert metrics.heads["op"].entropy is not None


def test_entropy_is_that_of_every_minibatch_also_where_the_head_had_no_choice_in_the_last():
    network = small_network()
    sequences = rollout(network, rows=4, steps=12, masked=False)
    still = replace(STEADY, learning_rate=1e-8, final_learning_rate=1e-8)
    free = sequences.free.clone()
    free[1:, :, 2] = False
    rare = sequences._replace(free=free)
    whole = update(network, rare, still).heads["style"].entropy
    parts = update(network, rare, replace(still, minibatches=4)).heads["style"].entropy
    assert whole > 0
    assert parts == pytest.approx(whole, rel=1e-4)


def test_kl_of_heads_over_their_own_steps_adds_up_to_the_kl_of_decisions():
    network = small_network()
    metrics = update(network, rollout(network, rows=8, steps=8), replace(STEADY, epochs=4))
    heads, deciding = metrics.heads.values(), metrics.steps - metrics.forced_steps
    assert min(head.kl for head in heads) > 0
    assert len({head.steps for head in heads}) > 1, "each by its own steps"
    assert sum(head.kl * head.steps for head in heads) == pytest.approx(metrics.kl * deciding, rel=1e-4)


@pytest.mark.parametrize("head", range(len(SIZES)), ids=SIZES)
def test_kl_names_the_head_that_moved(head):
    network = small_network()
    sequences = rollout(network, rows=8, steps=8)
    with torch.no_grad():
        network.actor.bias[4 * head] += 2.0
    metrics = update(network, sequences, replace(STEADY, learning_rate=1e-8, final_learning_rate=1e-8))
    assert max(metrics.heads, key=lambda name: metrics.heads[name].kl) == [*SIZES][head]


def test_kl_is_that_of_the_last_minibatch_in_which_the_head_had_a_choice():
    """The head is free in one row only, which no minibatch but one of each pass has."""
    network = small_network()
    sequences = rollout(network, rows=4, steps=12, masked=False)
    free = sequences.free.clone()
    free[1:, :, 2] = False
    with torch.no_grad():
        network.actor.bias[8] += 2.0
    still = replace(STEADY, learning_rate=1e-8, final_learning_rate=1e-8, epochs=1)
    whole = update(network, sequences._replace(free=free), still).heads["style"].kl
    assert whole > 0.01
    for seed in range(4):
        parts = update(network, sequences._replace(free=free), replace(still, minibatches=4), seed=seed)
        assert parts.heads["style"].kl == pytest.approx(whole, rel=1e-3)


def test_returns_that_do_not_vary_have_no_explained_variance():
    """Pitfall: a share of next to nothing reads as a disaster."""
    network = small_network()
    sequences = rollout(network, ends=1.0)
    flat = sequences._replace(rewards=torch.full((3, 6), 2.0), bootstrap=torch.zeros(3, 6))
    metrics = update(network, flat)
    assert metrics.explained_variance is None
    assert metrics.return_deviation == pytest.approx(0.0, abs=1e-5)
    assert metrics.value_error > 0


def test_one_forced_step_is_measured_without_nan():
    """R2-CRIT1."""
    network = small_network()
    sequences = rollout(network, rows=1, steps=1)
    metrics = update(network, sequences._replace(free=torch.zeros_like(sequences.free)))
    assert metrics.steps == metrics.forced_steps == 1
    assert metrics.advantage_mean == metrics.advantage_deviation == metrics.policy_loss == 0
    assert all(value == value for value in vars(metrics).values())
