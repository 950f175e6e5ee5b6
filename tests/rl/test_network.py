"""The network for vectors: sizes, first weights, who owns which gradient, and the scale of its critic."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from esper.rl import Critic, RLError, Targets, VectorConfig, VectorNetwork, orthogonal, pin, ppo_loss, replay
from tests.rl.cases import INPUTS, SIZES, STEADY, USES, rollout, small_network


@given(st.floats(-100, 100), st.floats(1e-3, 1e3), st.floats(-100, 100), st.floats(1e-3, 1e3))
def test_another_scale_keeps_every_prediction_of_the_critic(mean, deviation, next_mean, next_deviation):
    """C-normaliser: returns have one scale, and learning it moves nothing that was learned."""
    critic, features = Critic(4, 3).double(), torch.randn(20, 4).double()
    critic.rescale(mean, deviation, keep=False)
    before = critic(features)
    critic.rescale(next_mean, next_deviation, keep=True)
    torch.testing.assert_close(critic(features), before)
    assert critic.mean.item() == pytest.approx(next_mean)
    assert critic.deviation.item() == pytest.approx(next_deviation)


def test_the_first_scale_holds_for_predictions_made_before_anything_was_learned():
    critic, features = Critic(4, 3), torch.randn(20, 4)
    before = critic(features)
    critic.rescale(500.0, 20.0, keep=False)
    torch.testing.assert_close(critic(features), 500 + 20 * before)


def test_policy_starts_near_uniform_and_hidden_layers_with_gain_root_two():
    """S4-orthogonal-init."""
    network = VectorNetwork(8, SIZES, config=VectorConfig(hidden=8, memory=16, critic=16))
    for layer, gain in ((network.encoder, 2**0.5), (network.critic.hidden, 2**0.5), (network.critic.output, 1.0)):
        rows = layer.weight @ layer.weight.T
        torch.testing.assert_close(rows, gain**2 * torch.eye(len(rows)), rtol=0.0, atol=1e-5)
        assert not layer.bias.any()
    torch.testing.assert_close(network.actor.weight @ network.actor.weight.T, 1e-4 * torch.eye(12), rtol=0, atol=1e-8)
    assert not network.given_first.any()
    assert orthogonal(torch.nn.Linear(3, 3), 2.0).weight.norm().item() == pytest.approx(2 * math.sqrt(3))


def test_no_weight_is_dead_but_those_of_choices_that_do_not_exist():
    """S3-no-dead-parameters: each number gets a gradient unless its head has fewer choices or is never used there."""
    network = small_network()
    old = rollout(network, rows=16, steps=16, masked=False)
    targets = Targets(*torch.randn(2, 16, 16), old.values)
    loss = ppo_loss(replay(network, old), old, targets, torch.ones(3), torch.tensor(1.0), STEADY)
    loss.total.backward()
    exists = torch.arange(4) < torch.tensor([*SIZES.values()]).unsqueeze(-1)
    for name, parameter in network.named_parameters():
        alive = parameter.grad != 0
        if name.startswith("actor"):
            assert torch.equal(alive.reshape(3, 4, -1).any(dim=-1), exists), name
        elif name == "given_first":
            assert torch.equal(alive, exists[1:] & USES[:, 1:, None])
        else:
            assert alive.all(), name


def test_a_single_head_has_no_weights_for_dependent_heads():
    """S3-no-dead-parameters."""
    assert VectorNetwork(2, {"op": 5}).given_first.numel() == 0


def test_gradients_by_head_are_parts_of_the_gradients_and_cover_the_actor():
    """R4-M19."""
    network = small_network()
    assert all(part is None for own in network.head_gradients() for part in own)
    for parameter in network.parameters():
        parameter.grad = torch.randn_like(parameter)
    own = network.head_gradients()
    assert len(own) == len(SIZES)
    total = sum(part.square().sum() for parts in own for part in parts)
    whole = sum(each.grad.square().sum() for each in (network.actor.weight, network.actor.bias, network.given_first))
    torch.testing.assert_close(total, whole)


def test_pinned_heads_have_choice_zero_alone():
    mask = torch.tensor([[[False, True], [True, True]], [[False, False], [True, False]]])
    used = torch.tensor([[True, False], [False, True]])
    copy = mask.clone()
    assert pin(mask, used).tolist() == [[[False, True], [True, False]], [[True, False], [True, False]]]
    assert torch.equal(mask, copy)


def test_schema_tells_apart_all_networks_whose_weights_have_another_meaning():
    """R1-M4: and networks that are alike have the same schema."""
    uses = torch.ones_like(USES)
    schemas = [
        VectorNetwork(INPUTS, SIZES, USES, VectorConfig(6, 5, 4)).schema(),
        VectorNetwork(INPUTS, SIZES, uses, VectorConfig(6, 5, 4)).schema(),
        VectorNetwork(INPUTS + 1, SIZES, USES, VectorConfig(6, 5, 4)).schema(),
        VectorNetwork(INPUTS, {"op": 3, "slot": 2, "tempo": 4}, USES, VectorConfig(6, 5, 4)).schema(),
        VectorNetwork(INPUTS, SIZES, USES, VectorConfig(7, 5, 4)).schema(),
        VectorNetwork(INPUTS, SIZES, USES, VectorConfig(6, 0, 4)).schema(),
        VectorNetwork(INPUTS, SIZES, USES, VectorConfig(6, 5, 3)).schema(),
        VectorNetwork(INPUTS, SIZES, USES, VectorConfig(6, 5, 4, "relu")).schema(),
    ]
    assert all((one == other) == (i == j) for i, one in enumerate(schemas) for j, other in enumerate(schemas))
    assert schemas[0] == small_network().schema()


def test_heads_have_one_order_everywhere():
    """R2-LOW2."""
    network = small_network()
    assert network.heads == tuple(SIZES)
    assert list(network.schema()["heads"]) == list(SIZES)
    covered = [head for level in network.levels for head in range(len(SIZES))[level]]
    assert covered == list(range(len(SIZES)))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"hidden": 0}, "hidden = 0; give a whole number from 1 on"),
        ({"critic": -3}, "critic = -3; give a whole number from 1 on"),
        ({"memory": -1}, "memory = -1; give a whole number from 0 on"),
        ({"activation": "sigmoid"}, "activation = 'sigmoid'; choose one of tanh, relu"),
    ],
)
def test_impossible_sizes_are_refused(wrong, said):
    with pytest.raises(RLError, match=said):
        VectorConfig(**wrong)
