"""The objective against plain loops over rows, steps and heads; who gets a gradient, and who does not."""

import ast
import inspect
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from esper.rl import Loss, PPOConfig, Replayed, Targets, ppo_loss, replay
from esper.rl import loss as module
from tests.rl.cases import SIZES, STEADY, USES, padded, ragged, rollout, small_network

NO_CRITIC = replace(STEADY, value_weight=0.0)
NO_ENTROPY = torch.zeros(len(SIZES))
ONE = torch.tensor(1.0)


def random_case(seed: int):
    """Experience of old weights, judged by others that are not far."""
    network = small_network(seed)
    sequences = ragged(network, (3, 6, 1))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    shape = sequences.rewards.shape
    anchor = sequences.log_probs + 0.3 * torch.randn_like(sequences.log_probs)
    targets = Targets(torch.randn(shape), 3 * torch.randn(shape), sequences.values, anchor)
    return network, sequences, replay(network, sequences), targets


def random_targets(rows: int, steps: int) -> Targets:
    return Targets(*torch.randn(3, rows, steps))


def steps_of(sequences):
    """Row and step of everything that happened."""
    return [tuple(place) for place in sequences.valid.nonzero().tolist()]


def mean(values: list[float]) -> float:
    return sum(values) / max(len(values), 1)


def slow_loss(new, old, targets, entropy_weights, deviation, config, pull) -> dict[str, float | list[float]]:
    errors, clipped, away = [], [], []
    surrogates, entropies, divergences = ([[] for _ in SIZES] for _ in range(3))
    ratios = [[1.0] for _ in SIZES]
    deciding = 0
    for place in steps_of(old):
        deciding += bool(old.free[place].any())
        for head in range(len(SIZES)):
            if not old.free[place][head]:
                continue
            gain = float(targets.gains[place])
            ratio = math.exp(float(new.log_probs[place][head]) - float(old.log_probs[place][head]))
            bounded = min(max(ratio, 1 - config.clip), 1 + config.clip)
            surrogates[head].append(min(ratio * gain, bounded * gain))
            divergences[head].append(ratio - 1 - math.log(ratio))
            entropies[head].append(float(new.entropy[place][head]))
            clipped.append(float(abs(ratio - 1) > config.clip))
            ratios[head].append(ratio)
            past = math.exp(float(targets.anchor[place][head]) - float(new.log_probs[place][head]))
            away.append(past - 1 - math.log(past))
        value, before, aim = (float(part[place]) for part in (new.values, targets.values, targets.returns))
        error = ((value - aim) / deviation) ** 2
        reach = config.value_clip * deviation
        near = before + min(max(value - before, -reach), reach)
        error = max(error, ((near - aim) / deviation) ** 2)
        errors.append(0.5 * error)
    moving = [bool(each) and mean(each) <= config.target_kl for each in divergences]
    policy, bonus = 0.0, 0.0
    for head, weight in enumerate(entropy_weights):
        policy -= moving[head] * sum(surrogates[head]) / max(deciding, 1)
        bonus += moving[head] * weight * sum(entropies[head]) / max(deciding, 1)
    value, anchor_kl = mean(errors), sum(away) / max(deciding, 1)
    return {
        "total": policy + config.value_weight * value - bonus + pull * anchor_kl,
        "policy": policy,
        "value": value,
        "entropy": [mean(each) for each in entropies],
        "free": [len(each) for each in entropies],
        "kl": sum(map(sum, divergences)) / max(deciding, 1),
        "head_kl": [mean(each) for each in divergences],
        "moving": moving,
        "clipped": mean(clipped),
        "ratios": [[min(each), max(each)] for each in ratios],
        "anchor_kl": anchor_kl,
    }


