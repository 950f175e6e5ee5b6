"""Where environments come from: no two rows ever share one, and every advice that is given works."""

import gymnasium
import numpy as np
import pytest
import torch

from esper.rl import PPO, PPOConfig, RLError, SharedEnvironment, VectorConfig
from tests.rl.cases import assert_same
from tests.rl.test_ppo import everything
from tests.rl.worlds import Asked, Clock, Walk

SMALL = VectorConfig(hidden=6, memory=5, critic=6)


class Louder(gymnasium.RewardWrapper):
    """A wrapper that does not say how it was made."""

    def reward(self, reward):
        return 2 * reward


def agent(env, **options) -> PPO:
    return PPO(env, steps=8, network=SMALL, **options)


def test_an_instance_is_multiplied_through_its_spec():
    given = gymnasium.make("CartPole-v1", max_episode_steps=7)
    many = agent(given, environments=3)
    envs = [seat.env for seat in many.rows.seats]
    assert envs[0] is given
    assert len({id(env.unwrapped) for env in envs}) == 3
    named = agent(lambda: gymnasium.make("CartPole-v1", max_episode_steps=7), environments=3)
    assert_same(everything(many.learn(48)), everything(named.learn(48)))
    assert many.evaluate(2) == named.evaluate(2)
    assert max(many.evaluate(5)) <= 7


@pytest.mark.parametrize("make", [Walk, lambda: Louder(gymnasium.make("CartPole-v1"))], ids=["no spec", "wrapper"])
def test_an_instance_that_cannot_be_multiplied_plays_alone_or_is_refused(make):
    with pytest.raises(SharedEnvironment, match=r"was given as an instance, .* give a function .* or environments=1"):
        agent(make())
    alone = agent(make(), environments=1).learn(16)
    with pytest.raises(SharedEnvironment, match=r"a function to evaluate\(env=\.\.\.\)"):
        alone.evaluate(1)
    assert alone.evaluate(2, env=make) == alone.evaluate(2, env=make)
    assert_same(everything(alone), everything(agent(make, environments=1).learn(16)))


def test_a_function_that_gives_the_same_environment_twice_is_refused():
    env = gymnasium.make("CartPole-v1")
    with pytest.raises(SharedEnvironment, match=r"gave the same environment twice.*; make a new one in every call"):
        agent(lambda: env)
    alone = agent(lambda: env, environments=1).learn(16)
    with pytest.raises(SharedEnvironment, match="gave the same environment twice"):
        alone.evaluate(1)


def test_wrappers_around_one_environment_share_it():
    env = gymnasium.make("CartPole-v1")
    with pytest.raises(SharedEnvironment, match="gave the same environment twice"):
        agent(lambda: Louder(env), environments=2)


@pytest.mark.parametrize("wrapped", [False, True])
def test_masks_are_asked_for_by_a_method_also_through_wrappers(wrapped):
    """The walk refuses what it forbids; masks by both ways are the same."""

    def make() -> gymnasium.Env:
        return gymnasium.wrappers.TimeLimit(Asked(), 5) if wrapped else Asked()

    asked = agent(make, environments=3).learn(96)
    asked.evaluate(3)
    told = agent(lambda: gymnasium.wrappers.TimeLimit(Walk(), 5) if wrapped else Walk(), environments=3).learn(96)
    assert_same(everything(asked), everything(told))


def test_masks_of_flags_have_two_entries_for_each():
    class Flags(Clock):
        def __init__(self) -> None:
            super().__init__(truncates=True)
            self.action_space = gymnasium.spaces.MultiBinary(2)

        def action_masks(self):
            return np.array([True, False, False, True])

    made = agent(Flags, environments=2).learn(16)
    assert made.predict(np.zeros(1), action_masks=np.array([0, 1, 1, 0]))[0].tolist() == [1, 0]
    assert made.buffer.sequences().choices[..., 0].eq(0).all()
    assert made.buffer.sequences().choices[..., 1].eq(1).all()
    assert not made.buffer.sequences().free.any()


def test_unknown_name_is_an_error_of_gymnasium():
    with pytest.raises(gymnasium.error.NameNotFound, match="CartPoll"):
        PPO("CartPoll-v1")


def test_environments_are_closed():
    class Closed(Clock):
        closed = 0

        def __init__(self) -> None:
            super().__init__(truncates=True)

        def close(self) -> None:
            type(self).closed += 1

    made = agent(Closed, environments=3)
    made.evaluate(2)
    made.close()
    assert Closed.closed == 5


def test_an_agent_lives_on_its_device():
    """What enters goes there; the only device of every machine is its processor."""
    made = agent(Walk, environments=2, device=torch.device("cpu"), config=PPOConfig(reuse=2)).learn(32)
    assert made.buffer.sequences().rewards.device.type == "cpu"
    with pytest.raises(RLError, match=r"device = 'gpu' cannot be used here .* 'cpu' always can"):
        agent(Walk, device="gpu")


def test_old_agent_of_another_count_of_rows_is_refused(tmp_path):
    agent(Walk, environments=2).save(tmp_path / "agent.pt")
    vector = gymnasium.vector.SyncVectorEnv([Walk] * 3)
    with pytest.raises(RLError, match="environments = 2, but the vector environment has 3"):
        PPO.load(tmp_path / "agent.pt", vector)
