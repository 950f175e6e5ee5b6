"""The controller's network, over hosts of any size."""

import inspect

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import esper.controller
import esper.rl
from esper.contracts import CHOICES, HEADS_OF, Head, Op
from esper.controller.learned import Learned, tensors
from esper.controller.network import USUAL, ControllerNetwork, InvalidNetwork, NetworkConfig
from esper.environment import FIELDS, GrowEnv, find_task
from esper.rl import Buffer, EmptyMask, Learner, PPOConfig, Sequences, act, join, log_probabilities, replay

SMALL = NetworkConfig(slot=8, trunk=16, memory=16)


def network(config=SMALL, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = ControllerNetwork(FIELDS, config)
        # Pointers and heads are nearly uniform at birth; make them say something.
        for parameter in made.parameters():
            parameter.data.add_(0.3 * torch.randn_like(parameter))
    return made


def observation(slots, blueprints, seed=0, op_slot=None):
    """A random but well-formed observation of a host with any number of slots and blueprints."""
    draw = np.random.default_rng(seed)
    legal = draw.integers(0, 2, (len(Op), slots)).astype(np.int8) if op_slot is None else op_slot
    legal[Op.WAIT] = 1
    fits = draw.integers(0, 2, (slots, blueprints)).astype(np.int8)
    fits[:, 0] = 1
    return {
        "host": draw.random(len(FIELDS.host), dtype=np.float32),
        "host_valid": np.ones(len(FIELDS.host), np.int8),
        "slots": draw.random((slots, len(FIELDS.slots)), dtype=np.float32),
        "slots_valid": np.ones((slots, len(FIELDS.slots)), np.int8),
        "blueprints": draw.random((slots, blueprints, len(FIELDS.blueprints)), dtype=np.float32),
        "blueprints_valid": draw.integers(0, 2, (slots, blueprints, len(FIELDS.blueprints))).astype(np.int8),
        "mask_op": legal.max(axis=1),
        "mask_slot": np.ones(slots, np.int8),
        "mask_blueprint": np.ones(blueprints, np.int8),
        "mask_style": np.ones(4, np.int8),
        "mask_tempo": np.ones(3, np.int8),
        "mask_alpha_target": np.ones(3, np.int8),
        "mask_alpha_speed": np.ones(4, np.int8),
        "mask_alpha_curve": np.ones(5, np.int8),
        "mask_op_slot": legal,
        "mask_slot_blueprint": fits,
    }


def play(net, steps, slots, blueprints, seed=0):
    """One row of random observations, with the network's own choices."""
    buffer, generator = Buffer(1, steps, _row(observation(slots, blueprints)), len(Head)), torch.Generator()
    state, starts = net.memory.start(1), torch.tensor([True])
    buffer.begin(state)
    for step in range(steps):
        seen = tensors(observation(slots, blueprints, seed * 100 + step))
        made = act(net, seen, state, starts, generator, 0.1)
        buffer.decide(seen, starts, made.choices, made.log_probs, made.free)
        buffer.conclude(made.values, torch.randn(1, generator=generator), torch.tensor([False]), torch.zeros(1))
        state, starts = made.state, torch.tensor([False])
    buffer.cut(torch.zeros(1))
    return buffer.sequences()


def _row(arrays):
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def distributions(net, arrays, choices):
    """Log-probabilities of every level, given the choices."""
    seen = {name: value.unsqueeze(1) for name, value in tensors(arrays).items()}
    encoded = net.encode(seen, net.memory.start(1), torch.tensor([[True]]))
    made = torch.tensor(choices).reshape(1, 1, -1)
    return [log_probabilities(*net.logits(encoded, seen, level, made))[0, 0] for level in range(3)]


def test_a_learned_policy_plays_the_real_environment_without_a_refusal():
    """C-controller: slots and blueprints are those of the environment's codec, by name."""
    env = GrowEnv(find_task("spirals"))
    policy, generator = Learned(network(), exploration=0.2), torch.Generator().manual_seed(1)
    seen, _ = env.reset(seed=3)
    state = policy.start(env.codec)
    for _ in range(8):
        decision, state = policy.act(seen, state, generator)
        wanted = env.codec.decode(decision.choices)
        seen, *_, info = env.step(decision.choices)
        assert info["refused"] == ()
        assert info["executed"] == wanted


@given(st.integers(1, 12), st.integers(1, 9), st.integers(0, 50))
@settings(max_examples=30, deadline=None)
def test_the_same_weights_act_on_any_number_of_slots_and_blueprints(slots, blueprints, seed):
    arrays = observation(slots, blueprints, seed)
    made = act(
        network(), tensors(arrays), network().memory.start(1), torch.tensor([True]), torch.Generator().manual_seed(seed)
    )
    op, slot, blueprint = made.choices[0, :3].tolist()
    assert arrays["mask_op"][op]
    assert arrays["mask_op_slot"][op][slot]
    if op == Op.GERMINATE:
        assert arrays["mask_slot_blueprint"][slot][blueprint]
    for place, head in enumerate(Head):
        if head not in HEADS_OF[Op(op)]:
            assert made.choices[0, place] == 0
            assert made.log_probs[0, place] == 0
            assert not made.free[0, place]


@given(st.permutations(range(5)), st.integers(0, 20))
@settings(max_examples=20, deadline=None)
def test_a_permutation_of_slots_permutes_their_probabilities_and_nothing_else(order, seed):
    net, arrays = network(), observation(5, 4, seed)
    by_slot = {"slots", "slots_valid", "blueprints", "blueprints_valid", "mask_slot", "mask_slot_blueprint"}
    moved = {name: array[list(order)] if name in by_slot else array for name, array in arrays.items()}
    moved["mask_op_slot"] = arrays["mask_op_slot"][:, list(order)]
    choices = [int(Op.GERMINATE), order[2], 0, 0, 0, 0, 0, 0]
    op, slot, rest = distributions(net, arrays, choices)
    moved_op, moved_slot, moved_rest = distributions(net, moved, [int(Op.GERMINATE), 2, 0, 0, 0, 0, 0, 0])
    torch.testing.assert_close(moved_op, op, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(moved_slot, slot[..., list(order)], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(moved_rest, rest, atol=1e-5, rtol=1e-5)


def test_rows_of_hosts_with_fewer_slots_and_steps_replay_as_they_were_played():
    """R2-LOW5: rows and steps, or a single step; padding is inert."""
    net = network()
    parts = [play(net, 5, slots=2, blueprints=3), play(net, 7, slots=6, blueprints=5, seed=1)]
    joined = join(parts)
    again = replay(net, joined, 0.1)
    for row, part in enumerate(parts):
        steps = part.rewards.shape[1]
        torch.testing.assert_close(again.log_probs[row, :steps], part.log_probs[0], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(again.values[row, :steps], part.values[0], atol=1e-5, rtol=1e-5)
        assert torch.equal(again.free[row, :steps], part.free[0])


def test_an_update_over_hosts_of_different_sizes_changes_every_head_that_had_a_choice():
    net = network()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    metrics = Learner(net, PPOConfig(epochs=2)).update(join([play(net, 20, 2, 3), play(net, 25, 6, 5, 1)]))
    assert metrics.finite
    assert all(head.gradient_norm > 0 for head in metrics.heads.values() if head.steps)
    changed = {name for name, value in net.state_dict().items() if not torch.equal(value, before[name])}
    assert {"wait_score.weight", "offer_scores.score.weight", "trunk.weight", "memory.lstm.weight_hh_l0"} <= changed


@pytest.mark.parametrize("op", [op for op in Op if op is not Op.WAIT], ids=lambda op: op.name)
def test_only_the_heads_of_the_op_get_a_gradient(op):
    """R0-X4 for the controller's own network: credit follows the table of the contracts."""
    net, slots = network(), 4
    legal = np.zeros((len(Op), slots), np.int8)
    legal[op] = 1
    sequences = play_forced(net, op, legal)
    again = replay(net, sequences)
    again.log_probs.sum().backward()
    norms = [
        sum(float(gradient.norm()) for gradient in group if gradient is not None) for group in net.head_gradients()
    ]
    for head, norm in zip(Head, norms, strict=True):
        assert (norm > 0) == (head in HEADS_OF[op]), head


def play_forced(net, op, legal) -> Sequences:
    """Steps at which `op` was chosen in the last slot."""
    seen = tensors(observation(legal.shape[1], 3, op_slot=legal))
    choices = torch.tensor([[int(op), legal.shape[1] - 1, 0, 0, 0, 0, 0, 0]])
    buffer = Buffer(1, 1, {name: value[0] for name, value in seen.items()}, len(Head))
    buffer.begin(net.memory.start(1))
    zeros = torch.zeros(1, len(Head))
    buffer.decide(seen, torch.tensor([True]), choices, zeros, zeros.bool())
    buffer.conclude(torch.zeros(1), torch.zeros(1), torch.tensor([True]), torch.zeros(1))
    return buffer.sequences()


@pytest.mark.parametrize("array", ["blueprints", "blueprints_valid"])
def test_whether_and_where_to_grow_and_the_value_depend_on_what_could_be_planted(array):
    """Op, slot and value see the offers before anything is chosen."""
    net, arrays = network(), observation(3, 4, op_slot=np.ones((len(Op), 3), np.int8))
    other = arrays | {array: observation(3, 4, seed=1)[array]}
    choices = [int(Op.GERMINATE), 1, 0, 0, 0, 0, 0, 0]
    for before, after in zip(distributions(net, arrays, choices), distributions(net, other, choices), strict=True):
        assert not torch.allclose(before, after, atol=1e-3)
    assert not torch.allclose(value(net, arrays), value(net, other), atol=1e-4)


def value(net, arrays):
    return act(net, tensors(arrays), net.memory.start(1), torch.tensor([True]), None).values


def test_growing_is_as_likely_as_all_offers_together():
    """An op sums up its slots, and a slot its offers: one more offer of the same kind makes growing more likely."""
    net, arrays = ControllerNetwork(FIELDS, SMALL), observation(2, 2, op_slot=np.ones((len(Op), 2), np.int8))
    arrays["mask_slot_blueprint"][:] = 1
    op, slot, rest = distributions(net, arrays, [int(Op.GERMINATE), 0, 0, 0, 0, 0, 0, 0])
    seen = {name: one.unsqueeze(1) for name, one in tensors(arrays).items()}
    by_offer = net.encode(seen, net.memory.start(1), torch.tensor([[True]])).features[2][0, 0]
    torch.testing.assert_close(slot[0], by_offer.logsumexp(dim=-1).log_softmax(dim=-1))
    torch.testing.assert_close(rest[0, :2], by_offer[0].log_softmax(dim=-1))
    arrays["mask_slot_blueprint"][:, 1] = 0
    fewer, *_ = distributions(net, arrays, [int(Op.GERMINATE), 0, 0, 0, 0, 0, 0, 0])
    assert fewer[0, Op.GERMINATE] < op[0, Op.GERMINATE]


@given(st.permutations(range(4)), st.integers(0, 20))
@settings(max_examples=20, deadline=None)
def test_a_permutation_of_blueprints_permutes_their_probabilities_and_nothing_else(order, seed):
    net, arrays = network(), observation(3, 4, seed)
    of_blueprints = {"blueprints": 1, "blueprints_valid": 1, "mask_slot_blueprint": 1, "mask_blueprint": 0}
    moved = {
        name: np.take(array, order, axis=of_blueprints[name]) if name in of_blueprints else array
        for name, array in arrays.items()
    }
    choices = [int(Op.GERMINATE), 1, 0, 0, 0, 0, 0, 0]
    op, slot, rest = distributions(net, arrays, choices)
    moved_op, moved_slot, moved_rest = distributions(net, moved, choices)
    torch.testing.assert_close(moved_op, op, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(moved_slot, slot, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(moved_rest[0, :4], rest[0, list(order)], atol=1e-5, rtol=1e-5)


def described(net, arrays, choices):
    seen = {name: value.unsqueeze(1) for name, value in tensors(arrays).items()}
    encoded = net.encode(seen, net.memory.start(1), torch.tensor([[True]]))
    return net.describe(encoded, torch.tensor(choices).reshape(1, 1, -1))[0, 0]


def test_a_decision_is_described_by_what_was_chosen_and_not_by_its_number():
    """Judges of decisions read it: the same slot and offer elsewhere are the same decision."""
    net, arrays = network(), observation(3, 4)
    turned = {
        name: array[::-1].copy()
        if name in {"slots", "slots_valid", "blueprints", "blueprints_valid", "mask_slot", "mask_slot_blueprint"}
        else array
        for name, array in arrays.items()
    }
    turned["mask_op_slot"] = arrays["mask_op_slot"][:, ::-1].copy()
    one = described(net, arrays, [int(Op.GERMINATE), 0, 3, 1, 0, 0, 0, 0])
    assert one.shape == (net.described,)
    torch.testing.assert_close(described(net, turned, [int(Op.GERMINATE), 2, 3, 1, 0, 0, 0, 0]), one)
    for other in ([0, 2, 1, 0, 0, 0, 0], [0, 3, 0, 0, 0, 0, 0], [1, 3, 1, 0, 0, 0, 0]):
        assert not torch.allclose(described(net, arrays, [int(Op.GERMINATE), *other]), one)


@pytest.mark.parametrize("op", list(Op))
def test_heads_that_an_op_does_not_use_are_not_described(op):
    net, arrays = network(), observation(3, 4)
    plain = described(net, arrays, [int(op), *[0] * 7])
    for place, head in enumerate(Head):
        if head is Head.OP:
            continue
        choices = [int(op), *[0] * 7]
        choices[place] = 1
        assert torch.equal(described(net, arrays, choices), plain) == (head not in HEADS_OF[op]), head


def test_a_mask_that_allows_nothing_is_refused():
    """S4-masked-logits."""
    arrays = observation(3, 2)
    arrays["mask_op"][:] = 0
    with pytest.raises(EmptyMask, match="allows nothing"):
        act(network(), tensors(arrays), network().memory.start(1), torch.tensor([True]), None)


def test_a_newborn_is_nearly_indifferent_but_for_its_prior_over_ops_and_its_habits():
    """S4-orthogonal-init: hidden layers of gain sqrt 2, policy outputs near 0, value output 1."""
    net = ControllerNetwork(FIELDS)
    assert sum(parameter.numel() for parameter in net.parameters()) <= 300_000
    weight = net.trunk.weight
    torch.testing.assert_close(weight @ weight.T, 2 * torch.eye(len(weight)), atol=1e-4, rtol=0)
    for layer in (net.wait_score, net.offer_scores.score, net.op_scores.score):
        assert torch.linalg.matrix_norm(layer.weight, ord=2).item() == pytest.approx(0.01, rel=1e-3)
    assert torch.linalg.matrix_norm(net.critic.output.weight, ord=2).item() == pytest.approx(1.0, rel=1e-3)
    arrays = observation(4, 4, op_slot=np.ones((len(Op), 4), np.int8))
    arrays["mask_slot_blueprint"][:] = 1
    ops, slots, rest = distributions(net, arrays, [int(Op.GERMINATE), 0, 0, 0, 0, 0, 0, 0])
    assert ops[0, Op.ADVANCE] > ops[0, Op.WAIT] > ops[0, Op.PRUNE]
    assert (slots.max() - slots.min()).item() < 0.1
    assert (rest[0, :4].max() - rest[0, :4].min()).item() < 0.1
    for row, (head, usual) in zip(rest[1:4], list(USUAL.items())[:3], strict=True):
        assert row.argmax().item() == CHOICES[head].index(usual)
        assert row.max().exp().item() > 0.8


def test_there_is_no_conditional_stub_and_no_import_inside_a_function():
    """R3-HIGH, R4-H7: torch is a hard dependency; there is no table of maximum entropies beside the masks."""
    for package in (esper.rl, esper.controller):
        for module in vars(package).values():
            source = inspect.getsource(module) if inspect.ismodule(module) else ""
            assert "except ImportError" not in source
            assert "    import " not in source
            assert "MAX_ENTROPY" not in source


@pytest.mark.parametrize("name", ["slot", "trunk", "memory"])
def test_impossible_sizes_are_refused(name):
    with pytest.raises(InvalidNetwork, match=f"network size {name} = 0; give a whole number"):
        NetworkConfig(**{name: 0})
