"""Every space that the agent reads or acts in: a whole life of an agent in each, and what its network sees."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from esper.rl import PPO, PPOConfig, VectorConfig, replay
from esper.rl.actions import Actions
from esper.rl.agent_checkpoint import plain_space, space_in
from esper.rl.observations import Observations, is_image
from tests.rl.cases import assert_same
from tests.rl.test_ppo import everything
from tests.rl.worlds import Anything

SMALL = VectorConfig(hidden=6, memory=5, critic=6)
STEADY = PPOConfig(
    learning_rate=1e-3, final_learning_rate=1e-3, final_entropy_weight=0.01, epochs=2, minibatches=2, reuse=2
)
SHOWN = {
    "vector": spaces.Box(-2.0, 2.0, (3,)),
    "matrix": spaces.Box(-np.inf, np.inf, (2, 3), np.float64),
    "scalar": spaces.Box(0.0, 1.0, ()),
    "whole numbers": spaces.Box(0, 9, (4,), np.int64),
    "image of bytes": spaces.Box(0, 255, (12, 13, 3), np.uint8),
    "grey image": spaces.Box(0, 255, (6, 5), np.uint8),
    "channels first": spaces.Box(0.0, 1.0, (2, 7, 7)),
    "large image": spaces.Box(0, 255, (4, 36, 40), np.uint8),
    "choice": spaces.Discrete(4, start=-1),
    "choices": spaces.MultiDiscrete([[2, 3], [4, 2]], start=[[0, 1], [0, -2]]),
    "flags": spaces.MultiBinary((2, 2)),
    "dictionary": spaces.Dict(
        {
            "near": spaces.Box(-1.0, 1.0, (2,)),
            "far": spaces.Dict({"eye": spaces.Box(0, 255, (5, 5, 1), np.uint8), "kind": spaces.Discrete(3)}),
            "row": spaces.Tuple([spaces.MultiBinary(2), spaces.Box(0.0, 1.0, (1,))]),
        }
    ),
    "tuple": spaces.Tuple([spaces.Discrete(2), spaces.Box(0.0, 1.0, (5, 6, 1)), spaces.Box(0.0, 1.0, (6, 5, 1))]),
}
TAKEN = {
    "choice": spaces.Discrete(3, start=5),
    "choices": spaces.MultiDiscrete([[2, 3], [4, 2]], start=[[0, 1], [0, -2]]),
    "flags": spaces.MultiBinary((2, 2)),
    "numbers": spaces.Box(np.array([[-1.0, 0.0], [5.0, -3.0]]), np.array([[1.0, 9.0], [6.0, 3.0]]), dtype=np.float64),
    "unbounded": spaces.Box(np.array([-np.inf, 0.0, -np.inf], np.float32), np.array([np.inf, np.inf, 1.0], np.float32)),
}
PAIRS = [(shown, "choice") for shown in SHOWN] + [("vector", taken) for taken in TAKEN] + [("dictionary", "numbers")]


@pytest.mark.parametrize(("shown", "taken"), PAIRS)
def test_an_agent_learns_plays_predicts_and_resumes_exactly(shown, taken, tmp_path):
    network = VectorConfig(6, 5, 6, normalise=True)

    def make() -> Anything:
        return Anything(SHOWN[shown], TAKEN[taken])

    agent = PPO(make, environments=3, steps=8, network=network, config=STEADY).learn(48)
    sequences = agent.buffer.sequences()
    assert sequences.choices.is_floating_point() == (taken in {"numbers", "unbounded"})
    agent.save(tmp_path / "agent.pt")
    again = PPO.load(tmp_path / "agent.pt", make)
    assert_same(everything(again), everything(agent))
    assert_same(everything(again.learn(24)), everything(agent.learn(24)))
    assert agent.evaluate(2) == again.evaluate(2)
    agent._collect(agent.rows)
    now = replay(agent.network, agent.buffer.sequences())
    torch.testing.assert_close(now.log_probs, agent.buffer.sequences().log_probs, rtol=0, atol=1e-5)
    env = make()
    observation, _ = env.reset(seed=3)
    action, state = PPO.load(tmp_path / "agent.pt").predict(observation)
    assert env.action_space.contains(action)
    action, _ = agent.predict(observation, state, deterministic=False)
    assert env.action_space.contains(action)


@pytest.mark.parametrize("name", SHOWN)
def test_rows_of_observations_are_read_as_each_alone(name):
    space = SHOWN[name]
    space.seed(0)
    observations = Observations(space)
    samples = [space.sample() for _ in range(3)]
    each = observations.of_each(samples)
    batch = _stacked(space, samples)
    together = observations.of_all(batch)
    assert observations.rows(samples[0]) is None
    assert observations.rows(batch) == 3
    for tensor in each:
        assert torch.equal(each[tensor], together[tensor])
        assert torch.equal(each[tensor][1], observations.of_each(samples[1:2])[tensor][0])
    widths = sum(leaf.width for leaf in observations.leaves)
    assert widths == (each["vector"].shape[1] if "vector" in each else 0)


def _stacked(space, samples):
    if isinstance(space, spaces.Dict):
        return {name: _stacked(part, [sample[name] for sample in samples]) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_stacked(part, [sample[i] for sample in samples]) for i, part in enumerate(space.spaces))
    return np.stack(samples)


def test_choices_become_columns_of_which_one_is_set():
    space = spaces.Tuple([spaces.Discrete(3, start=4), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(2)])
    seen = Observations(space).of_each(
        [(5, np.array([1, 2]), np.array([1, 0])), (4, np.array([0, 0]), np.array([0, 1]))]
    )
    assert seen["vector"].tolist() == [[0, 1, 0, 0, 1, 0, 0, 1, 1, 0], [1, 0, 0, 1, 0, 1, 0, 0, 0, 1]]


def test_images_keep_their_bytes():
    seen = Observations(SHOWN["image of bytes"]).of_each([np.full((12, 13, 3), 7, np.uint8)])
    assert seen["image0"].dtype == torch.uint8
    assert seen["image0"].shape == (1, 12, 13, 3)
    assert [name for name, space in SHOWN.items() if is_image(space)] == [
        "image of bytes",
        "grey image",
        "channels first",
        "large image",
    ]


@pytest.mark.parametrize("name", [*SHOWN, *TAKEN])
def test_spaces_are_written_and_read_again(name):
    space = (SHOWN | TAKEN)[name]
    assert space_in(plain_space(space)) == space


def test_bounds_of_a_box_are_what_the_network_calls_minus_one_and_one():
    actions = Actions(TAKEN["numbers"])
    assert actions.all(np.array([[-1.0, -1.0, -1.0, -1.0], [1.0, 0.0, 1.0, 0.0]])).tolist() == [
        [[-1.0, 0.0], [5.0, -3.0]],
        [[1.0, 4.5], [6.0, 0.0]],
    ]
    actions = Actions(TAKEN["unbounded"])
    assert actions.low.tolist() == [-np.inf, 0.0, -np.inf]
    assert actions.action(np.array([7.0, 2.0, -3.0])).tolist() == [7.0, 2.0, -3.0]


def test_flags_and_choices_have_the_shape_of_their_space():
    assert Actions(TAKEN["flags"]).action(np.array([0, 1, 1, 0])).tolist() == [[0, 1], [1, 0]]
    assert Actions(TAKEN["choices"]).action(np.array([0, 1, 2, 1])).tolist() == [[0, 2], [2, -1]]
    assert Actions(TAKEN["choice"]).action(np.array([2])) == 7