@given(
    st.integers(0, 10**6),
    st.sampled_from([0.05, 0.2]),
    st.sampled_from([0.1, 10.0, math.inf]),
    st.sampled_from([0.3, 2.0]),
    st.sampled_from([0.004, math.inf]),
    st.sampled_from([0.0, 0.7]),
)
def test_loss_equals_plain_loops_over_rows_steps_and_heads(seed, clip, value_clip, deviation, target, pull):
    """S3-surrogate, R0-P2, R4-M20, R4-H3, R4-H6, R1-M2: sums over heads by all deciding steps, KL target by its own."""
    _, old, new, targets = random_case(seed)
    config = replace(STEADY, clip=clip, value_clip=value_clip, target_kl=target)
    weights = [0.1, 0.02, 0.3]
    new = Replayed(*(part.detach() for part in new))
    found = ppo_loss(new, old, targets, torch.tensor(weights), torch.tensor(deviation), config, pull)
    expected = slow_loss(new, old, targets, weights, deviation, config, pull)
    assert found._asdict().keys() == expected.keys()
    for name, wanted in expected.items():
        torch.testing.assert_close(getattr(found, name), torch.tensor(wanted), rtol=1e-4, atol=1e-5)


def test_kl_is_the_estimator_that_is_never_negative_and_zero_without_change():
    """S3-surrogate, R1-L3, R4-H5: under unchanged weights every ratio is 1."""
    network = small_network()
    old = rollout(network, rows=4, steps=8)
    targets = random_targets(4, 8)
    same = ppo_loss(replay(network, old), old, targets, NO_ENTROPY, ONE, STEADY)
    assert 0 <= same.kl.item() < 1e-10
    assert same.clipped.item() == 0
    torch.testing.assert_close(same.ratios, torch.ones(3, 2), rtol=0.0, atol=1e-5)
    log_ratio = torch.tensor(0.7)
    moved = replay(network, old)._replace(log_probs=old.log_probs + log_ratio)
    heads_per_step = old.free.sum() / old.free.any(dim=-1).sum()
    expected = (log_ratio.exp() - 1 - log_ratio) * heads_per_step
    torch.testing.assert_close(ppo_loss(moved, old, targets, NO_ENTROPY, ONE, STEADY).kl, expected)


@given(st.integers(0, 10**6))
def test_what_is_not_free_and_what_is_padding_does_not_count(seed):
    """R4-H6, R4-H3, R0-R3: idle heads cannot trigger an early stop, whatever is written in their place."""
    _, old, new, targets = random_case(seed)
    idle = ~(old.free & old.valid.unsqueeze(-1))
    noise = torch.randn(idle.shape)
    wild = Replayed(
        log_probs=torch.where(idle, 50 * noise, new.log_probs),
        entropy=torch.where(idle, noise, new.entropy),
        free=~new.free,
        values=torch.where(old.valid, new.values, 1000 * noise[..., 0]),
    )
    aims = Targets(
        torch.where(idle.all(dim=-1), 1000.0, targets.gains),
        torch.where(old.valid, targets.returns, 1000.0),
        torch.where(old.valid, targets.values, -7.0),
        torch.where(idle, -50 * noise, targets.anchor),
    )
    weights = torch.ones(len(SIZES))
    quiet = ppo_loss(new, old, targets, weights, ONE, STEADY)
    padding_seems_free = old._replace(free=old.free | ~old.valid.unsqueeze(-1))
    loud = ppo_loss(wild, padding_seems_free, aims, weights, ONE, STEADY)
    for name in Loss._fields:
        torch.testing.assert_close(getattr(loud, name), getattr(quiet, name), msg=name)


def test_entropy_of_a_head_is_the_mean_over_the_steps_where_it_was_free():
    """R4-H3: a head that is rarely used does not look collapsed."""
    network = small_network()
    old = rollout(network, rows=3, steps=7)
    new = replay(network, old)._replace(entropy=torch.full((3, 7, 3), 0.75))
    assert not old.free.all()
    found = ppo_loss(new, old, random_targets(3, 7), NO_ENTROPY, ONE, STEADY).entropy
    assert found.tolist() == pytest.approx([0.75] * 3)


@given(st.lists(st.floats(0.0, 5.0), min_size=3, max_size=3))
def test_entropy_bonus_is_weight_times_entropy_times_the_share_of_steps_summed_over_heads(weights):
    """R2-HIGH3: a head weighs as much in the bonus as in the surrogate; the loss adds nothing else to the rule."""
    _, old, new, targets = random_case(0)
    without, found = (ppo_loss(new, old, targets, w, ONE, STEADY) for w in (NO_ENTROPY, torch.tensor(weights)))
    deciding = int((old.free & old.valid.unsqueeze(-1)).any(dim=-1).sum())
    shares = [steps / deciding for steps in found.free.tolist()]
    assert min(shares) < 0.9
    bonus = sum(w * e * share for w, e, share in zip(weights, found.entropy.tolist(), shares, strict=True))
    assert (without.total - found.total).item() == pytest.approx(bonus, abs=1e-5)


