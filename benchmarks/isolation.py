"""Which way of training an isolated seed blends in better: straight through, or with a shadow pass?

    python benchmarks/isolation.py       # prints the table, writes results/isolation.csv; 10 minutes on 2 cores

The two episodes of a pair share initial weights, split, data order and the newborn seed; only `Isolation` differs.
Until alpha leaves 0 their hosts must score the same to the last bit, which is checked.

A seed germinates after epoch 5, trains for `--isolation-epochs`, is blended to alpha 1 with tempo 3 and held to the
end. The first epoch of a ramp has alpha 0, so a seed is isolated for one epoch more than it is in TRAINING.

Accuracy (a fraction; points in the table) and loss (nats) are of the evaluation split: `host` at the last moment with
alpha 0, `jump` what blending the seed at once would change then, `worst` the worst of the ramp minus `host`,
`arrival` after the first epoch at full alpha, `final` after the last epoch.
"""

import argparse
import multiprocessing
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from table import write_csv
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from esper.contracts import WAIT, Action, AlphaMode, Op, SlotId, SlotSnapshot, Stage, Style
from esper.growth import ConvHost, ConvShape, DenseHost, GrowthConfig, Isolation, Slot, Thresholds, graft

EPOCHS, EPOCHS_ALONE, BATCH, LEARNING_RATE = 25, 5, 64, 5e-3
STYLES = ("LINEAR_ADD", "GATED")
Examples = tuple[Tensor, Tensor]
Numbers = NDArray[np.float64]


@cache
def digits() -> Examples:
    """The 1,797 images of 8x8 pixels, scaled to 0..1."""
    data = load_digits()
    return torch.tensor(data.images, dtype=torch.float32)[:, None] / 16.0, torch.tensor(data.target)


@cache
def spirals() -> Examples:
    """Three noisy arms in the plane, one turn each, 500 points an arm."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(3).repeat_interleave(500)
    radius = torch.rand(1500, generator=generator).sqrt()
    angle = 2 * torch.pi * (labels / 3 + radius) + 0.25 * torch.randn(1500, generator=generator)
    return torch.stack((radius * angle.cos(), radius * angle.sin()), dim=1), labels


class Task(NamedTuple):
    """A host, the slot in it, what germinates there, and what the host learns."""

    slot: SlotId
    blueprints: tuple[str, ...]
    host: Callable[[], nn.Module]
    examples: Callable[[], Examples]


CONVS = ("conv_light", "conv_heavy")
TASKS = {
    "digits-pointwise": Task("block1", CONVS, lambda: ConvHost(1, 10, ConvShape((4, 8, 8), kernel=1)), digits),
    "digits": Task("block1", CONVS, lambda: ConvHost(1, 10, ConvShape((4, 8, 8), pool_after=(0, 1))), digits),
    "spirals": Task("layer1", ("mlp_small", "mlp"), lambda: DenseHost(2, 3, (16, 16, 16)), spirals),
}


class Pair(NamedTuple):
    """What two episodes have in common."""

    task: str
    blueprint: str
    style: str
    seed: int
    isolation_epochs: int
    seed_learning_rate: float


class Score(NamedTuple):
    """How good the network is on the evaluation split."""

    accuracy: float
    loss: float


NAMES = ("host", "jump", "worst", "arrival", "final")
COLUMNS = [*(f"{name}_{kind}" for name in NAMES for kind in Score._fields), "epoch_milliseconds"]


class Moment(NamedTuple):
    """One evaluation; `ahead` is the score that blending an isolated seed at once would give."""

    alpha: float
    score: Score
    ahead: Score


class Episode:
    """A host that trains, with one seed that goes the way from germination to holding."""

    def __init__(self, pair: Pair, isolation: Isolation) -> None:
        self.pair, task = pair, TASKS[pair.task]
        inputs, labels = task.examples()
        self.order = torch.Generator().manual_seed(1000 + pair.seed)
        shuffled, kept = torch.randperm(len(labels), generator=self.order), len(labels) // 3
        self.evaluation = inputs[shuffled[:kept]], labels[shuffled[:kept]]
        self.training = inputs[shuffled[kept:]], labels[shuffled[kept:]]
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(pair.seed)
            host = task.host()
        config = GrowthConfig(Thresholds(horizon=EPOCHS), isolation)
        births = torch.Generator().manual_seed(2000 + pair.seed)
        self.body = graft(host, [task.slot], inputs[:2], config=config, generator=births)
        self.slot: Slot = self.body.slot(task.slot)
        self.optimizer = torch.optim.Adam(host.parameters(), lr=LEARNING_RATE)
        self.body.optimise_with(self.optimizer, lr=pair.seed_learning_rate)
        self.isolated_seconds: list[float] = []

    def play(self) -> Iterator[Moment]:
        """Two moments an epoch: when the network has trained, and when the tick has moved alpha."""
        for _ in range(EPOCHS):
            self.body.execute(next_action(self.slot.snapshot(), self.body.epoch, self.pair))
            start = time.perf_counter()
            self._train_epoch()
            if self.slot.isolated:
                self.isolated_seconds.append(time.perf_counter() - start)
            yield self._moment()
            self.body.tick()
            yield self._moment()

    def _train_epoch(self) -> None:
        self.body.train()
        inputs, labels = self.training
        for batch in torch.split(torch.randperm(len(labels), generator=self.order), BATCH):
            loss_of = partial(cross_entropy, target=labels[batch])
            self.optimizer.zero_grad()
            loss_of(self.body(inputs[batch])).backward()
            if self.slot.isolation is Isolation.SHADOW:
                self.body.train_isolated(loss_of, inputs[batch])
            self.body.record_gradients()
            self.optimizer.step()

    def _moment(self) -> Moment:
        return Moment(self.slot.alpha, self._score(), self._ahead() if self.slot.isolated else self._score())

    def _ahead(self) -> Score:
        """The score with the seed blended in at full alpha, by a hook behind the slot's own."""
        module, seed = self.body.host.get_submodule(self.slot.id), self.slot.seed
        assert seed is not None
        with module.register_forward_hook(lambda module, inputs, features: seed(features, 1.0)):
            return self._score()

    @torch.no_grad()
    def _score(self) -> Score:
        inputs, labels = self.evaluation
        outputs = self.body.eval()(inputs)
        accuracy = (outputs.argmax(dim=1) == labels).double().mean()
        return Score(float(accuracy), float(cross_entropy(outputs, labels)))


