"""Vector environments of every autoreset mode give the experience that single ones give."""

from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from esper.rl import PPO, DiscountMismatch, NoEnvironment, NonFinite, RLError, VectorConfig, replay
from tests.rl.cases import assert_same
from tests.rl.test_ppo import everything_of, values_by_hand
from tests.rl.worlds import Anything, Asked, Clock, Shaped, Walk, Wrong

SMALL = VectorConfig(hidden=6, memory=5, critic=6)
MODES = list(AutoresetMode)


def vector(make, mode: AutoresetMode, count: int = 2) -> SyncVectorEnv:
    return SyncVectorEnv([make] * count, autoreset_mode=mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("memory", [0, 5])
@pytest.mark.parametrize(
    ("terminates", "truncates"), [(True, False), (False, True), (True, True)], ids=["terminated", "truncated", "both"]
)
def test_truncation_bootstraps_from_the_last_observation_and_termination_does_not(mode, memory, terminates, truncates):
    """R4-H4: V of the state after the action, with the carried memory."""
    make = partial(Clock, terminates=terminates, truncates=truncates)
    agent = PPO(vector(make, mode), steps=8, network=VectorConfig(hidden=6, memory=memory, critic=6), seed=3)
    agent._collect(agent.rows)
    sequences = agent.buffer.sequences()
    values = values_by_hand(agent, [0.0, 1 / 3, 2 / 3, 1.0])
    after = 0.0 if terminates else values[3]
    sequences.check(1)
    for row in range(2):
        valid = sequences.valid[row]
        if mode == AutoresetMode.NEXT_STEP:
            assert valid.tolist() == [True, True, True, False] * 2
            expected = [0, 0, after] * 2
            seen = [*values[:3], *values[:3]]
        else:
            assert valid.all()
            expected = [0, 0, after, 0, 0, after, 0, values[2]]
            seen = [*values[:3], *values[:3], *values[:2]]
        assert sequences.bootstrap[row][valid].tolist() == pytest.approx(expected, abs=1e-6)
        assert sequences.values[row][valid].tolist() == pytest.approx(seen, abs=1e-6)
        assert sequences.starts[row][valid].tolist() == ([True, False, False] * 3)[: int(valid.sum())]
        assert sequences.rewards[row][valid].eq(1).all()
    again = replay(agent.network, sequences)
    torch.testing.assert_close(again.log_probs, sequences.log_probs, rtol=0.0, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_steps_and_returns_are_those_that_were_played(mode):
    agent, told = PPO(vector(partial(Clock, 3, True), mode), steps=8, network=SMALL), []
    agent.learn(30, told.append)
    first = 12 if mode == AutoresetMode.NEXT_STEP else 16
    assert told[0].steps == first
    assert told[0].returns == (3.0,) * 4
    assert agent.evaluate(2) == [3.0, 3.0]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", [Walk, Asked], ids=["told", "asked"])
def test_masks_reach_the_choices(mode, make):
    """The walk refuses what it forbids, and at its end forbids everything."""
    PPO(vector(make, mode, 3), steps=32, network=SMALL).learn(200)


@pytest.mark.parametrize("mode", MODES)
def test_dictionaries_and_real_numbers_pass(mode):
    shown = spaces.Dict({"eye": spaces.Box(0, 255, (5, 6, 1), np.uint8), "kind": spaces.Discrete(3)})
    taken = spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([1.0, 9.0], np.float32))
    agent = PPO(vector(partial(Anything, shown, taken), mode, 3), steps=16, network=SMALL).learn(96)
    assert len(agent.evaluate(2)) == 2


def test_other_processes_and_wrappers_pass():
    envs = AsyncVectorEnv([partial(gymnasium.make, "CartPole-v1")] * 2)
    wrapped = gymnasium.wrappers.vector.ClipReward(envs, max_reward=0.5)
    agent = PPO(wrapped, steps=8, network=SMALL).learn(32)
    assert agent.buffer.sequences().rewards.max() == 0.5
    agent.close()


def test_registered_vector_is_evaluated_in_single_environments(tmp_path):
    agent = PPO(gymnasium.make_vec("CartPole-v1", num_envs=3), steps=8, network=SMALL).learn(48)
    assert isinstance(agent.rows.envs.unwrapped, CartPoleVectorEnv)
    named = PPO("CartPole-v1", steps=8, network=SMALL)
    agent.save(path := tmp_path / "agent.pt")
    assert agent.evaluate(3) == named.warm_start(path).evaluate(3)


def test_resumed_training_begins_new_episodes_with_the_same_learner(tmp_path):
    agent = PPO(vector(Walk, AutoresetMode.SAME_STEP), steps=8, network=SMALL).learn(32)
    agent.save(tmp_path / "agent.pt")
    again = PPO.load(tmp_path / "agent.pt", vector(Walk, AutoresetMode.SAME_STEP))
    assert_same(everything_of(again.learner), everything_of(agent.learner))
    assert again.starts.all()
    assert again.rows.restarts == 1
    single = PPO.load(tmp_path / "agent.pt", Walk).learn(16)
    assert single.steps == 48


class Silent(SyncVectorEnv):
    """A vector environment that tells less than it should."""

    def step(self, actions):
        *rest, infos = super().step(actions)
        return (*rest, {name: told for name, told in infos.items() if "final" not in name})


BAD_VECTORS = {
    "other number of rows": (
        lambda: PPO(vector(Walk, AutoresetMode.NEXT_STEP), environments=8),
        RLError,
        "environments = 8, but the vector environment has 2; leave it out, or say 2",
    ),
    "unknown mode": (
        lambda: PPO(unmarked()),
        RLError,
        r"metadata\['autoreset_mode'\] = None; set it to one of AutoresetMode.NEXT_STEP",
    ),
    "no last observation": (
        lambda: PPO(Silent([partial(Clock, truncates=True)] * 2, autoreset_mode=AutoresetMode.SAME_STEP)).learn(9),
        RLError,
        "its infos have no 'final_obs', .*; use AutoresetMode.NEXT_STEP",
    ),
    "reward is not a number": (
        lambda: PPO(vector(partial(Wrong, reward=float("nan")), AutoresetMode.NEXT_STEP)).learn(9),
        NonFinite,
        r"gave rewards \[nan nan\]; rewards must be finite",
    ),
    "discount of other rewards": (
        lambda: PPO(vector(Shaped, AutoresetMode.NEXT_STEP)),
        DiscountMismatch,
        r"for a discount of 0\.9",
    ),
    "nothing to evaluate in": (
        lambda: PPO(nameless()).evaluate(1),
        NoEnvironment,
        r"does not tell how its environments are made; give one, as in evaluate\(env=lambda: MyEnv\(\)\)",
    ),
}


def unmarked() -> SyncVectorEnv:
    envs = vector(Walk, AutoresetMode.NEXT_STEP)
    envs.metadata = {}
    return envs


def nameless() -> SyncVectorEnv:
    envs = vector(Walk, AutoresetMode.NEXT_STEP)
    envs.env_fns = None
    return envs


@pytest.mark.parametrize("wrong", BAD_VECTORS)
def test_bad_vector_environment_is_refused_with_what_is_wrong_and_what_to_do(wrong):
    make, error, said = BAD_VECTORS[wrong]
    with pytest.raises(error, match=said):
        make()
