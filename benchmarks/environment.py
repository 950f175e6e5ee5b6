"""What the environment costs beyond the training that it is there for. Ratios, interleaved, medians.

    python benchmarks/environment.py        # prints the table; about 2 minutes on one core

- `step`: an environment step without seeds, over a bare PyTorch loop that trains and evaluates the same host on the
  same batches. Goal: at most 1.05, and 1.15 for a transformer.
- `grown`: an environment step with three blended seeds, all their coalitions evaluated, over a bare loop that trains
  and evaluates a copy of the same grown network. Goal: at most 1.6.
- `coalitions`: all eight coalitions of three blended seeds, over one pass of the full network. Goal: at most 4.
- `bookkeeping`: observation, masks and reward, as a share of a step with three seeds. Goal: at most 3 %.
- `gains`: what newborns would gain, as a share of an episode of waiting, in which every slot is measured. Goal: at most
  3 %.
"""

import argparse
import copy
import time
from collections.abc import Callable
from functools import partial
from statistics import median

import numpy as np
import torch
from torch import nn

from esper.contracts import WAIT, Stage
from esper.controller import Schedule, ScheduledSeed
from esper.environment import Episode, Evaluation, GrowEnv, Observer, Splits, Task, World, evaluate, find_task
from esper.environment.data import cross_entropy
from esper.environment.evaluation import coalitions_of
from esper.environment.masks import op_by_slot
from esper.rewards import Mode, RewardConfig, Transition, reward

TASK = find_task("digits-pointwise")


