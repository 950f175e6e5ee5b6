"""A whole update against a slow and obvious one, and what an update may and may not do."""

import ast
import copy
import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

import esper.rl
from esper.rl import Learner, PPOConfig, VectorNetwork, ppo_loss, replay
from esper.rl.learner import head_norms
from tests.rl.cases import (
    SIZES,
    STEADY,
    USES,
    alone,
    assert_same,
    everything_of,
    padded,
    ragged,
    rollout,
    small_network,
    tensors_of,
    weights_of,
)

SOURCE = Path(esper.rl.__file__).parent


def slow_advantages(sequences, config):
    """Step by step from the last one, for each row."""
    result = {}
    rows, steps = sequences.valid.shape
    for row in range(rows):
        later = 0.0
        for step in reversed(range(steps)):
            place = row, step
            if not sequences.valid[place]:
                continue
            ends = bool(sequences.ends[place])
            value = float(sequences.values[place])
            after = float(sequences.bootstrap[place]) if ends else float(sequences.values[row, step + 1])
            error = float(sequences.rewards[place]) + config.discount * after - value
            later = error if ends else error + config.discount * config.smoothing * later
            result[place] = later
    return result


def slow_replay(network, sequences, exploration):
    """For each step: V, and for each head its log-probability and entropy."""
    memory, critic, masks = network.memory, network.critic, sequences.observation["mask"]
    result = {}
    rows, steps = sequences.valid.shape
    for row in range(rows):
        state = sequences.state.take(torch.tensor([row]))
        for step in range(steps):
            place = row, step
            if not sequences.valid[place]:
                continue
            if sequences.starts[place]:
                state = memory.start(1)
            inputs = torch.tanh(network.encoder(sequences.observation["vector"][place]))
            output, state = memory(inputs.reshape(1, -1), state, sequences.starts[row, step : step + 1])
            features = output.flatten()
            value = critic.output(torch.tanh(critic.hidden(features))) * critic.deviation + critic.mean
            scores = network.actor(features).reshape(len(SIZES), -1)
            first = int(sequences.choices[place][0])
            heads = []
            for head in range(len(SIZES)):
                used = bool(USES[first, head])
                legal = masks[place][first if head else 0, head] if used else torch.arange(4) == 0
                logits = scores[head] + (network.given_first[first, head - 1] if head else 0.0)
                count = int(legal.sum())
                likely = (1 - exploration) * torch.softmax(logits[legal], dim=0) + exploration / count
                index = int(legal[: int(sequences.choices[place][head])].sum())
                entropy = -(likely * likely.log()).sum() / math.log(max(count, 2))
                heads.append((likely[index].log(), entropy))
            result[place] = value, heads
    return result


def slow_update(network, optimizer, sequences, config, weights, known=None):
    """All passes; `known` is mean and deviation of the returns of earlier rollouts, and how they were mixed in."""
    raw = slow_advantages(sequences, config)
    said = {place: float(sequences.values[place]) for place in raw}
    returns = {place: raw[place] + said[place] for place in raw}
    mean = sum(returns.values()) / len(returns)
    variance = sum((each - mean) ** 2 for each in returns.values()) / len(returns)
    critic = network.critic
    if known is None:
        deviation = math.sqrt(variance)
        said = {place: mean + deviation * each for place, each in said.items()}
    else:
        share, (old_mean, old_deviation) = config.return_momentum, known
        variance = (1 - share) * old_deviation**2 + share * variance + share * (1 - share) * (mean - old_mean) ** 2
        mean, deviation = old_mean + share * (mean - old_mean), math.sqrt(variance)
        with torch.no_grad():
            critic.output.weight *= old_deviation / deviation
            critic.output.bias.copy_((critic.output.bias * old_deviation + old_mean - mean) / deviation)
    critic.mean.fill_(mean)
    critic.deviation.fill_(deviation)

    deciding = [place for place in raw if sequences.free[place].any()]
    centre = sum(raw[place] for place in deciding) / len(deciding)
    spread = math.sqrt(sum((raw[place] - centre) ** 2 for place in deciding) / len(deciding))

    for _ in range(config.epochs):
        judged = slow_replay(network, sequences, config.exploration)
        policy, value_error = torch.zeros(()), torch.zeros(())
        bonus = torch.zeros(())
        for place, (value, heads) in judged.items():
            for head, (log_prob, entropy) in enumerate(heads):
                if sequences.free[place][head]:
                    ratio = (log_prob - float(sequences.log_probs[place][head])).exp()
                    bounded = ratio.clamp(1 - config.clip, 1 + config.clip)
                    gain = (raw[place] - centre) / spread
                    policy = policy - torch.minimum(ratio * gain, bounded * gain) / len(deciding)
                    bonus = bonus + weights[head] * entropy / len(deciding)
            error = ((value - returns[place]) / deviation) ** 2
            reach = config.value_clip * deviation
            near = said[place] + (value - said[place]).clamp(-reach, reach)
            error = torch.maximum(error, ((near - returns[place]) / deviation) ** 2)
            value_error = value_error + 0.5 * error.squeeze() / len(judged)
        loss = policy + config.value_weight * value_error - bonus
        optimizer.zero_grad()
        loss.backward()
        gradients = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
        norm = math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients))
        for gradient in gradients:
            gradient.mul_(min(1.0, config.max_gradient_norm / (norm + 1e-6)))
        optimizer.step()
    return mean, deviation


