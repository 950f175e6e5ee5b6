"""Small environments in which it is plain what is right."""

import copy
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Clock(gymnasium.Env):
    """Shows the share of the episode that has passed; pays 1 a step, and ends after `length` steps in either way."""

    def __init__(self, length: int = 3, terminates: bool = False, truncates: bool = False, start: int = 0) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (1,))
        self.action_space = spaces.Discrete(2, start=start)
        self.length, self.terminates, self.truncates = length, terminates, truncates

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.passed = 0
        return self.seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        self.passed += 1
        over = self.passed >= self.length
        return self.seen(), 1.0, over and self.terminates, over and self.truncates, {}

    def seen(self) -> Any:
        return np.array([self.passed / self.length], dtype=np.float32)


class Shaped(Clock):
    """A clock whose rewards are shaped for one discount."""

    discount = 0.9


class Wrong(Clock):
    """A clock with one thing wrong."""

    def __init__(self, **wrong: Any) -> None:
        super().__init__(truncates=True)
        self.wrong = wrong
        self.observation_space = wrong.get("observations", self.observation_space)
        self.action_space = wrong.get("actions", self.action_space)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.wrong.get("reset", (self.wrong.get("seen", self.seen()), self.info()))

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, _ = super().step(action)
        if "step" in self.wrong:
            return self.wrong["step"]
        return self.wrong.get("then", observation), self.wrong.get("reward", reward), terminated, truncated, self.info()

    def info(self) -> dict[str, Any]:
        return {"action_mask": self.wrong["mask"]} if "mask" in self.wrong else {}


class Walk(gymnasium.Env):
    """A random walk for a random time, with random masks: everything comes from the seed."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,))
        self.action_space = spaces.MultiDiscrete([3, 2])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.left = np.zeros(2), int(self.np_random.integers(1, 12))
        return self.place.copy(), self.info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        assert all(row[choice] for row, choice in zip(np.split(self.mask, [3]), action, strict=True))
        self.place += self.np_random.normal(size=2) * (1 + action)
        self.left -= 1
        over, cut = self.left <= 0, bool(self.np_random.random() < 0.05)
        reward = float(-abs(self.place).sum())
        info = self.info()
        if over:
            # Nothing is legal when everything is over.
            info["action_mask"] = np.zeros(5, bool)
        return self.place.copy(), reward, over, cut, info

    def info(self) -> dict[str, Any]:
        self.mask = self.np_random.random(5) < 0.7
        self.mask[[self.np_random.integers(3), 3 + self.np_random.integers(2)]] = True
        return {"action_mask": self.mask.copy()}


class Unsteady(Clock):
    """Each one that is made shows another number."""

    made = 0

    def __init__(self) -> None:
        super().__init__(length=100, truncates=True)
        type(self).made += 1
        self.number = type(self).made

    def seen(self) -> Any:
        return super().seen() + 0 * self.number if self.passed == 0 else np.array([self.number], dtype=np.float32)


class Bandit(gymnasium.Env):
    """One decision: op 0 of six is safe and pays a little; op 5 pays the most, but only with the right style of four.

    Every other style of op 5 costs so much that the op is worse than nothing until its style is known. The observation
    shows the right style; op 5 forbids one of the wrong ones. The other ops use no style.
    """

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (4,))
        self.action_space = spaces.MultiDiscrete([6, 4])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.right = int(self.np_random.integers(4))
        mask = np.ones((6, 10), bool)
        mask[5, 6 + (self.right + 1) % 4] = False
        return np.eye(4, dtype=np.float32)[self.right], {"action_mask": mask}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        op, style = map(int, action)
        reward = 0.2 if op == 0 else -0.2
        if op == 5:
            assert style != (self.right + 1) % 4
            reward = 1.0 if style == self.right else -0.6
        return np.zeros(4, np.float32), reward, True, False, {}


class Recall(gymnasium.Env):
    """A cue at the first step, nothing for `blank` steps, then a question: answer with the cue."""

    def __init__(self, blank: int = 4) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (3,))
        self.action_space = spaces.Discrete(2)
        self.blank = blank

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.cue, self.passed = int(self.np_random.integers(2)), 0
        return np.eye(3, dtype=np.float32)[self.cue], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        asked = self.passed > self.blank
        self.passed += 1
        seen = np.zeros(3, np.float32)
        seen[2] = float(self.passed > self.blank)
        return seen, float(asked and int(action) == self.cue), asked, False, {}


class Anything(gymnasium.Env):
    """Shows random elements of any space, takes any action, and ends after a random time in either way."""

    def __init__(self, shown: spaces.Space[Any], taken: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = copy.deepcopy(shown), copy.deepcopy(taken)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.left = int(self.np_random.integers(2, 9))
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self.left -= 1
        over, cut = self.left <= 0, bool(self.np_random.random() < 0.5)
        return self.observation_space.sample(), float(self.np_random.normal()), over and not cut, over and cut, {}


class Show(gymnasium.Env):
    """Shows a random element of a space, and pays in one step by what was done; one step an episode."""

    def __init__(self, shown: spaces.Space[Any], taken: spaces.Space[Any], pays: Callable[[Any, Any], float]) -> None:
        self.observation_space, self.action_space = copy.deepcopy(shown), copy.deepcopy(taken)
        self.pays = pays

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.shown = self.observation_space.sample()
        return self.shown, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), float(self.pays(self.shown, action)), True, False, {}


class Asked(Walk):
    """A walk that is asked for its masks."""

    def info(self) -> dict[str, Any]:
        super().info()
        return {}

    def action_masks(self) -> Any:
        return self.mask.copy()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        *rest, _ = super().step(action)
        return (*rest, {})
