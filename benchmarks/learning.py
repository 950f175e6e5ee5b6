"""How fast the agent of `esper.rl` learns, side by side with sb3-contrib on the same tasks.

    python benchmarks/learning.py       # prints the table; about an hour on one core (needs the extra `benchmark`)
    python benchmarks/learning.py --tasks matching --seeds 2

- `hidden-cartpole`: CartPole-v1 without its velocities, so a policy needs memory. At most 500.
- `matching`: name what is seen, one choice in each of three heads, of which random ones are masked. At most 100.
- `recipes`: a cue at the first step tells which operation pays at the last one, and with which choices of the heads
  that this operation uses; in between few actions are legal, and an illegal one ends the episode. It needs memory,
  masks that depend on the first head, and eight heads together. At most 100.

Our agent has its defaults on all tasks. What belongs to a task is the same for all agents: the steps of `matching` have
nothing to do with each other, so there it is played without memory and with a discount of 0.4 (as sb3-contrib tests its
masks), and rollouts are short. Otherwise theirs have the settings of their own test suite: `RecurrentPPO` those for
hidden CartPole, where observations and rewards are normalised, and `MaskablePPO` the better one of its defaults and its
tests. Nothing in sb3-contrib has masks and memory: on `recipes` its recurrent agent sees the masks as part of the
observation, and its masked agent is told the choices that are legal under some operation, the most that its masks can
say.

Each mark is the mean return of 20 greedy episodes on seeds of their own, played by the same code for all; `seconds` is
the processor time of training up to there, on one thread. Rows are appended to `benchmarks/results/learning.csv`.
"""

import argparse
import csv
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from sb3_contrib import MaskablePPO, RecurrentPPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from esper.rl import PPO, PPOConfig, VectorConfig

EPISODES, FIRST_EPISODE = 20, 10_000
RESULTS = Path(__file__).parent / "results" / "learning.csv"
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


class Player(Protocol):
    """Something that learns, and plays greedily."""

    def learn(self, marks: Sequence[int], marked: Callable[[int], None]) -> None:
        """Train up to the last mark and say so at the end of the first update behind each."""

    def act(self, observation: Vector, env: Env, info: dict[str, Any], memory: Any) -> tuple[Any, Any]:
        """An action, and what to remember; no memory starts an episode."""


class Ours:
    """`esper.rl.PPO`."""

    def __init__(self, make: Callable[[], Env], seed: int, **settings: Any) -> None:
        self.agent = PPO(make, seed=seed, **settings)

    def learn(self, marks: Sequence[int], marked: Callable[[int], None]) -> None:
        left = list(marks)

        def report(progress: Any) -> None:
            while left and progress.steps >= left[0]:
                marked(left.pop(0))

        self.agent.learn(until=marks[-1], callback=report)

    def act(self, observation: Vector, env: Env, info: dict[str, Any], memory: Any) -> tuple[Any, Any]:
        return self.agent.predict(observation, memory, action_masks=info.get("action_mask"))


