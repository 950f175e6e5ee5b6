"""What stands before the first layer: statistics that stay still during a rollout, eyes, modules of one's own."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from esper.rl import PPO, BadCheckpoint, VectorConfig, replay
from esper.rl.inputs import Eyes, MixedInputs, Scale
from esper.rl.observations import Observations
from tests.rl.cases import assert_same
from tests.rl.test_ppo import STEADY, everything
from tests.rl.worlds import Anything, Walk

NORMALISED = VectorConfig(hidden=6, memory=5, critic=6, normalise=True)


def test_statistics_are_those_of_everything_taken_in():
    scale, generator = Scale(torch.tensor([True, True, False])), torch.Generator().manual_seed(0)
    parts = [
        torch.randn(size, 3, generator=generator) * torch.tensor([3.0, 1e-3, 5.0]) + torch.tensor([7.0, 0.0, 1.0])
        for size in (5, 0, 1, 40)
    ]
    for part in parts:
        scale.take_in(part)
    whole = torch.cat(parts)
    torch.testing.assert_close(scale.mean, whole.mean(dim=0))
    torch.testing.assert_close(scale.variance, whole.var(dim=0, correction=0))
    scaled = scale(whole)
    torch.testing.assert_close(scaled[:, :2].mean(dim=0), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(scaled[:, :2].std(dim=0, correction=0), torch.ones(2))
    assert torch.equal(scaled[:, 2], whole[:, 2]), "choices and flags pass as they are"
    assert scale(torch.full((1, 3), 1e9))[0, 0] == 10.0


def test_nothing_is_scaled_before_anything_was_seen_and_constants_stay_finite():
    scale = Scale(torch.tensor([True]))
    assert scale(torch.tensor([[123.0]])).item() == 123.0
    scale.take_in(torch.full((4, 1), 5.0))
    assert scale(torch.tensor([[5.0]])).item() == 0.0
    assert scale(torch.tensor([[6.0]])).isfinite().all()


def test_statistics_are_frozen_while_a_rollout_is_made_and_learned_from():
    """R4-C5: what the policy acted on is what the update sees; then the rollout is taken in."""
    agent = PPO(Walk, environments=3, steps=16, network=NORMALISED, config=STEADY)
    scale = agent.network.inputs.scale
    seen, during = [], []
    for update in range(3):
        before = scale.mean.clone()
        agent._collect(agent.rows)
        sequences = agent.buffer.sequences()
        assert torch.equal(scale.mean, before)
        assert scale.count == 48 * update
        seen.append(sequences.observation["vector"].flatten(0, 1).clone())
        if update == 0:
            sequences = agent._at_first_scale(sequences)
            before = scale.mean.clone()
        again = replay(agent.network, sequences)
        torch.testing.assert_close(again.log_probs, sequences.log_probs, rtol=0.0, atol=1e-5)
        torch.testing.assert_close(again.values, sequences.values, rtol=0.0, atol=1e-5)
        agent.learner.update(sequences, probe=lambda _: during.append(scale.mean.clone()))
        assert all(torch.equal(mean, before) for mean in during[-STEADY.epochs :])
        if update:
            agent.network.take_in(sequences.observation, sequences.valid)
    torch.testing.assert_close(scale.mean, torch.cat(seen).mean(dim=0))


def test_new_statistics_move_no_prediction():
    agent = PPO(Walk, environments=3, steps=16, network=NORMALISED, config=STEADY).learn(48)
    agent._collect(agent.rows)
    sequences = agent.buffer.sequences()
    before, mean = replay(agent.network, sequences), agent.network.inputs.scale.mean.clone()
    agent.network.take_in(sequences.observation, sequences.valid)
    after = replay(agent.network, sequences)
    assert not torch.equal(agent.network.inputs.scale.mean, mean)
    torch.testing.assert_close(after.values, before.values, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(after.log_probs, before.log_probs, rtol=1e-5, atol=1e-5)


def test_first_statistics_are_those_of_the_first_rollout_and_hold_in_its_update():
    agent = PPO(Walk, environments=3, steps=16, network=NORMALISED, config=STEADY)
    assert agent.network.newborn
    agent.learn(48)
    assert not agent.network.newborn
    vector = agent.buffer.sequences().observation["vector"].flatten(0, 1)
    torch.testing.assert_close(agent.network.inputs.scale.mean, vector.mean(dim=0))


FLAGS_AND_AN_IMAGE = spaces.Dict({"eye": spaces.Box(0, 255, (5, 6, 1), np.uint8), "kind": spaces.Discrete(3)})


def first_layer(agent: PPO) -> torch.Tensor:
    """What the first layer made of the rollout, (steps, units)."""
    sequences = agent.buffer.sequences()
    return agent.network.encoder(agent.network.inputs(sequences.observation)).flatten(0, 1).detach()


@pytest.mark.parametrize("own", [None, nn.Identity])
def test_first_layer_of_a_newborn_has_a_mean_of_0_over_the_first_rollout(own):
    """Whatever is seen: images and choices, or what a module of one's own makes of choices."""
    shown = FLAGS_AND_AN_IMAGE if own is None else spaces.Discrete(3)
    network = VectorConfig(hidden=6, memory=5, critic=6, encoder=None if own is None else lambda _: own())
    agent = PPO(lambda: Anything(shown, spaces.Discrete(2)), environments=3, steps=16, network=network, config=STEADY)
    agent._collect(agent.rows)
    assert first_layer(agent).mean(dim=0).abs().max() > 0.05
    sequences = agent._at_first_scale(agent.buffer.sequences())
    torch.testing.assert_close(first_layer(agent).mean(dim=0), torch.zeros(6), atol=1e-5, rtol=0)
    torch.testing.assert_close(replay(agent.network, sequences).values, sequences.values, rtol=0.0, atol=1e-5)
    first = [agent.network.encoder.bias.clone(), agent.network.memory.change.weight.clone()]
    agent.network.take_in(sequences.observation, sequences.valid)
    now = [agent.network.encoder.bias, agent.network.memory.change.weight]
    assert all(map(torch.equal, now, first)), "only the first rollout is centred, and says how much changes"


