"""Variants of controller and learner, trained in the world of tables and judged on tables that they have not seen.

    python benchmarks/proving_ground.py                         # all variants, 30 training seeds: hours of a core
    python benchmarks/proving_ground.py --variants usual alone --seeds 3

A run plays rounds of episodes on the tasks of `surveys/small.parquet`, at rents drawn anew, and learns from each round
with the estimator and the network of `esper train`. At its end it plays all tasks of `surveys/small-dev.parquet`
greedily, at their own rents; its result is their mean score over the host alone, in points. Rows go to
`benchmarks/results/proving_ground.csv`, and what is there is not played again. The table has means over training seeds
with 95 % intervals, and differences from the first variant, seed by seed.

- `usual`: four episodes in each world, compared with each other.
- `alone`: one episode in each of four times as many worlds; the critic alone knows what a task offers.
- `whole`: `usual` with returns as they are, not smoothed by the critic.
- `blind`: `usual` with a network whose op, slot and value do not see what could be planted.
"""

import argparse
import csv
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np
import torch
from scipy import stats
from table_tasks import TableTask, table_tasks
from table_world import TableEnv
from torch import Tensor

from esper.contracts import Choices, Head, Op
from esper.controller import ControllerNetwork
from esper.environment import FIELDS, Observation, derive
from esper.rl import Buffer, Learner, Network, PPOConfig, Sequences, Typical, act, join
from esper.runs import TrainConfig
from esper.runs.run import compared

RESULTS = Path(__file__).parent / "results" / "proving_ground.csv"
TRAINING, JUDGED = Path("surveys/small.parquet"), Path("surveys/small-dev.parquet")
RENTS = (0.01, 0.3)
"""Between which rents are drawn: those of the families."""
PLAYED = 2
"""Greedy episodes of each task and seed of the survey that is judged on."""


class Blind(ControllerNetwork):
    """Sees what could be planted in a slot only when it has decided to plant there, as controllers did before."""

    def _tokens(self, observation: dict[str, Tensor], offers: Tensor, fits: Tensor) -> tuple[Tensor, Tensor]:
        return super()._tokens(observation, torch.zeros_like(offers), fits)

    def _by_slot(self, tokens: Tensor, remembered: Tensor, by_offer: Tensor) -> Tensor:
        scores: Tensor = self.op_scores(tokens, remembered.unsqueeze(-2))
        return scores.transpose(-1, -2)


@dataclass(frozen=True)
class Variant:
    """What a run is made of. Episodes are cheap here, so that none is learned from twice."""

    ppo: PPOConfig = field(
        default_factory=lambda: replace(TrainConfig().ppo, reuse=1, exploration=0.01, entropy_weight=0.005)
    )
    network: type[ControllerNetwork] = ControllerNetwork
    episodes: int = 64
    repeats: int = 4


USUAL = Variant()
VARIANTS = {
    "usual": USUAL,
    "alone": replace(USUAL, repeats=1),
    "whole": replace(USUAL, ppo=replace(USUAL.ppo, smoothing=1.0)),
    "blind": replace(USUAL, network=Blind),
}


class Lockstep:
    """Plays one episode in each of several environments at the same time, so that a network is asked once per step."""

    def __init__(self, tasks: Sequence[TableTask]) -> None:
        self.steps = max(task.horizon for task in tasks)
        shown = [TableEnv([task]).reset(seed=0)[0] for task in tasks]
        self.room = {
            name: np.zeros(np.max([arrays[name].shape for arrays in shown], axis=0), array.dtype)
            for name, array in shown[0].items()
        }

    def play(
        self,
        network: Network,
        envs: Sequence[TableEnv],
        worlds: Sequence[int],
        generator: torch.Generator | None,
        exploration: float = 0.0,
    ) -> tuple[Sequences, list[float]]:
        """What is learned from, and the score of each episode; greedy without a generator."""
        rows, scores = len(envs), [0.0] * len(envs)
        buffer = Buffer(rows, self.steps, self.padded([]), len(Head))
        state, starts, going = network.memory.start(rows), torch.full((rows,), True), torch.full((rows,), True)
        buffer.begin(state)
        seen = [env.reset(seed=world)[0] for env, world in zip(envs, worlds, strict=True)]
        courses = [Typical(Op.WAIT) for _ in envs]

        def typical(log_probs: Tensor) -> Tensor:
            return torch.cat([course.draw(row) for course, row in zip(courses, log_probs.split(1), strict=True)])

        while going.any():
            observation = self.padded(seen)
            greedy = typical if generator is None else None
            acted = act(network, observation, state, starts, generator, exploration, greedy)
            buffer.decide(observation, starts, acted.choices, acted.log_probs, acted.free)
            rewards, ends = torch.zeros(rows), torch.zeros(rows, dtype=torch.bool)
            for row in going.nonzero().flatten().tolist():
                made = Choices(acted.choices[row].tolist(), envs[row].codec)
                seen[row], rewards[row], _, ends[row], info = envs[row].step(made)
                scores[row] = info.get("score", 0.0)
            buffer.conclude(acted.values, rewards, ends, torch.zeros(rows), going)
            going, state, starts = going & ~ends, acted.state, torch.full((rows,), False)
        return buffer.sequences(), scores

    def padded(self, seen: Sequence[Observation]) -> dict[str, Tensor]:
        """In room for the largest host, one row for each; without any, just the room."""
        if not seen:
            return {name: torch.from_numpy(room) for name, room in self.room.items()}
        batch = {name: np.stack([room] * len(seen)) for name, room in self.room.items()}
        for row, arrays in enumerate(seen):
            for name, array in arrays.items():
                batch[name][row][tuple(map(slice, array.shape))] = array
        return {name: torch.from_numpy(array) for name, array in batch.items()}