def seconds(run: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def interleaved(repeats: int, *runs: Callable[[], object]) -> list[float]:
    """The median time of each, measured in turns so that a busy moment hits all alike."""
    times = [[seconds(run) for run in runs] for _ in range(repeats)]
    return [median(column) for column in zip(*times, strict=True)]


class BareLoop:
    """The loop that somebody without growth would write for a network, with clipped gradients."""

    def __init__(self, host: nn.Module, splits: Splits, task: Task = TASK) -> None:
        self.host, self.task = host, task
        kind = torch.optim.AdamW if task.optimizer == "adamw" else torch.optim.Adam
        self.optimizer = kind(self.host.parameters(), lr=task.learning_rate, fused=True)
        self.splits = splits
        self.order = torch.Generator().manual_seed(0)

    def epoch(self) -> tuple[float, float, float]:
        """Train once, then loss and quality of the evaluation split."""
        train, held_out = self.splits.train, self.splits.evaluation
        losses = []
        self.host.train()
        for rows in self.task.draw_batches(train, self.order):
            self.optimizer.zero_grad()
            loss = cross_entropy(self.host(train.x[rows]), train.y[rows])
            loss.backward()
            nn.utils.clip_grad_norm_(self.host.parameters(), self.task.max_gradient_norm)
            self.optimizer.step()
            losses.append(loss.detach())
        self.host.eval()
        with torch.no_grad():
            output = self.host(held_out.x)
            loss = cross_entropy(output, held_out.y)
            quality = (output.argmax(-1) == held_out.y).float().mean()
        return torch.stack(losses).mean().item(), loss.item(), quality.item()


def step_ratio(task: Task, repeats: int) -> tuple[float, float]:
    """Milliseconds of the bare loop, and the ratio."""
    env = GrowEnv(task, reward_mode=Mode.SOLO)
    env.reset(seed=0)
    bare = BareLoop(task.build_host(), task.load(None), task)
    waiting = np.zeros(8, dtype=np.int64)

    def step() -> None:
        env.step(waiting)

    rounds = []
    for _ in range(max(1, repeats // (task.horizon - 1))):
        env.reset(seed=0)
        rounds.append(interleaved(task.horizon - 1, bare.epoch, step))
    alone, inside = (median(column) for column in zip(*rounds, strict=True))
    return 1000 * alone, inside / alone


def grown_episode(blueprint: str) -> Episode:
    """Three seeds, held at full alpha."""
    plan = Schedule(tuple(ScheduledSeed(0, slot, blueprint, fossilize=False) for slot in TASK.slots))
    episode = Episode(TASK, TASK.load(None), 0, World())
    while any(slot.stage is not Stage.HOLDING for slot in episode.snapshot.slots):
        legal = op_by_slot(episode.snapshot.slots, episode.body.thresholds)
        episode.step(plan.choose(TASK.slots, legal, episode.body.epoch))
    return episode


def grown_ratio(blueprint: str, repeats: int) -> tuple[float, float]:
    """Milliseconds of the bare loop of the grown network, and the ratio."""
    rounds: list[tuple[float, float]] = []
    while len(rounds) < repeats:
        episode = grown_episode(blueprint)
        bare = BareLoop(copy.deepcopy(episode.body.host), TASK.load(None))
        rounds += [(seconds(bare.epoch), seconds(partial(episode.step, WAIT))) for _ in range(10)]
    alone, inside = (median(column) for column in zip(*rounds, strict=True))
    return 1000 * alone, inside / alone


def coalition_ratio(blueprint: str, repeats: int) -> tuple[float, float]:
    """Milliseconds of one evaluation pass, and the ratio."""
    episode = grown_episode(blueprint)
    body, split = episode.body, TASK.load(None).evaluation

    def one_pass() -> None:
        body.eval()
        with torch.no_grad():
            output = body(split.x)
            nn.functional.cross_entropy(output, split.y).item()
            (output.argmax(1) == split.y).float().mean().item()

    def all_coalitions() -> Evaluation:
        return evaluate(body, episode.judge)

    assert len(coalitions_of(body.blended())) == 8
    alone, everything = interleaved(repeats, one_pass, all_coalitions)
    return 1000 * alone, everything / alone


def bookkeeping_share(repeats: int) -> tuple[float, float]:
    """Milliseconds of a step with three seeds, and the share of observation, masks and reward."""
    episode = grown_episode("conv_light")
    before, table = episode.snapshot, episode.evaluation.table
    observer = Observer(before.slots, episode.body.thresholds)
    config = RewardConfig(outcomes=TASK.classes)

    def train() -> None:
        episode.trainer.epoch(episode.train)
        evaluate(episode.body, episode.judge)

    def bookkeeping() -> None:
        snapshot = episode._snapshot(None, None)
        observer.observe(snapshot)
        reward(Transition(before, snapshot, WAIT, table, table), Mode.FRUGAL, config)
        episode.governor.check(episode.body, episode.evaluation.loss, episode.evaluation.quality)

    training, overhead = interleaved(repeats, train, bookkeeping)
    return 1000 * training, overhead / (training + overhead)


def gains_share(task: Task, repeats: int) -> tuple[float, float]:
    """Milliseconds of an episode that does not measure gains, and the median of what pairs of episodes say they add."""
    splits = task.load(None)

    def play(measuring: bool) -> float:
        episode = Episode(task, splits, 0, World())
        if not measuring:
            vars(episode.body)["watch_gains"] = lambda: None
        start = time.process_time()
        while not episode.done:
            episode.step(WAIT)
        return time.process_time() - start

    pairs = [(play(False), play(True)) for _ in range(repeats)]
    return 1000 * median(without for without, _ in pairs), median(inside / without - 1 for without, inside in pairs)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measure what the environment adds to training.")
    parser.add_argument("--repeats", type=int, default=96, help="calls per figure (default %(default)s)")
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    print("| measure | over | milliseconds | ratio | goal |\n|---|---|---|---|---|")
    for name, goal in ((TASK.name, 1.05), ("shakespeare-char", 1.15), ("family:text/5", 1.15)):
        base, ratio = step_ratio(find_task(name), repeats)
        print(f"| environment step on {name} | bare epoch and evaluation | {base:.1f} | {ratio:.2f} | ≤ {goal} |")
    for blueprint in ("conv_light", "conv_heavy"):
        base, ratio = grown_ratio(blueprint, repeats)
        print(f"| step with 3 blended {blueprint} | the same network, bare | {base:.1f} | {ratio:.2f} | ≤ 1.6 |")
    for blueprint in ("conv_light", "conv_heavy"):
        base, ratio = coalition_ratio(blueprint, repeats)
        print(f"| 8 coalitions of 3 {blueprint} | one evaluation pass | {base:.2f} | {ratio:.2f} | ≤ 4 |")
    base, share = bookkeeping_share(repeats)
    print(f"| observation, masks, reward, governor | step with 3 seeds | {base:.1f} | {share:.1%} | ≤ 3 % |")
    for name in (TASK.name, "spirals"):
        base, share = gains_share(find_task(name), repeats // 4)
        print(f"| what newborns would gain | waiting on {name} | {base:.1f} | {share:.1%} | ≤ 3 % |")


if __name__ == "__main__":
    main()
