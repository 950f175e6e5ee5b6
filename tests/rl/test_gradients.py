"""The gradient of the actor is the policy gradient, on toys in which that is known by summing over all episodes."""

import importlib
import sys
from pathlib import Path

import pytest
import torch

from esper.rl import PPOConfig, Replayed, Sequences, Targets, advantages, ppo_loss
from esper.rl.gae import gains
from esper.rl.memory import MemoryState

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
toys, report = importlib.import_module("toys"), importlib.import_module("gradients")

RARE = (0.5, 0.5, 0.5, 0.5, 0.5, -1.5)
TOYS = {
    "bandit": (toys.bandit, RARE),
    "doing it pays": (lambda: toys.hazard(1.0, 0.0), (2.5, 0.0)),
    "leaving it pays": (lambda: toys.hazard(0.0, 1.0), (2.5, 0.0)),
    "planting": (toys.planting, (0.0, 0.0)),
}
EVERY_SEED = range(3)


def case(name, seed):
    """A toy without noise, a policy, and what is true of it."""
    make, first = TOYS[name]
    toy = make()._replace(noise=0.0)
    policy = toys.Policy(toy, seed, first)
    return toy, policy, toys.exact(toy, policy)


def gradient_of(toy, policy, known, raw, counts):
    """Of the learner's loss, where every episode is a row and decisions count `counts`."""
    deciding = toy.deciding
    aims = gains(raw, deciding, counts, [0] * len(raw))
    nothing, no = torch.zeros_like(toy.rewards), torch.zeros_like(deciding)
    state = MemoryState(torch.zeros(0), torch.zeros(0))
    log_probs = known.log_probs.detach()
    rows = Sequences({}, toy.choices, log_probs, toy.free, *[nothing] * 3, no, no, torch.ones_like(no), state)
    new = Replayed(known.log_probs, torch.zeros_like(log_probs), toy.free, nothing)
    targets = Targets(aims, nothing, nothing)
    one, heads = torch.tensor(1.0), torch.zeros(len(toy.heads))
    loss = ppo_loss(new, rows, targets, heads, one, PPOConfig()).policy
    found = torch.autograd.grad(-loss, list(policy.parameters()), retain_graph=True)
    return torch.cat([part.flatten() for part in found])


def true_gradient(policy, known):
    found = torch.autograd.grad(known.value, list(policy.parameters()), retain_graph=True)
    return torch.cat([part.flatten() for part in found]) / known.scale


def course(toy, known):
    ends = torch.arange(toy.rewards.shape[1]).expand(toy.rewards.shape) == toy.rewards.shape[1] - 1
    return toy.rewards, known.values, torch.zeros_like(toy.rewards), ends, torch.ones_like(ends)


@pytest.mark.parametrize("seed", EVERY_SEED)
@pytest.mark.parametrize("name", TOYS)
def test_the_mean_gradient_is_the_policy_gradient_in_deviations_of_the_gain(name, seed):
    """In sign and in size, for every parameter: each episode as often as the policy plays it."""
    toy, policy, known = case(name, seed)
    as_often = known.chances.unsqueeze(-1).expand_as(toy.rewards)
    raw = advantages(*course(toy, known), 1.0, 1.0)
    found, true = gradient_of(toy, policy, known, raw, as_often), true_gradient(policy, known)
    torch.testing.assert_close(found, true, rtol=1e-3, atol=1e-3 * float(true.norm()))


@pytest.mark.parametrize("seed", EVERY_SEED)
@pytest.mark.parametrize("name", TOYS)
def test_rows_of_another_policy_have_the_same_gradient_where_decisions_count_by_their_joint_ratio(name, seed):
    """V-trace without its limit of 1, which exists against noise: each episode as often as the older policy plays it.

    A decision counts by its own ratio and by those of the decisions that led to it.
    """
    toy, policy, known = case(name, seed)
    older = toys.exact(toy, toys.Policy(toy, seed + 100, TOYS[name][1]))
    ratio = (known.log_probs - older.log_probs).sum(dim=-1).exp().detach()
    raw = advantages(*course(toy, known), 1.0, 1.0, ratio)
    before = torch.nn.functional.pad(ratio.cumprod(dim=1)[:, :-1], (1, 0), value=1.0)
    reached = older.chances.unsqueeze(-1) * before
    found, true = gradient_of(toy, policy, known, raw, reached * ratio), true_gradient(policy, known)
    assert not torch.allclose(ratio, torch.ones_like(ratio), atol=0.1)
    assert report.cosine(found, true) > 0.999


def test_heads_that_are_seldom_used_have_their_share_of_the_trunk_and_no_more():
    """Averaged each over its own steps, three heads that one op in fourteen uses would own it."""
    found = {name: [] for name in ("own average of each head", "one average")}
    for seed in EVERY_SEED:
        for name, measures in report.in_bandit(seed, 20).items():
            if name in found:
                found[name].append((measures["share, op"], measures["length, style"], measures["cosine"]))
    (own, length, cosine), (one, right, better) = (torch.tensor(each).mean(dim=0).tolist() for each in found.values())
    assert own < 0.5 < 0.75 < one
    assert right < 3 < 10 < length
    assert cosine < 0.7 < better


def test_an_op_is_not_credited_with_what_an_older_head_chose():
    """Of 8 rows one is fresh. The derivative by the logit of planting is positive, and nearly that of fresh rows alone;
    counted head by head it is next to nothing."""
    found = [report.in_planting(seed, 30) for seed in EVERY_SEED]
    fresh, by_head, by_decision = (
        sum(each[name]["planting"] for each in found) / len(found)
        for name in ("fresh rows alone", "7 of 8 recalled, head by head", "7 of 8 recalled, V-trace")
    )
    assert fresh == pytest.approx(1.0, abs=0.15)
    assert by_head < 0.15
    assert by_decision > 0.3


@pytest.mark.parametrize("seed", EVERY_SEED)
def test_log_probabilities_of_what_is_done_have_an_expected_score_of_0(seed):
    toy, _, known = case("leaving it pays", seed)
    assert report.score(toy, known, known.log_probs.detach()) == pytest.approx(0.0, abs=1e-4)


def test_a_number_that_is_kept_does_not_have_the_log_probabilities_of_the_policy():
    """Why choices are drawn anew: at p = 0.4 and a persistence of 0.95 the expected score of 20 steps is -3.7."""
    toy = toys.hazard(0.0, 1.0)
    policy = toys.Policy(toy, 0, (0.0, 0.0))
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.zero_()
        policy.head(0).bias.copy_(torch.tensor([0.6, 0.4]).log())
    known = toys.exact(toy, policy)
    assert report.score(toy, known, report.lasting(toy, known)) == pytest.approx(-3.7, abs=0.1)
