"""More environments that need memory, after tasks of POPGym and bsuite: settings are not chosen to win them."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from learning_worlds import Seen


class Cards(gymnasium.Env[Any, np.int64]):
    """Cards are shown one by one; a right answer pays a point, and a wrong one costs it. Best possible: 100."""

    kinds, steps, asked = 4, 52, 52
    """Kinds of cards, steps in an episode, and in how many of them an answer counts."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Seen:
        super().reset(seed=seed)
        self.now, self.shown = 0, self.np_random.integers(self.kinds, size=self.steps + 1)
        self.queries = self.np_random.integers(self.kinds, size=self.steps + 1)
        return self.see(), {}

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        wanted = self.answer()
        reward = 0.0 if wanted is None else (1.0 if action == wanted else -1.0) * 100.0 / self.asked
        self.now += 1
        return self.see(), reward, self.now == self.steps, False, {}

    def see(self) -> Any:
        """What is shown now."""
        return int(self.shown[self.now])

    def answer(self) -> int | None:
        """What is right now; None if nothing is asked."""
        raise NotImplementedError


class RepeatFirst(Cards):
    """Name the first card, at every step."""

    observation_space, action_space = spaces.Discrete(4), spaces.Discrete(4)

    def answer(self) -> int:
        return int(self.shown[0])


class CountRecall(Cards):
    """How often has the queried kind been shown so far, now included?"""

    kinds, steps, asked = 3, 24, 24
    observation_space, action_space = spaces.MultiDiscrete([3, 3]), spaces.Discrete(25)

    def see(self) -> Any:
        return np.array([self.shown[self.now], self.queries[self.now]])

    def answer(self) -> int:
        return int((self.shown[: self.now + 1] == self.queries[self.now]).sum())


class Autoencode(Cards):
    """Ten cards are shown, and then named, the last one first."""

    steps, asked = 20, 10
    observation_space = spaces.Dict({"asked": spaces.Discrete(2), "card": spaces.Discrete(4)})
    action_space = spaces.Discrete(4)

    def see(self) -> Any:
        asked = self.now >= self.asked
        return {"asked": int(asked), "card": 0 if asked else int(self.shown[self.now])}

    def answer(self) -> int | None:
        return None if self.now < self.asked else int(self.shown[self.steps - 1 - self.now])


class MemoryLength(Cards):
    """A cue of 1 or -1 at the first step, noise until the last, and one answer there. What is done between is free."""

    kinds, steps, asked = 2, 40, 1
    observation_space, action_space = spaces.Box(-np.inf, np.inf, (3,)), spaces.Discrete(2)

    def see(self) -> Any:
        cue = 2.0 * self.shown[0] - 1.0 if self.now == 0 else 0.0
        return np.array([cue, self.now >= self.steps - 1, self.np_random.normal()], np.float32)

    def answer(self) -> int | None:
        return int(self.shown[0]) if self.now == self.steps - 1 else None


class HiddenPendulum(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Pendulum-v1 without its velocity."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("Pendulum-v1"))
        self.observation_space = spaces.Box(-1.0, 1.0, (2,))

    def observation(self, observation: Any) -> Any:
        return observation[:2]
