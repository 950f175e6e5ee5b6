"""Where the numbers of the world of tables come from: single seeds played live, planted early and late.

    python benchmarks/table_calibration.py           # 24 tasks: 2.5 minutes of a core; prints what it finds

On each task the seed that the survey found best and one at random, among those that it kept on all seeds, are planted
after epoch 1, a third, half and two thirds of the horizon, and kept as soon as the gates allow. A seed's gain when it
is planted after epoch 1 is that of its last two epochs over the host alone, in logits; the others are measured by it.
"""

import argparse
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from scipy.stats import spearmanr
from table_tasks import Array, logit

from esper.controller import Schedule, ScheduledSeed
from esper.environment import GrowEnv
from esper.runs.survey import TaskSurvey, read_survey


class Life(NamedTuple):
    """One seed's, epoch by epoch from its birth on. `alone` is the quality of the host without it; `gain` in logits."""

    horizon: int
    start: int
    gain: float
    alone: Array
    quality: Array
    contribution: Array
    loss: Array
    gradient: Array
    """Of the seed over that of the host."""

    @property
    def ages(self) -> Array:
        """As shares of the horizon."""
        return np.arange(1, len(self.quality) + 1) / self.horizon


def lives(task: TaskSurvey, draws: np.random.Generator) -> Iterator[Life]:
    """Of the seeds that were chosen on a task, on its first survey seed."""
    kept = [single for single, index in task.singles.items() if (task.growth_log[index] > 0.0).all()]
    if not kept:
        return
    best = max(kept, key=lambda single: task.evaluation[task.singles[single]].mean())
    env = GrowEnv(task.task, reward_mode="solo")
    horizon = env.task.horizon
    for slot, blueprint in dict.fromkeys([best, kept[int(draws.integers(len(kept)))]]):
        gain = 0.0
        for start in (1, horizon // 3, horizon // 2, 2 * horizon // 3):
            life = _life(env, task, Schedule((ScheduledSeed(start, slot, blueprint),)))
            gain = _last(life) if start == 1 else gain
            yield life._replace(gain=gain)


def _life(env: GrowEnv, task: TaskSurvey, schedule: Schedule) -> Life:
    (seed,) = schedule.seeds
    place = env.codec.slots.index(seed.slot)
    observation, _ = env.reset(seed=task.seeds[0])
    state, over, rows = schedule.start(env.codec), False, []
    while not over:
        decision, state = schedule.act(observation, state, torch.Generator())
        observation, _, terminated, truncated, info = env.step(decision.choices)
        over = terminated or truncated
        assert env.episode is not None
        snapshot = env.episode.snapshot
        norm, whole = snapshot.slots[place].gradient_norm, snapshot.host.gradient_norm
        ratio = norm / whole if norm and whole else np.nan
        rows.append((info["quality"], snapshot.slots[place].contribution, info["loss"], ratio))
    quality, contribution, loss, gradient = np.array(rows[seed.epoch :], dtype=np.float64).T
    alone = task.courses[0].qualities[seed.epoch : len(rows)]
    return Life(env.task.horizon, seed.epoch, 0.0, alone, quality, contribution, loss, gradient)


def _last(life: Life) -> float:
    return float(logit(life.quality[-2:].mean()) - logit(life.alone[-2:].mean()))


def rise_error(lived: Sequence[Life], rise: float, lateness: float) -> tuple[float, float]:
    """Root mean square error of quality by this rule: over whole lives, and at the end of those that began late."""
    whole, ends = [], []
    for life in lived:
        grown = (1 - np.exp(-life.ages / rise)) / (1 - np.exp(-(1 - 1 / life.horizon) / rise))
        share = (1 - (life.start - 1) / life.horizon) ** lateness * grown
        error = 1 / (1 + np.exp(-logit(life.alone) - life.gain * share)) - life.quality
        whole.append(np.mean(error**2))
        if life.start > 1:
            ends.append(np.mean(error[-2:]) ** 2)
    return float(np.sqrt(np.mean(whole))), float(np.sqrt(np.mean(ends)))


def steady_noise(values: Array) -> float:
    """Deviation of the last epochs from a straight course, by second differences."""
    return float(np.std(np.diff(values[-8:], 2)) / np.sqrt(6.0))


def say_rise(lived: Sequence[Life]) -> None:
    """Which rise and which lateness fit."""
    moving = [life for life in lived if abs(life.gain) > 0.1]
    print(f"rise and lateness: errors over whole lives, and at the end of late ones, of {len(moving)} lives")
    for lateness, rise in product((0.0, 0.5, 1.0), (0.2, 0.3, 0.5, 1.0)):
        whole, late = rise_error(moving, rise, lateness)
        print(f"  lateness {lateness:.1f} rise {rise:.1f}: {whole:.4f} {late:.4f}")


def say_reliance(lived: Sequence[Life]) -> None:
    """By how much contributions exceed gains."""
    ages = np.concatenate([life.ages for life in lived])
    gained = np.concatenate([logit(life.quality) - logit(life.alone) for life in lived])
    lost = np.concatenate([logit(life.quality) - logit(life.quality - life.contribution) for life in lived])
    told = np.isfinite(lost)
    ages, excess = ages[told], (lost - gained)[told]
    print(f"reliance: {(excess * ages).sum() / (ages**2).sum():.2f} logits after a horizon, by least squares")
    print(f"  Spearman of contribution and gain: {spearmanr(lost[told], gained[told])[0]:.2f}")
    for low, high in ((0.0, 0.2), (0.2, 0.5), (0.5, 1.0)):
        some = excess[(ages > low) & (ages <= high)]
        quantiles = np.percentile(some, [25, 50, 75, 90]).round(2)
        print(f"  age {low} to {high}: mean {some.mean():.2f}, 25, 50, 75, 90 %: {quantiles}")


def say_noise(lived: Sequence[Life]) -> None:
    """From epoch to epoch, and of losses and gradients."""
    print(f"noise of quality: {np.median([steady_noise(life.quality) for life in lived]):.4f}")
    print(f"noise of contributions: {np.nanmedian([steady_noise(life.contribution) for life in lived]):.4f}")
    rises = np.concatenate([logit(life.quality) - logit(life.quality[0]) for life in lived])
    falls = np.concatenate([np.log(life.loss) - np.log(life.loss[0]) for life in lived])
    print(f"power of the loss: {-(rises * falls).sum() / (rises**2).sum():.2f}")
    print(f"gradient over the host's: {np.nanmedian(np.concatenate([life.gradient for life in lived])):.2f}")


def say_survey(tasks: Sequence[TaskSurvey]) -> None:
    """What the survey says by itself: how gains differ between seeds, and how those of pairs add up."""
    twice = [task for task in tasks if len(task.seeds) == 2]
    gains = [logit(task.evaluation) - logit(task.evaluation[:1]) for task in twice]
    kept = np.concatenate([gain[(task.growth_log > 0).all(axis=1)] for task, gain in zip(twice, gains, strict=True)])
    mean, deviation = kept.mean(axis=1), (kept[:, 0] - kept[:, 1]) / np.sqrt(2.0)
    print("luck: deviation of gains between seeds, by the mean gain in logits")
    for low, high in ((0.0, 0.2), (0.2, 0.5), (0.5, 1.0), (1.0, 9.0)):
        some = (abs(mean) >= low) & (abs(mean) < high)
        robust = 1.4826 * np.median(abs(deviation[some]))
        print(f"  {low} to {high}: {deviation[some].std():.2f}, by its median {robust:.2f} ({some.sum()})")
    pairs = np.array([pair for task in tasks for pair in _pairs(task)])
    print(
        f"pairs: Spearman of qualities {spearmanr(pairs[:, 0], pairs[:, 1])[0]:.2f}, of gains over the host "
        f"{spearmanr(pairs[:, 0] - pairs[:, 2], pairs[:, 1] - pairs[:, 2])[0]:.2f} ({len(pairs)}); "
        f"sums are too high by {np.mean(pairs[:, 0] - pairs[:, 1]):.3f}"
    )


def _pairs(task: TaskSurvey) -> Iterator[tuple[float, float, float]]:
    """Of each pair that was kept whole, what its singles promise, what it is, and what the host alone is."""
    for index, name in enumerate(task.structures):
        parts = [task.structures.index(part) for part in name.split("+")]
        grown = np.log1p(np.expm1(task.growth_log[parts].max(axis=1)).sum())
        whole = np.isclose(task.growth_log[index], grown) & (task.growth_log[parts] > 0).all(axis=0)
        if len(parts) == 2 and whole.any():
            first, second, pair, host = task.evaluation[[*parts, index, 0]][:, whole].mean(axis=1)
            added = logit(first) + logit(second) - logit(host)
            yield float(1 / (1 + np.exp(-added))), float(pair), float(host)


def main() -> None:
    """Play and print."""
    parser = argparse.ArgumentParser(description="Measure how live seeds gain.")
    parser.add_argument("--survey", type=Path, default=Path("surveys/small.parquet"))
    parser.add_argument("--tasks", type=int, default=24, help="to be played live (default %(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    draws = np.random.default_rng(0)
    tasks = read_survey(options.survey).tasks
    say_survey(tasks)
    twice = [task for task in tasks if len(task.seeds) == 2]
    chosen = [twice[place] for place in draws.permutation(len(twice))[: options.tasks]]
    lived = [life for task in chosen for life in lives(task, draws) if len(life.quality) > 1]
    print(f"{len(lived)} lives on {len(chosen)} tasks")
    for say in (say_rise, say_reliance, say_noise):
        say(lived)


if __name__ == "__main__":
    main()