class Recurrent:
    """`RecurrentPPO` as the test suite of sb3-contrib trains it on hidden CartPole."""

    def __init__(self, make: Callable[[], Env], seed: int) -> None:
        envs = DummyVecEnv([make] * 8)
        envs.seed(seed)
        self.envs = VecNormalize(envs)
        self.model = RecurrentPPO(
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

    def learn(self, marks: Sequence[int], marked: Callable[[int], None]) -> None:
        for mark in marks:
            self.model.learn(mark - self.model.num_timesteps, reset_num_timesteps=False)
            marked(mark)

    def act(self, observation: Vector, env: Env, info: dict[str, Any], memory: Any) -> tuple[Any, Any]:
        seen = self.envs.normalize_obs(observation)
        assert isinstance(seen, np.ndarray)
        return self.model.predict(seen, memory, np.array([memory is None]), deterministic=True)


class Masked:
    """`MaskablePPO`: its defaults, or what is said otherwise."""

    def __init__(self, make: Callable[[], Env], seed: int, environments: int = 1, **settings: Any) -> None:
        envs = DummyVecEnv([make] * environments)
        envs.seed(seed)
        self.model = MaskablePPO("MlpPolicy", envs, seed=seed, device="cpu", **settings)

    def learn(self, marks: Sequence[int], marked: Callable[[int], None]) -> None:
        for mark in marks:
            if mark > self.model.num_timesteps:
                self.model.learn(mark - self.model.num_timesteps, reset_num_timesteps=False)
            marked(mark)

    def act(self, observation: Vector, env: Env, info: dict[str, Any], memory: Any) -> tuple[Any, Any]:
        return self.model.predict(observation, deterministic=True, action_masks=env.get_wrapper_attr("action_masks")())


class Task(NamedTuple):
    """An environment for each agent, and when to look."""

    optimum: int
    marks: tuple[int, ...]
    players: dict[str, tuple[Callable[[], Env], Callable[[Callable[[], Env], int], Player]]]


def hidden_cartpole() -> Env:
    """CartPole without velocities, 500 steps at most."""
    return HideVelocity(gymnasium.make("CartPole-v1"))


TASKS = {
    "hidden-cartpole": Task(
        500,
        (20_000, 50_000, 100_000),
        {"ours": (hidden_cartpole, Ours), "RecurrentPPO": (hidden_cartpole, Recurrent)},
    ),
    "matching": Task(
        100,
        (1_000, 2_000, 5_000),
        {
            "ours": (
                Matching,
                partial(Ours, steps=16, network=VectorConfig(memory=0), config=PPOConfig(discount=0.4)),
            ),
            "MaskablePPO": (Matching, partial(Masked, n_steps=64, gamma=0.4)),
        },
    ),
    "recipes": Task(
        100,
        (20_000, 50_000),
        {
            "ours": (Recipes, partial(Ours, heads=HEADS, dependent_masks=True)),
            "RecurrentPPO": (lambda: SeeMasks(Recipes()), Recurrent),
            "MaskablePPO": (Recipes, partial(Masked, n_steps=64)),
        },
    ),
}


class Row(NamedTuple):
    """One line of the results."""

    task: str
    agent: str
    seed: int
    steps: int
    greedy_return: float
    seconds: float


def greedy_return(player: Player, make: Callable[[], Env]) -> float:
    """The mean over the episodes that every agent is judged by."""
    env, totals = make(), []
    for episode in range(EPISODES):
        observation, info = env.reset(seed=FIRST_EPISODE + episode)
        memory, total, over = None, 0.0, False
        while not over:
            action, memory = player.act(observation, env, info, memory)
            observation, reward, terminated, truncated, info = env.step(action)
            total, over = total + float(reward), terminated or truncated
        totals.append(total)
    env.close()
    return fmean(totals)


def run(name: str, agent: str, seed: int) -> list[Row]:
    """Train one agent on one task, and look at each mark with the clock stopped."""
    task = TASKS[name]
    make, build = task.players[agent]
    rows: list[Row] = []
    spent, since = 0.0, time.process_time()

    def marked(steps: int) -> None:
        nonlocal spent, since
        spent += time.process_time() - since
        rows.append(Row(name, agent, seed, steps, greedy_return(player, make), spent))
        print(f"{name} {agent} seed {seed} step {steps}: {rows[-1].greedy_return:.1f}, {spent:.0f} s", flush=True)
        since = time.process_time()

    player = build(make, seed)
    player.learn(task.marks, marked)
    return rows


def append(rows: Sequence[Row]) -> None:
    """To the file of results, which keeps what was there."""
    fresh = not RESULTS.exists()
    with RESULTS.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if fresh:
            writer.writerow(["task", "agent", "seed", "steps", "return", "seconds"])
        writer.writerows([*row[:4], f"{row.greedy_return:.2f}", f"{row.seconds:.1f}"] for row in rows)


def table(rows: Sequence[Row]) -> str:
    """Markdown: one line per task, agent and mark, over the seeds."""
    lines = [
        "| task (most) | agent | steps | return, mean | lowest | highest | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, agent, steps in dict.fromkeys((row.task, row.agent, row.steps) for row in rows):
        found = [row for row in rows if (row.task, row.agent, row.steps) == (name, agent, steps)]
        returns = [row.greedy_return for row in found]
        figures = " | ".join(f"{figure:.1f}" for figure in (fmean(returns), min(returns), max(returns)))
        seconds = fmean(row.seconds for row in found)
        lines.append(f"| {name} ({TASKS[name].optimum}) | {agent} | {steps:,} | {figures} | {seconds:.0f} |")
    return "\n".join(lines)


def main() -> None:
    """Train everything, one after the other."""
    parser = argparse.ArgumentParser(description="Compare how agents learn.")
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS), help="default: all")
    parser.add_argument("--agents", nargs="+", help="some of ours, RecurrentPPO, MaskablePPO (default: all)")
    parser.add_argument("--seeds", type=int, default=5, help="how many (default %(default)s)")
    parser.add_argument("--first-seed", type=int, default=0, help="settings were chosen on seeds from 10 on")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[Row] = []
    for name in arguments.tasks:
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
            for agent in arguments.agents or TASKS[name].players:
                if agent in TASKS[name].players:
                    rows += run(name, agent, seed)
                    append(rows[-len(TASKS[name].marks) :])
    print(table(rows))


if __name__ == "__main__":
    main()