def test_a_head_that_moved_too_far_on_its_own_steps_rests_and_the_others_go_on():
    """R4-H6: one head's outlier, however large, takes nothing from the others."""
    network = small_network()
    old = rollout(network, rows=8, steps=10, masked=False)
    place = tuple(old.free[..., 2].nonzero()[0].tolist())
    log_probs = old.log_probs.clone()
    log_probs[(*place, 2)] -= math.log(64)
    wild, config = old._replace(log_probs=log_probs), replace(NO_CRITIC, target_kl=0.08)
    targets, weights = random_targets(8, 10), torch.ones(3)
    found = ppo_loss(replay(network, wild), wild, targets, weights, ONE, config)
    assert found.moving.tolist() == [True, True, False]
    found.total.backward()
    quiet = old._replace(free=old.free & torch.tensor([True, True, False]))
    others = [[part.clone() for part in own if part is not None] for own in network.head_gradients()]
    assert not any(part.any() for part in others[2])
    network.zero_grad()
    ppo_loss(replay(network, quiet), quiet, targets, weights, ONE, config).total.backward()
    for own, alone in zip(others[:2], network.head_gradients()[:2], strict=True):
        for part, wanted in zip(own, alone, strict=True):
            torch.testing.assert_close(part, wanted)


@pytest.mark.parametrize("share", [1.0, 0.1])
def test_how_far_a_head_may_move_does_not_depend_on_how_seldom_it_is_used(share):
    """The same move on each of its steps is too far, or is not, whatever the other steps are."""
    network = small_network()
    old = rollout(network, rows=20, steps=20, masked=False)
    used = (torch.rand(20, 20, generator=torch.Generator().manual_seed(0)) < share) & old.free[..., 2]
    old = old._replace(free=torch.cat([old.free[..., :2], used.unsqueeze(-1)], dim=-1))
    for move, moving in ((0.3, True), (0.5, False)):
        moved = replay(network, old)._replace(log_probs=old.log_probs + move * torch.tensor([0.0, 0.0, 1.0]))
        found = ppo_loss(moved, old, random_targets(20, 20), NO_ENTROPY, ONE, replace(STEADY, target_kl=0.08))
        assert found.moving.tolist() == [True, True, moving]


@pytest.mark.parametrize("head", range(len(SIZES)), ids=SIZES)
@pytest.mark.parametrize("op", range(SIZES["op"]))
def test_gradient_of_advantage_reaches_exactly_the_heads_that_the_first_choice_uses(op, head):
    """R0-X4: from steps with this choice of the first head, for each head."""
    network = small_network()
    old = rollout(network, rows=8, steps=10, masked=False)
    gain = torch.where(old.choices[..., 0] == op, torch.randn(8, 10), 0.0)
    targets = Targets(gain, old.values, old.values)
    ppo_loss(replay(network, old), old, targets, NO_ENTROPY, ONE, NO_CRITIC).total.backward()
    own = network.head_gradients()[head]
    if USES[op, head]:
        assert own[0].any()
        assert own[1].any()
    else:
        assert not any(gradient is not None and gradient.any() for gradient in own)


@pytest.mark.parametrize("head", range(len(SIZES)), ids=SIZES)
def test_entropy_bonus_of_a_head_moves_that_head_where_it_is_free_and_no_other(head):
    """R0-X4: entropy is masked per head."""
    network = small_network()
    old = rollout(network, rows=8, steps=10)
    nothing = Targets(torch.zeros(8, 10), old.values, old.values)
    weights = torch.zeros(len(SIZES)).index_fill(0, torch.tensor(head), 1.0)

    def gradients(sequences) -> list[bool]:
        network.zero_grad()
        ppo_loss(replay(network, sequences), sequences, nothing, weights, ONE, NO_CRITIC).total.backward()
        return [any(part is not None and bool(part.any()) for part in own) for own in network.head_gradients()]

    assert gradients(old) == [place == head for place in range(len(SIZES))]
    forced = old.free.clone()
    forced[..., head] = False
    assert gradients(old._replace(free=forced)) == [False] * len(SIZES)


