"""What recordings are worth: learners that read them, and PPO that goes on from what these learned.

    python benchmarks/offline.py                     # all of it: about 7 minutes of a core for each training seed
    python benchmarks/offline.py --seeds 1 --learners nothing iql

Everything plays in the world of tables, on the tasks of `surveys/small.parquet` at rents drawn anew, and is paid what
growth brings over the host alone. Scores are greedy, on the tables of `surveys/small-dev.parquet`. Recorded are the
heuristic, random play, the ranker, and all that a PPO from nothing of another training seed played while it learned.

- `imitation of heuristic`, `imitation of ranker`: a network that is a newborn one otherwise learns from these alone.
- `imitation of all`, `iql`: from all four.
- `nothing`: newborn weights.

PPO starts from each, with the estimator of the proving ground: `warmed` lets the critic learn first and keeps near
where it began for a while, `bare` takes the weights alone. Rows go to `benchmarks/results/offline.csv`, one for each
evaluation; `rounds` 0 is before any live episode. What is there is not played again. Weights and recordings of a seed
lie in `out/offline`.
"""

import argparse
import csv
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from proving_ground import (
    JUDGED,
    RENTS,
    TRAINING,
    USUAL,
    Lockstep,
    Variant,
    _interval,
    greedy_score,
    newborn,
    rounds_of,
)
from table_tasks import TableTask, table_tasks
from table_world import TableEnv, play

from esper.contracts import Choices, Head
from esper.controller import Policy
from esper.environment import Observation, derive
from esper.rl import (
    IQL,
    Buffer,
    DecisionJudge,
    EpisodesInMemory,
    Imitation,
    ImitationConfig,
    IQLConfig,
    Learner,
    MemoryState,
    Network,
    Sequences,
    join,
    load_checkpoint,
    replay,
    restore_weights,
    save_checkpoint,
)
from esper.runs.policies import find_policy

RESULTS, KEPT = Path(__file__).parent / "results" / "offline.csv", Path("out/offline")
RECORDED = 800
"""Episodes of each policy that is recorded."""
HELD_OUT = 0.1
COLD, WARM = 30, 10
"""Rounds of 64 episodes of PPO from nothing, and of PPO that goes on."""
JUDGED_AFTER = (0, 1, 2, 4, 6, 8, 10, 15, 20, 25, 30)
IMITATION = ImitationConfig(passes=12, patience=3)
OFFLINE = IQLConfig(steps=800, discount=1.0, expectile=0.8)
WARMED = replace(
    USUAL,
    ppo=replace(
        USUAL.ppo,
        critic_updates=2,
        anchor_weight=0.5,
        anchor_share=1.0,
        learning_rate=3e-4,
        final_learning_rate=1e-4,
    ),
)
SEEDS = 5
BARS = ("heuristic", "constant", "ranker")


