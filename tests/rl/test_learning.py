"""The learner must learn: a decision of several heads, a memory, and a classic. Seconds, not benchmarks."""

from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from esper.rl import PPO, PPOConfig, VectorConfig
from tests.rl.worlds import Bandit, Recall, Show

FAST = PPOConfig(learning_rate=3e-3, final_learning_rate=3e-3, entropy_weight=0.05)


def test_policy_learns_a_bandit_that_needs_a_rare_op_and_its_dependent_head():
    """C-rl, R0-X4: the op is chosen in one case of fourteen at first, and pays only with the right style."""
    agent = PPO(
        Bandit,
        environments=16,
        steps=8,
        dependent_masks=True,
        heads={"op": (), "style": [5]},
        network=VectorConfig(hidden=32, memory=0, critic=32),
        config=FAST,
    )
    with torch.no_grad():
        agent.network.actor.bias[5] -= 1.0
    shares = []
    agent.learn(3000, lambda now: shares.append(now.metrics.heads["style"].steps / now.metrics.steps))
    assert shares[0] < 0.1
    assert shares[-1] > 0.9
    assert fmean(agent.evaluate(50)) >= 0.95


def recalled(memory: int) -> float:
    """Share of right answers after training."""
    network = VectorConfig(hidden=16, memory=memory, critic=16)
    agent = PPO(Recall, environments=16, steps=12, network=network, config=FAST)
    agent.learn(4000)
    return fmean(agent.evaluate(100))


def test_memory_carries_a_cue_to_the_question():
    """C-rl, R1-L3: sequences are learned through, over starts inside the rows and over the ends of rollouts."""
    assert recalled(memory=16) >= 0.95


def test_without_memory_the_cue_can_only_be_guessed():
    """The task needs what it claims to need."""
    assert recalled(memory=0) <= 0.65


def test_cartpole_makes_clear_progress():
    """C-rl."""
    agent = PPO(
        "CartPole-v1",
        environments=8,
        steps=64,
        network=VectorConfig(memory=32),
        config=PPOConfig(learning_rate=2e-3, final_learning_rate=2e-3),
    )
    untrained = fmean(agent.evaluate(10))
    agent.learn(6_000)
    assert untrained < 100
    assert fmean(agent.evaluate(10)) >= 150


def near(shown: Any, action: Any) -> float:
    """Do what is shown: both numbers, of which one lies on a bound half of the time."""
    return -float(np.abs(np.clip(1.5 * shown, -1, 1) - action).mean())


def brighter(shown: Any, action: Any) -> float:
    """Which half of the image is brighter."""
    image = shown["eye"].astype(float)
    return float(action == int(image[:, :4].mean() > image[:, 4:].mean()))


TRIVIAL = {
    "real numbers": (spaces.Box(-1.0, 1.0, (2,)), spaces.Box(-1.0, 1.0, (2,)), near, -0.15),
    "flags": (
        spaces.MultiBinary(3),
        spaces.MultiBinary(3),
        lambda shown, action: float(np.mean(np.asarray(shown) == action)),
        0.98,
    ),
    "choice shown": (
        spaces.Discrete(4, start=2),
        spaces.MultiDiscrete([4, 2]),
        lambda shown, action: float(action[0] == shown - 2 and action[1] == shown % 2),
        0.95,
    ),
    "dictionary with an image": (
        spaces.Dict({"eye": spaces.Box(0, 255, (8, 8, 1), np.uint8), "noise": spaces.Discrete(3)}),
        spaces.Discrete(2),
        brighter,
        0.85,
    ),
}


USUAL = pytest.param(PPOConfig(), 8_000, marks=pytest.mark.slow)


@pytest.mark.parametrize(("config", "steps"), [(FAST, 2_500), USUAL], ids=["fast", "usual"])
@pytest.mark.parametrize("name", TRIVIAL)
def test_trivial_task_of_each_space_is_learned_in_seconds(name, config, steps):
    shown, taken, pays, enough = TRIVIAL[name]
    network = VectorConfig(hidden=32, memory=0, critic=32)
    agent = PPO(lambda: Show(shown, taken, pays), environments=16, steps=16, network=network, config=config)
    untrained = fmean(agent.evaluate(100))
    agent.learn(steps)
    trained = fmean(agent.evaluate(100))
    assert untrained < enough - 0.1 < enough < trained, (untrained, trained)


def test_unfit_scales_are_learned_with_normalised_observations():
    """A number in the thousands beside one in the thousandths, which is what matters."""
    shown = spaces.Box(np.array([4000.0, -1e-3], np.float32), np.array([5000.0, 1e-3], np.float32))

    def played(normalise: bool) -> float:
        network = VectorConfig(hidden=16, memory=0, critic=16, normalise=normalise)
        pays = lambda seen, action: float(action == int(seen[1] > 0))  # noqa: E731
        make = lambda: Show(shown, spaces.Discrete(2), pays)  # noqa: E731
        agent = PPO(make, environments=16, steps=16, network=network, config=FAST)
        return fmean(agent.learn(2_500).evaluate(100))

    assert played(normalise=True) > 0.9 > 0.7 > played(normalise=False)