def newborn(variant: Variant, seed: int, name: str = "controller") -> Network:
    """First weights drawn from the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive(seed, name))
        return variant.network(FIELDS)


def trained(variant: Variant, seed: int, rounds: int, tasks: Sequence[TableTask]) -> Learner:
    """A controller that has played that many rounds."""
    learner = Learner(newborn(variant, seed), variant.ppo, seed=derive(seed, "learner"))
    envs = [TableEnv(tasks, RENTS) for _ in range(variant.episodes)]
    for _ in rounds_of(learner, variant, seed, rounds, Lockstep(tasks), envs):
        pass
    return learner


def rounds_of(  # what training is made of
    learner: Learner, variant: Variant, seed: int, rounds: int, lockstep: Lockstep, envs: Sequence[TableEnv]
) -> Iterator[Sequences]:
    """Train round by round; gives the episodes of each, after they were learned from."""
    network = learner.network
    for number in range(rounds):
        places = range(variant.episodes)
        worlds = [derive(seed, "world", number, place // variant.repeats) % 2**31 for place in places]
        generator = torch.Generator().manual_seed(derive(seed, "actions", number))
        rows, _ = lockstep.play(network, envs, worlds, generator, variant.ppo.exploration)
        single = [rows.take(torch.tensor([row])) for row in range(rows.rows)]
        learner.update(join(compared(single, variant.repeats)), number / rounds)
        yield rows


def greedy_score(network: Network, tasks: Sequence[TableTask]) -> float:
    """The mean score on the tasks at their own rents."""
    envs = [TableEnv([task]) for task in tasks for _ in range(PLAYED)]
    worlds = [derive(place, "judged") % 2**31 for place in range(len(envs))]
    return fmean(Lockstep(tasks).play(network, envs, worlds, None)[1])


class Row(NamedTuple):
    """One line of the results."""

    variant: str
    seed: int
    rounds: int
    score: float
    seconds: float


def recorded(path: Path) -> list[Row]:
    """What was trained before."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [
            Row(row["variant"], int(row["seed"]), int(row["rounds"]), float(row["score"]), float(row["seconds"]))
            for row in csv.DictReader(file)
        ]


def append(row: Row, path: Path) -> None:
    """To the file of results, which keeps what was there."""
    fresh = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([Row._fields] * fresh)
        writer.writerow([*row[:3], f"{row.score:.3f}", f"{row.seconds:.1f}"])


def table(rows: Sequence[Row]) -> str:
    """Markdown: one line per variant, over training seeds."""
    names = list(dict.fromkeys(row.variant for row in rows))
    scores = {name: {row.seed: row.score for row in rows if row.variant == name} for name in names}
    lines = ["| variant | seeds | score | worst | less the first |", "|---|---|---|---|---|"]
    for name, of in scores.items():
        first = scores[names[0]]
        paired = [score - first[seed] for seed, score in of.items() if seed in first]
        less = _interval(paired) if name != names[0] else ""
        lines.append(f"| {name} | {len(of)} | {_interval(list(of.values()))} | {min(of.values()):.2f} | {less} |")
    return "\n".join(lines)


def _interval(numbers: Sequence[float]) -> str:
    """The mean, and the half of its 95 % interval by Student's distribution."""
    half = stats.t.ppf(0.975, len(numbers) - 1) * stats.sem(numbers) if len(numbers) > 1 else float("nan")
    return f"{fmean(numbers):.2f} ± {half:.2f}"


def main() -> None:
    """Train what is missing, and print the table."""
    parser = argparse.ArgumentParser(description="Compare controllers and learners in the world of tables.")
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS), help="default: all")
    parser.add_argument("--seeds", type=int, default=30, help="training seeds (default %(default)s)")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=30, help="of 64 episodes (default %(default)s)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="default: %(default)s")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tasks, judged = table_tasks(TRAINING), table_tasks(JUDGED)
    done = {row[:3] for row in recorded(arguments.results)}
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        for name in arguments.variants:
            if (name, seed, arguments.rounds) in done:
                continue
            started = time.process_time()
            learner = trained(VARIANTS[name], seed, arguments.rounds, tasks)
            score = greedy_score(learner.network, judged)
            append(Row(name, seed, arguments.rounds, score, time.process_time() - started), arguments.results)
            print(f"{name} seed {seed}: {score:.2f}", flush=True)
    print(table([row for row in recorded(arguments.results) if row.rounds == arguments.rounds]))


if __name__ == "__main__":
    main()