def test_changes_of_what_is_seen_are_first_read_on_a_scale_of_1():
    agent = PPO(Walk, environments=3, steps=16, config=STEADY)
    agent._collect(agent.rows)
    raw = agent.network.memory.change.weight.clone()
    sequences = agent._at_first_scale(agent.buffer.sequences())
    inputs = agent.network.activation(agent.network.encoder(agent.network.inputs(sequences.observation)))
    stretch = (agent.network.memory.change.weight / raw).mean()
    torch.testing.assert_close(inputs.diff(dim=1).square().mean().sqrt() * stretch, torch.tensor(1.0))


def test_weights_that_learned_and_observations_as_they_are_are_not_centred(tmp_path):
    def make() -> Anything:
        return Anything(spaces.Discrete(3), spaces.Discrete(2))

    raw = VectorConfig(hidden=6, memory=5, critic=6, normalise=False)
    assert not PPO(make, environments=2, steps=8, network=raw).network.newborn
    agent = PPO(make, environments=2, steps=8).learn(32)
    agent.save(tmp_path / "agent.pt")
    again = PPO(make, environments=2, steps=8, seed=5)
    assert again.network.newborn
    assert not again.warm_start(tmp_path / "agent.pt").network.newborn


def test_numbers_that_fit_already_are_not_scaled():
    low, high = np.array([-1.0, 0.0, -2.0, -0.1, -np.inf]), np.array([1.0, 1.0, 0.0, 0.1, 0.0])
    box = spaces.Box(low, high, dtype=np.float64)
    space = spaces.Tuple([spaces.Discrete(2), box, spaces.MultiBinary(1), spaces.Box(0, 255, (5, 5, 1), np.uint8)])
    assert Observations(space).unscaled().tolist() == [False] * 2 + [False, False, True, True, True] + [False]
    assert MixedInputs(Observations(spaces.Box(0.0, 1.0, (3,))), normalise=True).scale is None


def test_learning_takes_in_every_rollout_once_and_evaluation_none():
    agent = PPO(Walk, environments=3, steps=16, network=NORMALISED).learn(96)
    agent.evaluate(3)
    agent.predict(np.zeros(2))
    assert agent.network.inputs.scale.count == 96


@pytest.mark.parametrize(
    "shape", [(5, 5, 1), (1, 5, 5), (5, 9), (12, 12, 3), (3, 30, 40), (84, 84, 4), (4, 84, 84), (36, 36, 3)]
)
def test_eyes_find_the_channels_and_keep_rows_apart(shape):
    eyes = Eyes(spaces.Box(0, 255, shape, np.uint8))
    channels = eyes.layers[0].in_channels
    assert channels == (1 if len(shape) == 2 else min(shape))
    images = torch.randint(256, (2, 3, *shape), dtype=torch.uint8)
    features = eyes(images)
    assert features.shape == (2, 3, eyes.size)
    torch.testing.assert_close(features[1, 2], eyes(images[1:, 2:])[0, 0])
    assert eyes.size < 4000