def next_action(slot: SlotSnapshot, epoch: int, pair: Pair) -> Action:
    """The fixed schedule; an ADVANCE that a gate refuses is tried again an epoch later."""
    if slot.stage is Stage.DORMANT and epoch >= EPOCHS_ALONE:
        return Action(Op.GERMINATE, slot.slot, blueprint=pair.blueprint, style=Style[pair.style])
    trained = slot.stage is Stage.TRAINING and slot.age >= pair.isolation_epochs
    arrived = slot.stage is Stage.BLENDING and slot.alpha_mode is AlphaMode.STILL
    return Action(Op.ADVANCE, slot.slot) if slot.stage is Stage.GERMINATED or trained or arrived else WAIT


def play(pair: Pair, isolation: Isolation) -> Numbers:
    """Play one episode; the values of `COLUMNS`."""
    episode = Episode(pair, isolation)
    moments = list(episode.play())
    start = next(i for i, moment in enumerate(moments) if moment.alpha > 0.0)
    arrival = next(i for i, moment in enumerate(moments) if moment.alpha == 1.0) + 1
    (_, host, ahead), ramp = moments[start - 1], moments[start : arrival + 1]
    worst = min(each.score.accuracy for each in ramp), max(each.score.loss for each in ramp)
    scores = np.array([host, np.subtract(ahead, host), np.subtract(worst, host), ramp[-1].score, moments[-1].score])
    return np.append(scores, 1000.0 * median(episode.isolated_seconds))


def play_pair(pair: Pair) -> Numbers:
    """Straight through and shadow: shape (2, columns)."""
    played = np.stack([play(pair, isolation) for isolation in Isolation])
    if (played[0, :2] != played[1, :2]).any():
        raise RuntimeError(f"the hosts of {pair} differ before the blend; isolation must not reach the host")
    return played


def interval(values: Numbers) -> str:
    """The mean and its 95 % percentile bootstrap interval."""
    draws = np.random.default_rng(0).integers(len(values), size=(10_000, len(values)))
    low, high = np.percentile(values[draws].mean(axis=1), (2.5, 97.5))
    return f"{values.mean():+.3f} ({low:+.3f} to {high:+.3f})"


def table(values: Numbers) -> Iterator[str]:
    """Markdown lines from shape (tasks, seeds, ways, columns); times are compared as a ratio."""
    yield "| task | measure | straight through | shadow | shadow - straight through (95 % interval) |"
    yield "|---|---|---|---|---|"
    for task, of_task in zip(TASKS, values, strict=True):
        for index, name in enumerate(COLUMNS):
            straight, shadow = of_task[:, :, index].T * (100.0 if name.endswith("accuracy") else 1.0)
            compared = interval(shadow / straight) if name == COLUMNS[-1] else interval(shadow - straight)
            yield f"| {task} | {name.replace('_', ' ')} | {straight.mean():.3f} | {shadow.mean():.3f} | {compared} |"


def csv_rows(pairs: list[Pair], values: list[Numbers]) -> Iterator[list[object]]:
    """One row per episode."""
    for pair, both in zip(pairs, values, strict=True):
        for isolation, row in zip(Isolation, both, strict=True):
            yield [*pair, isolation.value, *row.round(5)]


def main() -> None:
    """Play all pairs on two processes. The variants of a seed are not independent: their mean is one sample."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--isolation-epochs", type=int, default=4, choices=range(2, 16), help="epochs in TRAINING")
    parser.add_argument("--seed-learning-rate", type=float, default=LEARNING_RATE)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "isolation.csv")
    given = parser.parse_args()
    pairs = [
        Pair(name, blueprint, style, seed, given.isolation_epochs, given.seed_learning_rate)
        for name, task in TASKS.items()
        for seed, blueprint, style in product(range(given.seeds), task.blueprints, STYLES)
    ]
    with multiprocessing.get_context("spawn").Pool(2, torch.set_num_threads, (1,)) as pool:
        values = pool.map(play_pair, pairs, chunksize=1)
    write_csv(given.out, [*Pair._fields, "isolation", *COLUMNS], csv_rows(pairs, values))
    by_seed = np.stack(values).reshape(len(TASKS), given.seeds, -1, len(Isolation), len(COLUMNS))
    print("\n".join(table(by_seed.mean(axis=2))))


if __name__ == "__main__":
    main()