def slow_optimizer(network, config, rate):
    of_critic = [*network.critic.parameters()]
    others = [each for each in network.parameters() if all(each is not own for own in of_critic)]
    groups = [{"params": others, "weight_decay": 0.0}, {"params": of_critic, "weight_decay": config.weight_decay}]
    return torch.optim.AdamW(groups, lr=rate, eps=1e-5)


@pytest.mark.parametrize("exploration", [0.0, 0.1])
@pytest.mark.parametrize("value_clip", [0.05, 10.0])
def test_update_equals_a_slow_and_obvious_one(exploration, value_clip):
    """C-rl, S3-surrogate, S3-weight-decay, R4-C3, R1-L3: two rollouts, three passes each, parameters to 1e-5."""
    config = PPOConfig(
        epochs=3,
        minibatches=1,
        max_gradient_norm=0.5,
        target_kl=math.inf,
        clip=0.1,
        value_clip=value_clip,
        weight_decay=0.1,
        learning_rate=0.02,
        final_learning_rate=0.01,
        entropy_weight=0.1,
        final_entropy_weight=0.02,
        head_entropy={"style": 3.0},
        exploration=exploration,
        return_momentum=0.3,
    )
    network = small_network()
    twin = copy.deepcopy(network)
    learner, optimizer = Learner(network, config), slow_optimizer(twin, config, rate=0.015)
    known = None
    for seed in (0, 10):
        sequences = (
            ragged(network, ends=0.25, exploration=exploration)
            if seed == 0
            else rollout(network, seed=seed, exploration=exploration)
        )
        learner.update(sequences, progress=0.5)
        known = slow_update(twin, optimizer, sequences, config, [0.06, 0.06, 0.18], known)
        for (name, found), wanted in zip(network.state_dict().items(), twin.state_dict().values(), strict=True):
            torch.testing.assert_close(found, wanted, rtol=0.0, atol=1e-5, msg=lambda text, name=name: f"{name} {text}")
        network.load_state_dict(twin.state_dict())


def test_padding_changes_nothing_that_is_learned():
    """R0-R3, R0-R4."""
    outcomes = []
    for extra in (0, 5):
        network = small_network()
        learner = Learner(network, STEADY)
        metrics = learner.update(padded(ragged(network), extra) if extra else ragged(network))
        outcomes.append((weights_of(network), metrics, learner.moments))
    (short, of_short, moments), (long, of_long, long_moments) = outcomes
    for name, value in short.items():
        torch.testing.assert_close(long[name], value, rtol=0.0, atol=1e-6)
    assert of_long.steps == of_short.steps
    assert of_long.advantage_mean == pytest.approx(of_short.advantage_mean, abs=1e-6)
    assert long_moments == moments