def test_bytes_are_scaled_and_numbers_are_not():
    space = spaces.Box(0, 255, (5, 5, 1), np.uint8)
    bytes_, numbers = Eyes(space), Eyes(spaces.Box(0.0, 1.0, (5, 5, 1)))
    numbers.load_state_dict(bytes_.state_dict())
    image = torch.randint(256, (1, 1, 5, 5, 1), dtype=torch.uint8)
    torch.testing.assert_close(bytes_(image), numbers(image / 255.0))


SHOWN = spaces.Dict(
    {
        "eye": spaces.Box(0, 255, (5, 6, 1), np.uint8),
        "place": spaces.Box(-3.0, 3.0, (2, 2)),
        "kind": spaces.Discrete(3),
        "row": spaces.Tuple([spaces.MultiBinary(2)]),
    }
)


class Own(nn.Module):
    """Looks at everything it is given."""

    def __init__(self, space: spaces.Dict) -> None:
        super().__init__()
        self.space, self.seen = space, None
        self.eye, self.rest = nn.Linear(30, 4), nn.Linear(4 + 3 + 2, 3)

    def forward(self, observation):
        self.seen = observation
        flat = [observation["place"].flatten(1), observation["kind"], observation["row"][0]]
        return torch.cat([self.eye(observation["eye"].flatten(1)), self.rest(torch.cat(flat, dim=1))], dim=1).relu()


def own_agent(**options) -> PPO:
    make = {"network": Own} | options
    return PPO(lambda: Anything(SHOWN, spaces.Discrete(2)), environments=3, steps=8, config=STEADY, **make)


def test_module_of_ones_own_gets_observations_in_the_shape_of_their_space():
    agent = own_agent()
    env = Anything(SHOWN, spaces.Discrete(2))
    observation, _ = env.reset(seed=1)
    agent.predict(observation)
    module = agent.network.inputs.module
    assert module.space == SHOWN
    seen = module.seen
    assert {name: tuple(seen[name].shape) for name in ("eye", "place", "kind")} == {
        "eye": (1, 5, 6, 1),
        "place": (1, 2, 2),
        "kind": (1, 3),
    }
    torch.testing.assert_close(seen["eye"][0], torch.from_numpy(observation["eye"]) / 255.0)
    torch.testing.assert_close(seen["place"][0], torch.from_numpy(observation["place"]))
    assert seen["kind"].argmax() == observation["kind"]
    assert seen["row"][0].tolist() == [observation["row"][0].tolist()]


@pytest.mark.parametrize("sizes", [{}, {"network": VectorConfig(hidden=6, memory=0, normalise=True, encoder=Own)}])
def test_module_of_ones_own_learns_and_is_given_again_to_resume(sizes, tmp_path):
    agent = own_agent(**sizes)
    before = agent.network.inputs.module.eye.weight.clone()
    agent.learn(48)
    assert not torch.equal(agent.network.inputs.module.eye.weight, before)
    agent.save(tmp_path / "agent.pt")

    def make() -> Anything:
        return Anything(SHOWN, spaces.Discrete(2))

    with pytest.raises(BadCheckpoint, match=r"was saved with a network of its own; give it, as in PPO\.load"):
        PPO.load(tmp_path / "agent.pt", make)
    again = PPO.load(tmp_path / "agent.pt", make, network=Own)
    assert_same(everything(again.learn(24)), everything(agent.learn(24)))
    with pytest.raises(BadCheckpoint, match=r"inputs: the checkpoint has Own .*, the network Flat"):
        PPO.load(tmp_path / "agent.pt", make, network=Flat)


class Flat(nn.Module):
    def __init__(self, _: spaces.Space) -> None:
        super().__init__()

    def forward(self, observation):
        return observation["place"].flatten(1)


def test_plain_vectors_are_read_as_they_are():
    inputs = MixedInputs(Observations(spaces.Box(-1.0, 1.0, (3,))), normalise=False)
    vector = torch.randn(2, 4, 3)
    assert inputs({"vector": vector}) is vector
    assert not list(inputs.parameters())
