"""How fast the agent of `esper.rl` learns, side by side with sb3 and sb3-contrib on the same tasks.

    python benchmarks/learning.py               # hours on one core, most of them theirs (needs the extra `benchmark`)
    python benchmarks/learning.py --agents ours --tasks recall-4 --seeds 2
    python benchmarks/learning.py --table       # only prints what is in the file of results

- `hidden-cartpole`: CartPole-v1 without its velocities, so a policy needs memory. At most 500.
- `recall-2`, `-4`, `-8`: say at every step which of four symbols was seen 2, 4 or 8 steps ago. At most 100; guessing 0.
- `tmaze-50`, `-200`: a cue at the first step tells where to turn behind a corridor of that length. At most 100;
  guessing 50.
- `matching`: name what is seen, one choice in each of three heads, of which random ones are masked. At most 100.
- `recipes`: a cue at the first step tells which operation pays at the last one, and with which choices of the heads
  that this operation uses; in between few actions are legal, and an illegal one ends the episode. It needs memory,
  masks that depend on the first head, and eight heads together. At most 100.
- `cartpole`, `acrobot`, `pendulum`: CartPole-v1, Acrobot-v1 and Pendulum-v1, which need no memory.
- `repeat-first`, `autoencode`, `count-recall`, `memory-length`, `hidden-pendulum`: more tasks with memory, of
  `memory_worlds.py`; played only when they are named.

Our agent has its defaults on all tasks. What belongs to a task is the same for all agents: the steps of `matching` have
nothing to do with each other, so there it is played without memory and with a discount of 0.4 (as sb3-contrib tests its
masks), and rollouts are short. Otherwise theirs have the settings of their own test suite or of their zoo:
`RecurrentPPO` those for hidden CartPole, where observations and rewards are normalised, `MaskablePPO` the better one of
its defaults and its tests, `PPO` those that the zoo tuned for each of the three environments. Nothing in sb3-contrib
has masks and memory: on `recipes` its recurrent agent sees the masks as part of the observation, and its masked agent
is told the choices that are legal under some operation, the most that its masks can say.

Each mark is the mean return of 20 greedy episodes on seeds of their own, played by the same code for all; `seconds` is
the processor time of training up to there, on one thread. Rows are appended to `benchmarks/results/learning.csv`, and
what is there is not played again.

The table compares at equal steps, which is the last mark of a task, and at equal time: the smaller of the two mean
times to the last mark, with theirs read at the first mark that is not before it, and ours at the last that is not
behind it.
"""

import argparse
import csv
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import gymnasium
import torch
from learning_agents import MakeEnv, Masked, Ours, Plain, Player, Recurrent
from learning_worlds import HEADS, HideVelocity, Matching, Recall, Recipes, SeeMasks, TMaze
from memory_worlds import Autoencode, CountRecall, HiddenPendulum, MemoryLength, RepeatFirst

from esper.rl import PPOConfig, UnsupportedSpace, VectorConfig

EPISODES, FIRST_EPISODE = 20, 10_000
RESULTS = Path(__file__).parent / "results" / "learning.csv"


class Task(NamedTuple):
    """An environment for each agent, and when to look."""

    optimum: int
    marks: tuple[int, ...]
    players: dict[str, tuple[MakeEnv, Callable[[MakeEnv, int], Player]]]


HALF = (5_000, 10_000, 20_000, 50_000)
FULL = (10_000, 20_000, 50_000, 100_000)


def remembering(optimum: int, marks: tuple[int, ...], make: MakeEnv) -> Task:
    """For agents with memory."""
    return Task(optimum, marks, {"ours": (make, Ours), "RecurrentPPO": (make, Recurrent)})


def plain(optimum: int, marks: tuple[int, ...], name: str, theirs: Callable[[MakeEnv, int], Player]) -> Task:
    """A registered environment that needs no memory."""
    make = partial(gymnasium.make, name)
    return Task(optimum, marks, {"ours": (make, Ours), "PPO": (make, theirs)})


def falling(first: float) -> Callable[[float], float]:
    """A schedule of sb3: from here to 0 on a straight line."""
    return lambda left: first * left


CARTPOLE = partial(
    Plain,
    count=8,
    n_steps=32,
    batch_size=256,
    gae_lambda=0.8,
    gamma=0.98,
    n_epochs=20,
    learning_rate=falling(1e-3),
    clip_range=falling(0.2),
)
ACROBOT = partial(Plain, count=16, normalised=True, n_steps=256, gae_lambda=0.94, n_epochs=4)
PENDULUM = partial(Plain, count=4, n_steps=1024, gamma=0.9, learning_rate=1e-3, use_sde=True, sde_sample_freq=4)