def test_same_seed_gives_the_same_update_bit_for_bit():
    """C-rl."""
    config = replace(STEADY, minibatches=3)
    sequences = rollout(small_network(), rows=6)
    one, same, other = (Learner(small_network(), config, seed) for seed in (1, 1, 2))
    metrics = [learner.update(sequences) for learner in (one, same, other)]
    assert_same(everything_of(one), everything_of(same))
    assert metrics[0] == metrics[1]
    assert not torch.equal(one.network.actor.weight, other.network.actor.weight)


def test_update_draws_nothing_from_the_global_generator():
    learner, sequences = Learner(small_network(), replace(STEADY, minibatches=2)), rollout(small_network())
    state = torch.get_rng_state()
    learner.update(sequences)
    assert torch.equal(torch.get_rng_state(), state)


def test_update_leaves_the_sequences_as_they_were():
    """R0-A2, R2-MED3, R4-M8: no tensor is written to, so none needs a defensive clone."""
    network = small_network()
    sequences = rollout(network)
    before = {name: (tensor.clone(), tensor._version) for name, tensor in tensors_of(sequences).items()}
    Learner(network, replace(STEADY, minibatches=2)).update(sequences)
    for name, tensor in tensors_of(sequences).items():
        assert torch.equal(tensor, before[name][0]), name
        assert tensor._version == before[name][1], name
    assert not any(tensor.requires_grad for tensor in tensors_of(sequences).values())
    for name in ("ppo", "gae", "loss", "metrics"):
        assert "clone()" not in (SOURCE / f"{name}.py").read_text()


def test_nothing_is_moved_or_made_contiguous_on_the_way():
    """R0-R6: not in the update; what enters from an environment or a file goes to the network's device there."""
    for path in SOURCE.glob("*.py"):
        attributes = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        assert not attributes & {"cuda", "cpu", "pin_memory"}, path.name
        if path.stem in {"acting", "gae", "loss", "metrics", "ppo", "sequences"}:
            assert not attributes & {"contiguous", "to"}, path.name


def far(network: VectorNetwork, heads: tuple[int, ...]) -> None:
    """Move the logits of these heads by much."""
    with torch.no_grad():
        for head in heads:
            network.actor.bias[4 * head : 4 * head + 4] += torch.tensor([4.0, -4.0, 0.0, 2.0])


@pytest.mark.parametrize("minibatches", [1, 4])
def test_policy_that_moved_too_far_already_is_not_moved_at_all(minibatches):
    """S3-early-stop: the check comes before the step, also with a single pass."""
    network = small_network()
    sequences = rollout(network, rows=8)
    far(network, (0, 1, 2))
    actor = {name: value for name, value in weights_of(network).items() if not name.startswith("critic")}
    learner = Learner(network, PPOConfig(epochs=1, minibatches=minibatches, target_kl=0.02))
    metrics = learner.update(sequences)
    assert metrics.stopped_early
    assert metrics.kl > 0.02
    assert metrics.optimiser_steps == learner.counters.optimiser_steps == 0
    assert not learner.optimizer.state_dict()["state"]
    for name, value in actor.items():
        assert torch.equal(network.state_dict()[name], value)


@pytest.mark.parametrize(("epochs", "minibatches"), [(1, 4), (5, 1)])
def test_early_stop_comes_before_the_step_that_would_go_further(epochs, minibatches):
    """S3-early-stop: with a single pass of several parts, and with several passes of one part."""
    network = small_network()
    sequences = rollout(network, rows=8)
    learner = Learner(network, replace(STEADY, epochs=epochs, minibatches=minibatches, target_kl=1e-5))
    after_steps = []
    learner.optimizer.register_step_post_hook(lambda *_: after_steps.append(weights_of(network)))
    metrics = learner.update(sequences)
    assert metrics.stopped_early
    assert metrics.optimiser_steps == len(after_steps) == 1
    assert_same(weights_of(network), after_steps[-1])


def test_without_a_target_every_step_is_made():
    network = small_network()
    learner = Learner(network, replace(STEADY, epochs=3, minibatches=2, learning_rate=0.1))
    metrics = learner.update(rollout(network, rows=4))
    assert metrics.optimiser_steps == 6
    assert not metrics.stopped_early
    assert metrics.kl > 0.03


