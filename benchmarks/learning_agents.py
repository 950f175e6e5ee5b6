"""The agents that `learning.py` compares, behind one interface."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import stable_baselines3
from learning_worlds import Env, Vector
from sb3_contrib import MaskablePPO, RecurrentPPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize

from esper.rl import PPO

Marked = Callable[[int], None]
MakeEnv = Callable[[], Env]


class Player(Protocol):
    """Something that learns, and plays greedily."""

    def learn(self, marks: Sequence[int], marked: Marked) -> None:
        """Train up to the last mark and say so at the end of the first update behind each."""

    def act(self, observation: Vector, env: Env, info: dict[str, Any], memory: Any) -> tuple[Any, Any]:
        """An action, and what to remember; no memory starts an episode."""


class Ours:
    """`esper.rl.PPO`."""

    def __init__(self, make: MakeEnv, seed: int, **settings: Any) -> None:
        self.agent = PPO(make, seed=seed, **settings)

    def learn(self, marks: Sequence[int], marked: Marked) -> None:
        left = list(marks)

        def report(progress: Any) -> None:
            while left and progress.steps >= left[0]:
                marked(left.pop(0))

        self.agent.learn(until=marks[-1], callback=report)

    def act(self, observation: Vector, env: Env, info: dict[str, Any], memory: Any) -> tuple[Any, Any]:
        return self.agent.predict(observation, memory, action_masks=info.get("action_mask"))


class Marks(BaseCallback):
    """Says when sb3 has passed a mark, in one run of training so that its schedules span the whole of it."""

    def __init__(self, marks: Sequence[int], marked: Marked) -> None:
        super().__init__()
        self.left, self.marked = list(marks), marked

    def _on_rollout_start(self) -> None:
        while self.left and self.num_timesteps >= self.left[0]:
            self.marked(self.left.pop(0))

    def _on_step(self) -> bool:
        return True

    def finish(self) -> None:
        """Behind the last update no rollout starts."""
        for mark in self.left:
            self.marked(mark)


class Theirs:
    """What the agents of sb3 have in common."""

    model: RecurrentPPO | MaskablePPO | stable_baselines3.PPO
    envs: VecEnv

    def learn(self, marks: Sequence[int], marked: Marked) -> None:
        callback = Marks(marks, marked)
        self.model.learn(marks[-1], callback)
        callback.finish()

    def seen(self, observation: Vector) -> Vector:
        """As the model sees it."""
        seen = self.envs.normalize_obs(observation) if isinstance(self.envs, VecNormalize) else observation
        assert isinstance(seen, np.ndarray)
        return seen


def environments(make: MakeEnv, seed: int, count: int, normalised: bool) -> VecEnv:
    """A vector environment of sb3, with observations and rewards normalised or not."""
    envs = DummyVecEnv([make] * count)
    envs.seed(seed)
    return VecNormalize(envs) if normalised else envs


class Recurrent(Theirs):
    """`RecurrentPPO` as the test suite of sb3-contrib trains it on hidden CartPole."""

    def __init__(self, make: MakeEnv, seed: int) -> None:
        self.envs = environments(make, seed, 8, normalised=True)
        self.model: RecurrentPPO = RecurrentPPO(
            "MlpLstmPolicy",
            self.envs,
            n_steps=128,
            learning_rate=0.0007,
            batch_size=256,
            n_epochs=10,
            max_grad_norm=1,
            gae_lambda=0.98,
            policy_kwargs={
                "net_arch": {"vf": [64], "pi": []},
                "lstm_hidden_size": 64,
                "ortho_init": False,
                "enable_critic_lstm": True,
            },
            seed=seed,
            device="cpu",
        )

    def act(self, observation: Vector, env: Env, info: dict[str, Any], memory: Any) -> tuple[Any, Any]:
        return self.model.predict(self.seen(observation), memory, np.array([memory is None]), deterministic=True)


class Masked(Theirs):
    """`MaskablePPO`: its defaults, or what is said otherwise."""

    def __init__(self, make: MakeEnv, seed: int, **settings: Any) -> None:
        self.envs = environments(make, seed, 1, normalised=False)
        self.model: MaskablePPO = MaskablePPO("MlpPolicy", self.envs, seed=seed, device="cpu", **settings)

    def act(self, observation: Vector, env: Env, info: dict[str, Any], memory: Any) -> tuple[Any, Any]:
        return self.model.predict(observation, deterministic=True, action_masks=env.get_wrapper_attr("action_masks")())


class Plain(Theirs):
    """`PPO` of stable-baselines3: its defaults, or what is said otherwise."""

    def __init__(self, make: MakeEnv, seed: int, count: int = 1, normalised: bool = False, **settings: Any) -> None:
        self.envs = environments(make, seed, count, normalised)
        self.model = stable_baselines3.PPO("MlpPolicy", self.envs, seed=seed, device="cpu", **settings)

    def act(self, observation: Vector, env: Env, info: dict[str, Any], memory: Any) -> tuple[Any, Any]:
        return self.model.predict(self.seen(observation), deterministic=True)
