"""Which way of inserting a seed leaves the better network? One lever at a time, the rest as it is.

    python benchmarks/insertion.py --out out/insertion.csv      # about 10 minutes on 2 cores

Paired episodes: same weights, same batches, same newborn seeds. A fixed schedule plants the same structure, advances as
fast as the gates allow and keeps it; qualities are those of the evaluation split after the last epoch. `from scratch`
is the final topology trained for the same epochs, the bar that growth is measured against.
"""

import argparse
import multiprocessing
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from unittest.mock import patch

import numpy as np
import torch
from scipy.stats import bootstrap
from table import write_csv

from esper.contracts import Stage, Style, Tempo
from esper.controller import NoGrowth, Policy, Schedule, ScheduledSeed
from esper.environment import GrowEnv, Task, Trainer, World, find_task
from esper.growth import Thresholds
from esper.runs.exam.static import from_scratch
from esper.runs.seeds import COMPARISON_SEEDS

STRUCTURES = {
    "digits-pointwise": (("block0", "conv_heavy"),),
    "spirals": (("layer0", "mlp"), ("layer1", "mlp")),
}
BASE, SCRATCH = "as it is", "from scratch"


class Warmed(Trainer):
    """Newborn seeds learn faster at first: `warmth` times as fast, falling evenly to once until `until` epochs old."""

    warmth, until = 3.0, 8

    def _set_rates(self, part: float) -> None:
        super()._set_rates(part)
        _, *groups = self.optimizer.param_groups
        for group in groups:
            age = group["age"] = group.get("age", -1) + 1
            group["lr"] *= 1.0 + (self.warmth - 1.0) * max(0.0, 1.0 - age / self.until)


class Rewarmed(Trainer):
    """Host and seeds learn twice as fast while a seed blends."""

    def _set_rates(self, part: float) -> None:
        super()._set_rates(part)
        if any(slot.stage is Stage.BLENDING for slot in self.body.snapshots()):
            for group in self.optimizer.param_groups:
                group["lr"] *= 2.0


@dataclass(frozen=True)
class Lever:
    """What is done otherwise."""

    epoch: int = 0
    style: Style = Style.LINEAR_ADD
    tempo: Tempo = Tempo.FAST
    training_share: float = 0.08
    seed_learning_rate: float = 0.01
    trainer: type[Trainer] = Trainer


LEVERS: dict[str, Lever] = {
    BASE: Lever(),
    SCRATCH: Lever(),
    "planted in epoch 3": Lever(epoch=3),
    "planted in epoch 6": Lever(epoch=6),
    "planted in epoch 12": Lever(epoch=12),
    "isolated 1 epoch instead of 2": Lever(training_share=0.04),
    "isolated 4 epochs": Lever(training_share=0.16),
    "blended slowly": Lever(tempo=Tempo.SLOW),
    "gated": Lever(style=Style.GATED),
    "multiplied": Lever(style=Style.LINEAR_MULTIPLY),
    "seeds learn twice as fast": Lever(seed_learning_rate=0.02),
    "seeds learn half as fast": Lever(seed_learning_rate=0.005),
    "newborn seeds learn 3 times as fast": Lever(trainer=Warmed),
    "all learn twice as fast while blending": Lever(trainer=Rewarmed),
}

Trial = tuple[str, str, int]
"""Task, lever, seed."""


def main() -> None:
    """Play everything, write the rows, print the table."""
    parser = argparse.ArgumentParser(description="Which way of inserting a seed is better?")
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--out", type=Path, default=Path("out/insertion.csv"))
    given = parser.parse_args()
    trials = [
        (task, lever, seed) for task in STRUCTURES for seed in COMPARISON_SEEDS[: given.seeds] for lever in LEVERS
    ]
    with multiprocessing.get_context("spawn").Pool(initializer=partial(torch.set_num_threads, 1)) as pool:
        results = dict(zip(trials, pool.imap(quality, trials), strict=True))
    rows = ([*trial, f"{found:.4f}"] for trial, found in results.items())
    write_csv(given.out, ["task", "lever", "seed", "quality"], rows)
    for task in STRUCTURES:
        for lever in LEVERS:
            print(line(task, lever, {trial: found for trial, found in results.items() if trial[0] == task}))


def quality(trial: Trial) -> float:
    """Of the network that is kept, on the evaluation split."""
    name, lever, seed = trial
    task, world, player = arranged(find_task(name), LEVERS[lever])
    with patch("esper.environment.episode.Trainer", LEVERS[lever].trainer):
        env = played(GrowEnv(task, "solo", world=world), player, seed)
        assert env.episode is not None
        if lever == SCRATCH:
            static = from_scratch(task, env.episode.body.delivered())
            env = played(GrowEnv(static, "solo"), NoGrowth(), seed)
    assert env.episode is not None
    return env.episode.evaluation.quality


def arranged(task: Task, lever: Lever) -> tuple[Task, World, Policy]:
    """The task, the world and the schedule with that lever moved."""
    thresholds = Thresholds(horizon=task.horizon, training_share=lever.training_share)
    seeds = (
        ScheduledSeed(lever.epoch, slot, blueprint, lever.style, lever.tempo)
        for slot, blueprint in STRUCTURES[task.name]
    )
    return replace(task, seed_learning_rate=lever.seed_learning_rate), World(thresholds), Schedule(tuple(seeds))


def played(env: GrowEnv, player: Policy, seed: int) -> GrowEnv:
    """The environment after the episode."""
    observation, _ = env.reset(seed=seed)
    state, over = player.start(env.codec), False
    while not over:
        decision, state = player.act(observation, state, torch.Generator())
        observation, _, ended, cut, _ = env.step(decision.choices)
        over = ended or cut
    return env


def line(task: str, lever: str, results: Mapping[Trial, float]) -> str:
    """One row of the table: mean quality, and the paired difference to the base."""
    found = {seed: value for (_, name, seed), value in results.items() if name == lever}
    points = np.array([100 * (value - results[task, BASE, seed]) for seed, value in found.items()])
    text = f"| {task} | {lever} | {100 * fmean(found.values()):.1f} % |"
    if lever == BASE:
        return f"{text} |"
    low, high = bootstrap((points,), np.mean, rng=0, method="percentile").confidence_interval
    return f"{text} {points.mean():+.1f} ({low:+.1f} to {high:+.1f}) |"


if __name__ == "__main__":
    main()