def test_heads_that_are_not_free_cannot_stop_an_update():
    """R4-H6: the same change of weights stops when the head was free, and does not when it was not."""
    sequences = rollout(small_network(), rows=8, masked=False)
    for idle in range(3):
        network = small_network()
        far(network, (0, 1, 2))
        free = sequences.free.clone()
        free[..., [head for head in range(3) if head != idle]] = False
        config = replace(STEADY, epochs=1, target_kl=0.03)
        assert Learner(network, config).update(sequences._replace(free=free)).stopped_early
        network = small_network()
        far(network, tuple(head for head in range(3) if head != idle))
        assert not Learner(network, config).update(sequences._replace(free=free)).stopped_early


def test_an_update_goes_on_while_one_head_is_within_the_target_and_ends_when_none_is():
    sequences = rollout(small_network(), rows=8, masked=False)
    for moved, stopped in (((2,), False), ((0, 2), False), ((0, 1, 2), True)):
        network = small_network()
        far(network, moved)
        metrics = Learner(network, replace(STEADY, epochs=1, target_kl=0.03)).update(sequences)
        assert (metrics.stopped_early, metrics.optimiser_steps) == (stopped, 1 - stopped)


def test_rollouts_without_any_choice_still_teach_the_critic():
    network = small_network()
    sequences = rollout(network)
    metrics = Learner(network, replace(STEADY, target_kl=0.01)).update(
        sequences._replace(free=torch.zeros_like(sequences.free))
    )
    assert (metrics.stopped_early, metrics.optimiser_steps) == (False, STEADY.epochs)


def test_minibatches_hold_whole_rows_and_every_row_once_a_pass():
    """R4-C3: no shuffled steps; a row is the least that can be taken."""
    network = small_network()
    sequences = rollout(network, rows=5)
    learner = Learner(network, replace(STEADY, epochs=2, minibatches=3))
    targets = learner._targets(alone(sequences))
    batches = list(learner._minibatches(sequences, targets))
    assert [batch.rows for batch, _ in batches] == [2, 2, 1] * 2
    for some in (batches[:3], batches[3:]):
        order = []
        for batch, aims in some:
            for row in range(batch.rows):
                (place,) = [i for i in range(5) if torch.equal(sequences.rewards[i], batch.rewards[row])]
                order.append(place)
                whole = sequences.take(torch.tensor([place]))
                for name, tensor in tensors_of(batch.take(torch.tensor([row]))).items():
                    assert torch.equal(tensor, tensors_of(whole)[name]), name
                for part, found in zip(targets[:3], aims[:3], strict=True):
                    assert torch.equal(found[row], part[place])
        assert sorted(order) == list(range(5))


def test_more_minibatches_than_rows_are_one_row_each():
    network = small_network()
    learner = Learner(network, replace(STEADY, epochs=1, minibatches=50))
    assert learner.update(rollout(network, rows=3)).optimiser_steps == 3


def test_every_pass_replays_whole_rows_from_their_stored_states():
    """R1-L3, R4-C4, R4-H5, R0-P9, R0-X2: with a step of next to nothing every pass finds all ratios at 1."""
    network = small_network()
    config = replace(STEADY, epochs=4, learning_rate=1e-8, final_learning_rate=1e-8, weight_decay=0.0)
    metrics = Learner(network, config).update(rollout(network, rows=6, steps=12, ends=0.3))
    assert metrics.kl < 1e-8
    for head in metrics.heads.values():
        assert head.lowest_ratio == pytest.approx(1.0, abs=1e-4)
        assert head.highest_ratio == pytest.approx(1.0, abs=1e-4)


def test_weight_decay_is_on_the_critic_only():
    """S3-weight-decay: where there is nothing to learn, only the critic shrinks; Adam's epsilon is 1e-5."""
    network = small_network()
    sequences = rollout(network)
    sequences = sequences._replace(free=torch.zeros_like(sequences.free))
    config = replace(STEADY, epochs=1, value_weight=0.0, weight_decay=0.5, learning_rate=0.1, final_learning_rate=0.1)
    before = weights_of(network)
    learner = Learner(network, config)
    learner.update(sequences)
    assert learner.optimizer.defaults["eps"] == 1e-5
    of_critic = {f"critic.{name}" for name, _ in network.critic.named_parameters()}
    for name, parameter in network.named_parameters():
        factor = 1 - 0.1 * 0.5 if name in of_critic else 1.0
        torch.testing.assert_close(parameter.detach(), before[name] * factor, msg=name)
    optimised = [parameter for group in learner.optimizer.param_groups for parameter in group["params"]]
    assert {id(parameter) for parameter in optimised} == {id(parameter) for parameter in network.parameters()}
    assert len(optimised) == len(list(network.parameters()))


