"""The environments that `learning.py` trains on."""

from statistics import fmean
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Vector = NDArray[np.float32]
Flags = NDArray[np.bool_]
Seen = tuple[Vector, dict[str, Any]]
Env = gymnasium.Env[Any, Any]


class HideVelocity(gymnasium.ObservationWrapper[Vector, Any, Vector]):
    """CartPole with the position of the cart and the angle of the pole only."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        assert isinstance(env.observation_space, spaces.Box)
        self.observation_space = spaces.Box(env.observation_space.low[::2], env.observation_space.high[::2])

    def observation(self, observation: Vector) -> Vector:
        return observation[::2]


class Matching(gymnasium.Env[Vector, NDArray[np.int64]]):
    """One point for each of 100 steps at which every head names its target; what is masked away is never a target."""

    sizes = (5, 4, 6)
    observation_space = spaces.Box(0.0, 1.0, (sum(sizes),))
    action_space = spaces.MultiDiscrete(list(sizes))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Seen:
        super().reset(seed=seed)
        self.left = 100
        return self._next()

    def step(self, action: NDArray[np.int64]) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        reward = float(np.array_equal(action, self.targets))
        self.left -= 1
        observation, info = self._next()
        return observation, reward, self.left == 0, False, info

    def _next(self) -> Seen:
        self.targets = self.np_random.integers(self.sizes)
        shown = np.concatenate([np.arange(size) == it for size, it in zip(self.sizes, self.targets, strict=True)])
        self.mask = shown | (self.np_random.random(len(shown)) < 0.5)
        return shown.astype(np.float32), {"action_mask": self.mask}

    def action_masks(self) -> Flags:
        """Where sb3-contrib looks for masks."""
        return self.mask


SIZES = (6, 3, 7, 4, 3, 3, 4, 5)
HEADS = {
    "op": (),
    "where": (1, 2, 3, 4, 5),
    "what": (1, 3),
    "how": (1,),
    "pace": (2, 4),
    "shape": (2,),
    "speed": (3, 5),
    "target": (4, 5),
}
"""The heads in order, each with the operations that use it. Operation 0 waits and uses none."""
RECIPES = (
    (1, {"where": 0, "what": 5, "how": 2}),
    (1, {"where": 2, "what": 1, "how": 0}),
    (2, {"where": 1, "pace": 2, "shape": 0}),
    (2, {"where": 0, "pace": 0, "shape": 2}),
    (3, {"where": 2, "what": 6, "speed": 3}),
    (3, {"where": 1, "what": 3, "speed": 1}),
    (4, {"where": 0, "pace": 1, "target": 4}),
    (4, {"where": 2, "pace": 2, "target": 0}),
    (5, {"where": 1, "speed": 2, "target": 3}),
    (5, {"where": 0, "speed": 0, "target": 1}),
)
"""What pays: an operation, and a choice for each head that it uses."""


class Recipes(gymnasium.Env[Vector, NDArray[np.int64]]):
    """The cue is gone after the first of six steps; at the last one its recipe pays.

    100 for the right operation with the right choices, of which 40 for the operation alone. Before the last step two
    random operations are legal, at the last one all but waiting; of each head's choices about half are legal, others
    under each operation. Heads that the operation does not use may choose anything.
    """

    steps = 6
    observation_space = spaces.Box(0.0, 1.0, (len(RECIPES) + 2,))
    action_space = spaces.MultiDiscrete(list(SIZES))
    first = np.cumsum((0, *SIZES[:-1]))
    used = tuple([head for head, under in enumerate(HEADS.values()) if op in under] for op in range(SIZES[0]))
    wanted = tuple((op, {list(HEADS).index(name): it for name, it in choices.items()}) for op, choices in RECIPES)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Seen:
        super().reset(seed=seed)
        self.now, self.cue = 0, int(self.np_random.integers(len(RECIPES)))
        return self._next()

    def step(self, action: NDArray[np.int64]) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        op = int(action[0])
        legal = self.mask[op, op] and all(self.mask[op, self.first[head] + action[head]] for head in self.used[op])
        last = self.now == self.steps - 1
        reward = self._pay(op, action) if legal and last else 0.0
        self.now += 1
        observation, info = self._next()
        return observation, reward, bool(last or not legal), False, info

    def _pay(self, op: int, action: NDArray[np.int64]) -> float:
        right, choices = self.wanted[self.cue]
        return 40.0 + 60.0 * fmean(action[head] == it for head, it in choices.items()) if op == right else 0.0

    def _next(self) -> Seen:
        last = self.now == self.steps - 1
        self.mask = self._legal(last)
        observation = np.zeros(len(RECIPES) + 2, np.float32)
        observation[self.cue], observation[-2], observation[-1] = self.now == 0, self.now == 0, last
        return observation, {"action_mask": self.mask}

    def _legal(self, last: bool) -> Flags:
        """(operations, choices of all heads): row k holds for the other heads when operation k is chosen."""
        legal: Flags = self.np_random.random((SIZES[0], sum(SIZES))) < 0.5
        one_each = self.first + self.np_random.integers(SIZES, size=(SIZES[0], len(SIZES)))
        np.put_along_axis(legal, one_each, True, axis=1)
        op, choices = self.wanted[self.cue]
        if last:
            legal[op, [self.first[head] + it for head, it in choices.items()]] = True
        allowed = range(1, SIZES[0]) if last else self.np_random.permutation(SIZES[0])[:2]
        legal[:, : SIZES[0]] = np.isin(np.arange(SIZES[0]), allowed)
        return legal

    def action_masks(self) -> Flags:
        """What is legal under some legal operation: masks for heads that know nothing of each other."""
        legal_operations = self.mask[0, : SIZES[0]]
        return np.asarray(self.mask[legal_operations].any(axis=0))


class SeeMasks(gymnasium.Wrapper[Vector, Any, Vector, Any]):
    """The masks as part of the observation, for an agent that cannot use them otherwise."""

    def __init__(self, env: Recipes) -> None:
        super().__init__(env)
        self.observation_space = spaces.Box(0.0, 1.0, (len(RECIPES) + 2 + SIZES[0] * sum(SIZES),))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Seen:
        observation, info = self.env.reset(seed=seed, options=options)
        return _with_mask(observation, info), info

    def step(self, action: Any) -> tuple[Vector, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return _with_mask(observation, info), reward, terminated, truncated, info


def _with_mask(observation: Vector, info: dict[str, Any]) -> Vector:
    return np.concatenate([observation, info["action_mask"].ravel().astype(np.float32)])


class Recall(gymnasium.Env[Vector, np.int64]):
    """Say at every step which of four symbols was seen `back` steps ago. Guessing earns 0, never failing 100."""

    symbols, steps = 4, 64
    observation_space = spaces.Box(0.0, 1.0, (symbols,))
    action_space = spaces.Discrete(symbols)

    def __init__(self, back: int) -> None:
        self.back = back

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Seen:
        super().reset(seed=seed)
        self.shown = self.np_random.integers(self.symbols, size=self.steps + 1)
        self.now = 0
        return self._see(), {}

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        asked = self.now - self.back
        right = 100.0 / (self.steps - self.back)
        reward = 0.0 if asked < 0 else right if action == self.shown[asked] else -right / (self.symbols - 1)
        self.now += 1
        return self._see(), reward, self.now == self.steps, False, {}

    def _see(self) -> Vector:
        return np.asarray(np.arange(self.symbols) == self.shown[self.now], np.float32)


class TMaze(gymnasium.Env[Vector, np.int64]):
    """A cue at the first step, a corridor, and a junction where turning as the cue said pays 100, otherwise 0.

    Actions are ahead, left and right. Turning in the corridor, or going ahead at the junction, is a bump: nothing moves
    and it costs a point. After three times the length of the corridor the episode is cut.
    """

    observation_space = spaces.Box(0.0, 1.0, (4,))
    action_space = spaces.Discrete(3)

    def __init__(self, length: int) -> None:
        self.length = length

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Seen:
        super().reset(seed=seed)
        self.place, self.steps, self.cue = 0, 0, int(self.np_random.integers(2))
        return self._see(), {}

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        cut = self.steps == 3 * self.length
        if self.place == self.length and action != 0:
            return self._see(), 100.0 * float(action == 1 + self.cue), True, False, {}
        bumped = action != 0 or self.place == self.length
        self.place += not bumped
        return self._see(), -float(bumped), False, cut, {}

    def _see(self) -> Vector:
        first, junction = self.steps == 0, self.place == self.length
        seen = [first and self.cue == 0, first and self.cue == 1, junction, not (first or junction)]
        return np.array(seen, np.float32)