def test_forced_steps_get_no_gradient_for_the_actor():
    """Pitfall: much of the share of waiting is forced by the masks."""
    network = small_network()
    old = rollout(network, rows=4, steps=8)
    forced = ~old.free.any(dim=-1)
    assert forced.any()
    gain = torch.where(forced, 100.0 * torch.randn(4, 8), 0.0)
    targets = Targets(gain, old.values, old.values)
    loss = ppo_loss(replay(network, old), old, targets, NO_ENTROPY, ONE, NO_CRITIC)
    loss.total.backward()
    assert loss.policy.item() == 0
    assert all(parameter.grad is None or not parameter.grad.any() for parameter in network.parameters())


def test_nothing_but_forced_steps_gives_zeros_and_no_nan():
    """R2-CRIT1."""
    network = small_network()
    old = rollout(network)
    old = old._replace(free=torch.zeros_like(old.free))
    loss = ppo_loss(replay(network, old), old, random_targets(3, 6), NO_ENTROPY, ONE, STEADY)
    assert all(part.isfinite().all() for part in loss)
    assert loss.policy.item() == loss.kl.item() == loss.clipped.item() == 0
    assert loss.entropy.tolist() == [0, 0, 0]


@pytest.mark.parametrize("clip", [0.5, 2.0, math.inf])
def test_value_clip_has_its_own_range_and_can_be_off(clip):
    """R1-M2: in deviations of the return, not the policy's 0.2; beyond it the critic gets no gradient."""
    assert PPOConfig().value_clip == 10.0
    old = rollout(small_network(), rows=1, steps=1, ends=0.0)
    deviation, before, aim = 2.0, 1.0, 100.0
    for move in (0.9, 3.0, 5.0):
        values = torch.tensor([[before + move]], requires_grad=True)
        reach = clip * deviation
        found = module.value_loss(
            values, old.valid, Targets(ONE, torch.tensor([[aim]]), torch.tensor([[before]])), torch.tensor(2.0), clip
        )
        found.backward()
        assert found.item() == pytest.approx(0.5 * ((before + min(move, reach) - aim) / deviation) ** 2)
        assert bool(values.grad.any()) == (move <= reach)


def test_padding_changes_neither_the_loss_nor_any_gradient():
    """R0-R3."""
    network = small_network()
    old = ragged(network)
    targets = random_targets(*old.rewards.shape)
    longer = Targets(*(torch.nn.functional.pad(part, (0, 3)) for part in targets[:3]))
    outcomes = []
    for sequences, aims in ((old, targets), (padded(old, 3), longer)):
        network.zero_grad()
        loss = ppo_loss(replay(network, sequences, 0.1), sequences, aims, torch.ones(3), ONE, STEADY)
        loss.total.backward()
        outcomes.append([*loss, *(parameter.grad for parameter in network.parameters())])
    for short, long in zip(*outcomes, strict=True):
        torch.testing.assert_close(short, long, rtol=1e-5, atol=1e-6)


def test_every_part_of_the_loss_is_a_tensor_and_heads_are_not_looped_over():
    """R1-M3, R0-P2, R4-M20, R2-LOW1: nothing becomes a number and back on the way; heads are one stacked axis."""
    _, old, new, targets = random_case(0)
    assert all(isinstance(part, Tensor) for part in ppo_loss(new, old, targets, NO_ENTROPY, ONE, STEADY))
    tree = ast.parse(inspect.getsource(module))
    loops = (ast.For, ast.While, ast.ListComp, ast.GeneratorExp, ast.DictComp)
    assert not any(isinstance(node, loops) for node in ast.walk(tree))
    assert "sum over free heads, averaged over steps with a choice" in (Loss.__doc__ or "")


def test_kl_clipped_share_and_ratios_carry_no_gradient():
    _, old, new, targets = random_case(0)
    loss = ppo_loss(new, old, targets, NO_ENTROPY, ONE, STEADY)
    assert not any(part.requires_grad for part in (loss.kl, loss.clipped, loss.ratios))