def test_gradient_norms_are_those_before_clipping():
    """R4-M19: of all parameters and of each head alone, so that a head that dominates is seen."""
    network = small_network()
    sequences = rollout(network, rows=6)
    config = replace(STEADY, epochs=1, max_gradient_norm=1e-3)
    twin = copy.deepcopy(network)
    targets = Learner(twin, config)._targets(alone(sequences))
    weights = torch.tensor(config.entropy_weights(twin.heads, 0.0))
    ppo_loss(replay(twin, sequences), sequences, targets, weights, twin.critic.deviation, config).total.backward()
    metrics = Learner(network, config).update(sequences)
    whole = torch.stack([parameter.grad.square().sum() for parameter in twin.parameters()]).sum().sqrt()
    assert whole > 1e-2
    assert metrics.gradient_norm == pytest.approx(whole.item(), rel=1e-4)
    expected = [
        sum(float(part.square().sum()) for part in own if part is not None) ** 0.5 for own in twin.head_gradients()
    ]
    assert [head.gradient_norm for head in metrics.heads.values()] == pytest.approx(expected, rel=1e-4)
    clipped = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
    assert torch.stack([gradient.square().sum() for gradient in clipped]).sum().sqrt().item() <= 1.001e-3


def test_a_head_without_gradient_has_norm_zero():
    network = small_network()
    assert head_norms(network).tolist() == [0, 0, 0]


def test_a_gradient_that_is_not_finite_skips_the_step_and_is_counted():
    network = small_network()
    sequences = rollout(network)
    passes = []
    broken = {1, 3}

    def fault(gradient):
        passes.append(len(passes))
        return gradient * math.nan if passes[-1] in broken else gradient

    hook = network.actor.weight.register_hook(fault)
    learner = Learner(network, replace(STEADY, epochs=5))
    metrics = learner.update(sequences)
    hook.remove()
    assert metrics.skipped_steps == 2
    assert metrics.optimiser_steps == learner.counters.optimiser_steps == 3
    assert not metrics.finite
    assert all(value.isfinite().all() for value in weights_of(network).values())
    assert learner.update(rollout(network)).finite


def test_nothing_but_broken_gradients_leaves_the_weights():
    network = small_network()
    before = {
        name: value for name, value in weights_of(network).items() if name not in ("critic.mean", "critic.deviation")
    }
    network.encoder.weight.register_hook(lambda gradient: gradient * math.inf)
    metrics = Learner(network, STEADY).update(rollout(network))
    assert metrics.optimiser_steps == 0
    assert metrics.skipped_steps == STEADY.epochs
    for name, value in before.items():
        assert torch.equal(network.state_dict()[name], value), name


def test_counters_say_what_they_count():
    """R1-L5: updates, optimiser steps, environment steps."""
    network = small_network()
    learner = Learner(network, replace(STEADY, epochs=2, minibatches=2))
    learner.update(rollout(network, rows=4, steps=5))
    learner.update(ragged(network, (3, 1)))
    assert vars(learner.counters) == {"updates": 2, "optimiser_steps": 8, "environment_steps": 24}


@pytest.mark.parametrize("value_clip", [10.0, 0.2, math.inf])
def test_first_update_teaches_the_critic_however_far_returns_are_from_zero(value_clip):
    """R1-M2: the first scale moves predictions, and the range of value clipping moves along."""
    network = small_network()
    sequences = rollout(network, ends=1.0)
    sequences = sequences._replace(rewards=sequences.rewards + 1000, bootstrap=torch.zeros(3, 6))
    before = network.critic.output.weight.clone()
    metrics = Learner(network, replace(STEADY, epochs=1, value_clip=value_clip, weight_decay=0.0)).update(sequences)
    assert not torch.equal(network.critic.output.weight, before)
    assert metrics.value_loss < 10


