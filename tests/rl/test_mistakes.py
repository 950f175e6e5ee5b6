"""What is given to the agent by mistake is refused with its name, and with what to give instead."""

from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from esper.rl import PPO, NonFinite, PPOConfig, RLError, WrongShape
from tests.rl.worlds import Anything, Walk

SMALL = {"environments": 2, "steps": 8}
TWO_HEADS = partial(Anything, spaces.Discrete(2), spaces.MultiDiscrete([2, 3]))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"environments": 2.5}, r"environments = 2\.5; give a whole number from 1 on"),
        ({"steps": 0}, r"steps = 0; give a whole number from 1 on"),
        ({"seed": "0"}, r"seed = '0'; give a whole number from 0 on"),
        ({"config": {"clip": 0.1}}, r"config = \{'clip': 0\.1\}; give its settings by name, as in PPOConfig"),
        ({"device": "gpu"}, r"device = 'gpu' cannot be used here .*; 'cpu' always can"),
        ({"network": torch.nn.Linear(2, 3)}, r"network is a Linear; give .* as in network=lambda space: MyModule\(\)"),
        ({"network": {"hidden": 8}}, r"network is a dict; give a VectorConfig"),
        (
            {"network": lambda _: torch.nn.Linear(5, 3)},
            r"Linear failed on two observations of zeros in the shape of Box",
        ),
    ],
)
def test_wrong_argument_of_the_agent_is_named(given, said):
    with pytest.raises(RLError, match=said):
        PPO(Walk, **SMALL | given)


@pytest.mark.parametrize("heads", [["op", "door"], {"op": [], "door": 1}, {"op": [], "door": ["1"]}])
def test_heads_that_are_no_table_of_choices_are_refused(heads):
    with pytest.raises(RLError, match=r"heads = .*; give the name of each head with .* as in \{'op'"):
        PPO(TWO_HEADS, heads=heads, **SMALL)


@pytest.mark.parametrize("epochs", ["3", 2.5, 0, float("nan"), None])
def test_passes_that_are_no_whole_number_are_refused(epochs):
    with pytest.raises(RLError, match=r"epochs = .*; give a whole number from 1 on"):
        PPOConfig(epochs=epochs)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"total_timesteps": "100"}, r"total_timesteps = '100'; give a whole number from 0 on"),
        ({"total_timesteps": -5}, r"total_timesteps = -5; give a whole number"),
        ({"until": 1.5}, r"until = 1\.5; give a whole number"),
        ({"total_timesteps": 16, "callback": [print]}, r"callback = \[.*\]; give a function"),
    ],
)
def test_wrong_argument_of_learn_is_named_before_anything_is_played(given, said):
    agent = PPO(Walk, **SMALL)
    with pytest.raises(RLError, match=said):
        agent.learn(**given)
    assert agent.steps == 0


def test_steps_may_be_written_as_a_power_of_ten():
    assert PPO(Walk, **SMALL).learn(1e1).steps == 16


def test_episodes_to_evaluate_are_counted_in_whole_numbers():
    agent = PPO(Walk, **SMALL)
    with pytest.raises(RLError, match=r"episodes = 1\.5; give a whole number from 0 on"):
        agent.evaluate(1.5)
    assert agent.evaluate(0) == []


def test_prediction_wants_the_memory_that_it_gave_and_as_many_starts_as_rows():
    agent, seen = PPO(Walk, **SMALL), np.zeros((3, 2), np.float32)
    with pytest.raises(RLError, match=r"state is a tuple; give what predict returned, or None to begin episodes"):
        agent.predict(seen, (np.zeros((1, 3, 64)), np.zeros((1, 3, 64))))
    with pytest.raises(WrongShape, match=r"there are 3 observations; give masks, memory and episode_start of as many"):
        agent.predict(seen, episode_start=[True, False])
    _, state = agent.predict(seen)
    with pytest.raises(WrongShape, match=r"there are 2 observations"):
        agent.predict(seen[:2], state)
    one, _ = agent.predict(seen, state, episode_start=[True])
    assert one.tolist() == agent.predict(seen)[0].tolist(), "one flag holds for all rows"


class Masked(Anything):
    """Two heads, and a mask that is given as it is."""

    def __init__(self, mask) -> None:
        super().__init__(spaces.Discrete(2), spaces.MultiDiscrete([2, 2]))
        self.mask = mask

    def reset(self, **given):
        return super().reset(**given)[0], {"action_mask": self.mask}


@pytest.mark.parametrize(
    "mask", [(np.ones(2), np.ones(3)), np.array([0.0, -np.inf, 0.0, 0.0]), np.array(list("abcd")), [1, 2, 1, 1]]
)
def test_mask_that_is_no_array_of_flags_is_refused(mask):
    with pytest.raises(WrongShape, match=r"the action mask is .*; give one array of 0 and 1, the heads one behind"):
        PPO(lambda: Masked(mask), **SMALL)


@pytest.mark.parametrize("mask", [[1, 0, 1, 1], [True, False, True, True], np.array([1.0, 0.0, 1.0, 1.0])])
def test_masks_of_numbers_and_of_truth_values_say_the_same(mask):
    agent = PPO(lambda: Masked(mask), **SMALL)
    assert agent.rows.observation["mask"][0, 0].tolist() == [[True, False], [True, True]]


def test_masks_that_are_no_method_are_refused():
    class Flagged(Walk):
        action_masks = np.ones(2)

    with pytest.raises(RLError, match=r"has action_masks = array.*; it must be a method"):
        PPO(Flagged, **SMALL)


class Paying(Walk):
    """Every step pays, or shows, what it is told to."""

    pays, shows = 0.0, None

    def step(self, action):
        seen, _, *rest = super().step(action)
        return seen if self.shows is None else self.shows, self.pays, *rest


@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        ({"pays": None}, RLError, r"step\(\) of .* gave a reward of None; it must be a number"),
        ({"pays": np.zeros(2)}, RLError, r"gave a reward of array.*; it must be a number"),
        ({"pays": np.nan}, NonFinite, r"gave a reward of nan; rewards must be finite"),
        ({"shows": (None,)}, WrongShape, r"observation has shape \(1,\); its space promises \(2,\)"),
        ({"shows": (None, None)}, NonFinite, r"observation\[0\] is not finite in environment 0"),
    ],
)
def test_what_an_environment_gives_wrongly_is_named(given, kind, said):
    broken = type("Broken", (Paying,), given)
    with pytest.raises(kind, match=said):
        PPO(broken, **SMALL).learn(16)


def test_saving_makes_directories_and_refuses_to_replace_one(tmp_path):
    agent = PPO(Walk, **SMALL)
    agent.save(tmp_path / "runs" / "today" / "agent.pt")
    assert PPO.load(tmp_path / "runs" / "today" / "agent.pt", Walk).steps == 0
    with pytest.raises(RLError, match=r"today is a directory; give the name of a file in it"):
        agent.save(tmp_path / "runs" / "today")


def test_instance_can_be_trained_in_alone_and_judged_in_another():
    agent = PPO(gymnasium.wrappers.TimeLimit(Walk(), 5), environments=1, steps=8).learn(16)
    assert len(agent.evaluate(2, env=Walk)) == 2