TASKS = {
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
    "cartpole": plain(500, HALF, "CartPole-v1", CARTPOLE),
    "acrobot": plain(-70, FULL, "Acrobot-v1", ACROBOT),
    "pendulum": plain(-150, FULL, "Pendulum-v1", PENDULUM),
    "recall-2": remembering(100, HALF, partial(Recall, 2)),
    "recall-4": remembering(100, FULL, partial(Recall, 4)),
    "recall-8": remembering(100, FULL, partial(Recall, 8)),
    "tmaze-50": remembering(100, HALF, partial(TMaze, 50)),
    "tmaze-200": remembering(100, FULL, partial(TMaze, 200)),
    "hidden-cartpole": remembering(500, (20_000, 50_000, 100_000), lambda: HideVelocity(gymnasium.make("CartPole-v1"))),
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
COMPARED = tuple(TASKS)
TASKS |= {
    "repeat-first": remembering(100, HALF, RepeatFirst),
    "autoencode": remembering(100, HALF, Autoencode),
    "count-recall": remembering(100, HALF, CountRecall),
    "memory-length": remembering(100, HALF, MemoryLength),
    "hidden-pendulum": remembering(-150, FULL, HiddenPendulum),
}


class Row(NamedTuple):
    """One line of the results."""

    task: str
    agent: str
    seed: int
    steps: int
    greedy_return: float
    seconds: float


def greedy_return(player: Player, make: MakeEnv) -> float:
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


def append(rows: Sequence[Row], path: Path) -> None:
    """To the file of results, which keeps what was there."""
    fresh = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if fresh:
            writer.writerow(["task", "agent", "seed", "steps", "return", "seconds"])
        writer.writerows([*row[:4], f"{row.greedy_return:.2f}", f"{row.seconds:.1f}"] for row in rows)


def recorded(path: Path) -> list[Row]:
    """What was played before, in the order of the tasks."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        found = [
            Row(row["task"], row["agent"], int(row["seed"]), int(row["steps"]), *map(float, list(row.values())[4:]))
            for row in csv.DictReader(file)
        ]
    return sorted(found, key=lambda row: list(TASKS).index(row.task))


def at(rows: Sequence[Row], steps: int) -> str:
    """Mean return, and the lowest and highest of the seeds."""
    returns = [row.greedy_return for row in rows if row.steps == steps]
    return f"{fmean(returns):.1f} ({min(returns):.1f} to {max(returns):.1f})"


def table(rows: Sequence[Row]) -> str:
    """Markdown: one line per task and agent, over the seeds."""
    lines = [
        "| task (most) | agent | seeds | steps | return | seconds | at equal time | steps then |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, task in TASKS.items():
        of = {agent: [row for row in rows if (row.task, row.agent) == (name, agent)] for agent in task.players}
        seconds = {agent: _seconds(found) for agent, found in of.items() if found}
        last = task.marks[-1]
        for agent, times in seconds.items():
            others = [all_times[last] for other, all_times in seconds.items() if (other == "ours") != (agent == "ours")]
            equal = min(times[last], max(others)) if others else times[last]
            mark = (
                max((mark for mark in task.marks if times[mark] <= equal), default=task.marks[0])
                if agent == "ours"
                else min(mark for mark in task.marks if times[mark] >= equal)
            )
            seeds = len({row.seed for row in of[agent]})
            lines.append(
                f"| {name} ({task.optimum}) | {agent} | {seeds} | {last:,} | {at(of[agent], last)} | {times[last]:.0f} "
                f"| {at(of[agent], mark)} | {mark:,} |"
            )
    return "\n".join(lines)


def _seconds(rows: Sequence[Row]) -> dict[int, float]:
    """Mean processor time up to each mark."""
    return {mark: fmean(row.seconds for row in rows if row.steps == mark) for mark in {row.steps for row in rows}}


def play(arguments: argparse.Namespace) -> None:
    """Train whatever is not recorded: the first seed of all tasks, then the next."""
    done = {row[:3] for row in recorded(arguments.results)}
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        for name in arguments.tasks:
            for agent in TASKS[name].players:
                wanted = {agent, "ours" if agent == "ours" else "theirs"} & set(arguments.agents)
                if wanted and (name, agent, seed) not in done:
                    try:
                        append(run(name, agent, seed), arguments.results)
                    except UnsupportedSpace as error:
                        print(f"{name} {agent} left out: {error}", flush=True)


def main() -> None:
    """Train what is missing, one after the other, and print the table."""
    parser = argparse.ArgumentParser(description="Compare how agents learn.")
    parser.add_argument(
        "--tasks", nargs="+", choices=list(TASKS), default=COMPARED, help="default: all but the last five"
    )
    parser.add_argument("--agents", nargs="+", default=["ours", "theirs"], help="ours, theirs, or names such as PPO")
    parser.add_argument("--seeds", type=int, default=5, help="how many (default %(default)s)")
    parser.add_argument("--first-seed", type=int, default=0, help="settings were chosen on seeds from 100 on")
    parser.add_argument("--results", type=Path, default=RESULTS, help="default: %(default)s")
    parser.add_argument("--table", action="store_true", help="play nothing")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if not arguments.table:
        play(arguments)
    print(table(recorded(arguments.results)))


if __name__ == "__main__":
    main()