def test_scale_of_returns_fades_and_predictions_stay():
    """C-normaliser: the critic's scale is that of the moments."""
    network = small_network()
    config = replace(STEADY, return_momentum=0.25)
    learner = Learner(network, config)
    learner.update(rollout(network))
    first = learner.moments
    sequences = rollout(network, seed=1)
    before = replay(network, sequences).values.detach()
    targets = learner._targets(alone(sequences))
    torch.testing.assert_close(replay(network, sequences).values.detach(), before, rtol=1e-4, atol=1e-5)
    assert learner.moments == first.updated(targets.returns, 0.25)
    assert network.critic.mean.item() == pytest.approx(learner.moments.mean)
    assert network.critic.deviation.item() == pytest.approx(learner.moments.deviation)


def test_a_failing_compiler_is_reported_and_learning_goes_on(no_compiler):
    """R4-M22 for the learner: there is no C++ compiler, so the real one fails."""
    sequences = rollout(small_network(), rows=2, steps=4)
    eager, compiled = (Learner(small_network(), replace(STEADY, epochs=2), compile=flag) for flag in (False, True))
    with pytest.warns(UserWarning, match=r"(?s)torch\.compile failed, learning goes on without it: .*C\+\+ compiler"):
        assert compiled.update(sequences).optimiser_steps == 2
    eager.update(sequences)
    assert all(map(torch.equal, compiled.network.state_dict().values(), eager.network.state_dict().values()))


def test_compiled_and_eager_give_the_same_update_and_nothing_is_wrapped(monkeypatch):
    """R1-H1, R0-P6: with the graphs of `torch.compile` run as they are; generating code for them takes a minute."""
    torch.compiler.reset()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    sequences = rollout(small_network(), rows=2, steps=4)
    eager, compiled = (Learner(small_network(), replace(STEADY, epochs=2), compile=flag) for flag in (False, True))
    one, other = eager.update(sequences), compiled.update(sequences)
    assert eager.network.state_dict().keys() == compiled.network.state_dict().keys()
    assert isinstance(compiled.network, VectorNetwork)
    for name, value in eager.network.state_dict().items():
        torch.testing.assert_close(compiled.network.state_dict()[name], value, rtol=0.0, atol=1e-5, msg=name)
    assert other.kl == pytest.approx(one.kl, abs=1e-6)
    torch.compiler.reset()


def test_no_function_has_an_argument_that_it_does_not_read():
    """S3-no-dead-parameters, R1-L2: what only an interface asks for is listed here."""
    interface = {
        ("memory.py", "replay", "starts"),
        *(("memory.py", "take_in", name) for name in ("inputs", "valid")),
        *(("network.py", "take_in", name) for name in ("observation", "valid")),
        ("network.py", "gaussian", "encoded"),
        *(("network.py", "describe", name) for name in ("encoded", "choices")),
        *(("episodes.py", "batches", given) for given in ("episodes_per_batch", "generator")),
        *(("gaussian_network.py", "logits", name) for name in ("encoded", "observation", "level", "choices")),
        *(("vector_environments.py", name, given) for name, given in (("rows", "count"), ("rebuild", "exact"))),
        ("environments.py", "take", "count"),
        *(
            ("rows.py", name, given)
            for name, given in (("step", "choices"), ("rebuild", "plain"), ("rebuild", "exact"))
        ),
    }
    unread = set()
    for path in SOURCE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and not any("abstract" in ast.unparse(d) for d in node.decorator_list):
                read = {each.id for part in node.body for each in ast.walk(part) if isinstance(each, ast.Name)}
                names = [argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)]
                unread |= {(path.name, node.name, name) for name in names if name not in {*read, "self", "cls"}}
    assert unread == interface


def test_rules_for_memory_are_written_where_they_are_used():
    """R0-P9, R0-X2, R4-C3, R1-L3."""
    words = {name: " ".join((SOURCE / f"{name}.py").read_text().split()) for name in ("learner", "memory", "sequences")}
    assert "each pass replays whole rows from the states stored with them" in words["learner"]
    assert "Rows are never cut into shuffled steps" in words["learner"]
    assert "the state *before* its first step, detached" in words["memory"]
    assert "minibatches take rows, never single steps" in words["sequences"]