class OverTwin(TableEnv):
    """Pays what growth brings: the rewards less what the host alone gains in the same epoch."""

    def step(self, action: Sequence[int] | NDArray[np.int64]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        before = self.twin_quality
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward - (self.twin_quality - before), terminated, truncated, info


def recorded(policy: Policy, tasks: Sequence[TableTask], lockstep: Lockstep, seed: int, episodes: int) -> Sequences:
    """Episodes of a policy that is certain of its choices, or does not tell."""
    rows, generator = 100, torch.Generator().manual_seed(derive(seed, "recorded", policy.name))
    worlds = [derive(seed, "recorded", policy.name, place) % 2**31 for place in range(episodes)]
    return join(
        [_played(policy, tasks, lockstep, worlds[at : at + rows], generator) for at in range(0, episodes, rows)]
    )


def _played(
    policy: Policy, tasks: Sequence[TableTask], lockstep: Lockstep, worlds: Sequence[int], generator: torch.Generator
) -> Sequences:
    rows, network = len(worlds), newborn(USUAL, 0)
    envs = [OverTwin(tasks, RENTS) for _ in worlds]
    seen = [env.reset(seed=world)[0] for env, world in zip(envs, worlds, strict=True)]
    states = [policy.start(env.codec) for env in envs]
    buffer, unsaid = Buffer(rows, lockstep.steps, lockstep.padded([]), len(Head)), torch.zeros(rows, len(Head))
    buffer.begin(network.memory.start(rows))
    starts = going = torch.full((rows,), True)
    while going.any():
        observation, choices = lockstep.padded(seen), torch.zeros(rows, len(Head), dtype=torch.long)
        rewards, ends = torch.zeros(rows), torch.zeros(rows, dtype=torch.bool)
        for row in going.nonzero().flatten().tolist():
            decision, states[row] = policy.act(seen[row], states[row], generator)
            choices[row] = torch.tensor(decision.choices)
            made = Choices(decision.choices, envs[row].codec)
            seen[row], rewards[row], _, ends[row], _ = envs[row].step(made)
        buffer.decide(observation, starts, choices, unsaid, unsaid.bool())
        buffer.conclude(unsaid[:, 0], rewards, ends, unsaid[:, 0], going)
        going, starts = going & ~ends, torch.full((rows,), False)
    found = buffer.sequences()
    with torch.no_grad():  # a mask can only be read by a network
        return found._replace(free=replay(network, found).free & found.valid.unsqueeze(-1))


class Workshop:
    """What is made for one training seed, once."""

    def __init__(self, seed: int, tasks: Sequence[TableTask]) -> None:
        self.seed, self.tasks, self.lockstep = seed, tasks, Lockstep(tasks)
        KEPT.mkdir(parents=True, exist_ok=True)

    def recording(self, name: str) -> Sequences:
        """Of a control."""
        return recorded(find_policy(name), self.tasks, self.lockstep, self.seed, RECORDED)

    def earlier(self) -> Sequences:
        """All that the next training seed played while it learned from nothing."""
        other = self.seed - self.seed % SEEDS + (self.seed + 1) % SEEDS
        path = KEPT / f"played-{other}.pt"
        if not path.exists():
            learner = Learner(newborn(USUAL, other), USUAL.ppo)
            keep(join(list(self.rounds(learner, USUAL, other, COLD))), path)
        return kept(path)

    def everything(self) -> Sequences:
        path = KEPT / f"all-{self.seed}.pt"
        if not path.exists():
            parts = [self.recording("heuristic"), self.recording("random"), self.recording("ranker"), self.earlier()]
            keep(join(parts), path)
        return kept(path)

    def rounds(self, learner: Learner, variant: Variant, seed: int, rounds: int) -> Iterator[Sequences]:
        envs = [OverTwin(self.tasks, RENTS) for _ in range(variant.episodes)]
        return rounds_of(learner, variant, seed, rounds, self.lockstep, envs)

    def nothing(self) -> Network:
        return newborn(USUAL, self.seed)

    def imitation(self, rows: Sequences) -> Network:
        network = self.nothing()
        training, held_out = EpisodesInMemory(rows).split(HELD_OUT, torch.Generator().manual_seed(0))
        found = Imitation(network, replace(IMITATION, seed=self.seed)).learn(training, held_out)
        print(f"seed {self.seed}: repeats {found.repeated:.2%} of held-out decisions ({found})", flush=True)
        return network

    def judge(self, name: str) -> DecisionJudge:
        network = newborn(USUAL, self.seed, name)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(derive(self.seed, name, "worth"))
            return DecisionJudge(network)

    def iql(self) -> Network:
        network = self.nothing()
        judges = self.judge("first judge"), self.judge("second judge")
        learner = IQL(network, judges, replace(OFFLINE, seed=self.seed))
        training, _ = EpisodesInMemory(self.everything()).split(HELD_OUT, torch.Generator().manual_seed(0))
        learner.learn(training, lambda step: print(f"seed {self.seed}: {step}", flush=True))
        return network


def keep(rows: Sequences, path: Path) -> None:
    """On disk, for later."""
    torch.save(rows._asdict() | {"state": list(rows.state)}, path)


def kept(path: Path) -> Sequences:
    """What `keep` was given."""
    found = torch.load(path, weights_only=True)
    return Sequences(**found | {"state": MemoryState(*found["state"])})


STARTS: dict[str, Callable[[Workshop], Network]] = {
    "nothing": Workshop.nothing,
    "imitation of heuristic": lambda shop: shop.imitation(shop.recording("heuristic")),
    "imitation of ranker": lambda shop: shop.imitation(shop.recording("ranker")),
    "imitation of all": lambda shop: shop.imitation(shop.everything()),
    "iql": Workshop.iql,
}


def start_of(name: str, shop: Workshop) -> tuple[Learner, float]:
    """A learner with the weights to begin with, and the seconds that these took."""
    path = KEPT / f"{name.replace(' ', '-')}-{shop.seed}.pt"
    learner = Learner(newborn(USUAL, shop.seed), USUAL.ppo, seed=derive(shop.seed, "learner"))
    if not path.exists():
        started = time.process_time()
        learner.network.load_state_dict(STARTS[name](shop).state_dict())
        save_checkpoint(path, learner, {"seconds": time.process_time() - started})
    checkpoint = load_checkpoint(path)
    restore_weights(checkpoint, learner)
    return learner, float(checkpoint.extra["seconds"])


class Row(NamedTuple):
    """One line of the results."""

    start: str
    ppo: str
    """`cold`, `warmed` or `bare`."""
    seed: int
    rounds: int
    episodes: int
    """Live ones, up to here."""
    seconds: float
    """Of a core: of learning from recordings, playing and updates up to here."""
    score: float


def course(start: str, ppo: str, shop: Workshop, judged: Sequence[TableTask]) -> list[Row]:
    """PPO from a start, judged along the way."""
    learner, seconds = start_of(start, shop)
    variant = WARMED if ppo == "warmed" else USUAL
    learner = _with(learner, variant)
    found = [Row(start, ppo, shop.seed, 0, 0, seconds, greedy_score(learner.network, judged))]
    rounds = COLD if ppo == "cold" else WARM
    began = time.process_time()
    played = []
    for number, rows in enumerate(shop.rounds(learner, variant, shop.seed, rounds), start=1):
        played.append(rows)
        if number in JUDGED_AFTER:
            seconds += time.process_time() - began
            score = greedy_score(learner.network, judged)
            found.append(Row(start, ppo, shop.seed, number, number * variant.episodes, seconds, score))
            began = time.process_time()
    if ppo == "cold":
        keep(join(played), KEPT / f"played-{shop.seed}.pt")
    return found


def _with(learner: Learner, variant: Variant) -> Learner:
    """The same weights, learning by other settings."""
    made = Learner(learner.network, variant.ppo)
    made.moments = learner.moments
    return made


def read(path: Path) -> list[Row]:
    """What was measured before."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [
            Row(row["start"], row["ppo"], *map(int, (row["seed"], row["rounds"], row["episodes"])),
                *map(float, (row["seconds"], row["score"])))
            for row in csv.DictReader(file)
        ]  # fmt: skip


def append(rows: Sequence[Row], path: Path) -> None:
    """All rows of a course at once, so that none is there by half."""
    fresh = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([Row._fields] * fresh)
        writer.writerows([*row[:5], f"{row.seconds:.1f}", f"{row.score:.3f}"] for row in rows)


def bars(judged: Sequence[TableTask]) -> dict[str, float]:
    """The scores of controls on the same tables."""
    found = {}
    for name in BARS:
        policy = find_policy(name)
        found[name] = fmean(play(TableEnv([task]), policy, place).score for place, task in enumerate(judged))
    return found


def report(rows: Sequence[Row], controls: dict[str, float]) -> str:
    """Markdown: scores before and after live play, and when each course first reached each bar, over its seeds."""
    cold = [row.score for row in rows if row.ppo == "cold" and row.rounds == COLD]
    levels = controls | ({"cold at its end": fmean(cold)} if cold else {})
    heads = [f"to {name} ({level:+.2f})" for name, level in levels.items()]
    lines = ["| start | PPO | seeds | before | after | " + " | ".join(heads) + " |", "|" + "---|" * (5 + len(heads))]
    for start, ppo in dict.fromkeys((row.start, row.ppo) for row in rows):
        own = [row for row in rows if (row.start, row.ppo) == (start, ppo)]
        last = max(row.rounds for row in own)
        first, final = ([row.score for row in own if row.rounds == at] for at in (0, last))
        reached = [_reached(own, level) for level in levels.values()]
        lines.append(
            f"| {start} | {ppo} | {len(first)} | {_interval(first)} | {_interval(final)} | {' | '.join(reached)} |"
        )
    return "\n".join(lines)


def _reached(rows: Sequence[Row], level: float) -> str:
    """Median over seeds of live episodes and minutes to the first evaluation at that level; of those that got there."""
    seeds = sorted({row.seed for row in rows})
    firsts = [next((row for row in rows if row.seed == seed and row.score >= level), None) for seed in seeds]
    there = [row for row in firsts if row is not None]
    if not there:
        return f"0 of {len(seeds)}"
    episodes, minutes = np.median([row.episodes for row in there]), np.median([row.seconds for row in there]) / 60
    return f"{len(there)} of {len(seeds)}: {episodes:.0f} episodes, {minutes:.1f} min"


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(description="Compare learners from recordings, and PPO that goes on from them.")
    parser.add_argument("--learners", nargs="+", choices=list(STARTS), default=list(STARTS), help="default: all")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="training seeds (default %(default)s)")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=RESULTS, help="default: %(default)s")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tasks, judged = table_tasks(TRAINING), table_tasks(JUDGED)
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    done = {row[:3] for row in read(arguments.results)}
    for ppo, start, seed in product(("cold", "warmed", "bare"), arguments.learners, seeds):
        if (ppo == "cold") != (start == "nothing") or (start, ppo, seed) in done:
            continue
        rows = course(start, ppo, Workshop(seed, tasks), judged)
        append(rows, arguments.results)
        print(f"seed {seed}: {ppo} PPO from {start}: " + " ".join(f"{row.score:+.2f}" for row in rows), flush=True)
    print(report(read(arguments.results), bars(judged)))


if __name__ == "__main__":
    main()
