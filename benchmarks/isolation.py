"""Does a newborn seed need isolation, or may it join the network at birth?

    python benchmarks/isolation.py       # prints the tables, writes results/isolation.csv; 12 minutes on 1 core

The same newborn seed is planted after epoch 5 of 20 in the hosts of `hosts.py`. Per host and seed number all ways share
first weights, split, data order and the newborn's weights, and take turns epoch by epoch, so that times compare.

- `joined`: at full strength from birth. A newborn's delta is zero, so the output does not jump.
- `straight through` and `shadow`: isolated for 3 epochs (2 in TRAINING, and the first of the ramp, which has alpha 0),
  then blended to alpha 1 in 3 ticks.

A factor behind a way is the seed's learning rate in units of the host's, for as long as it lives.
Rows that the file has already are not measured again.
"""

import argparse
import csv
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import torch
from hosts import CASES, Case
from numpy.typing import NDArray
from table import write_csv
from torch.nn.functional import cross_entropy

from esper.contracts import Action, Op, Stage, Tempo
from esper.growth import AlphaSchedule, GrowthConfig, Isolation, Thresholds, graft

EPOCHS = 20
EPOCHS_ALONE = 5  # before the seed is planted
EPOCHS_ISOLATED = 3
EPOCHS_JUDGED = 3  # the last ones
STEPS = 20  # of an epoch, however much data there is
Numbers = NDArray[np.float64]


class Way(NamedTuple):
    """How a newborn learns; without `isolation` it has joined. `rate` is in units of the host's learning rate."""

    isolation: Isolation | None
    rate: float = 1.0


WAYS = {
    "shadow": Way(Isolation.SHADOW),
    "joined": Way(None),
    "straight through": Way(Isolation.STRAIGHT_THROUGH),
    "straight through x1/3": Way(Isolation.STRAIGHT_THROUGH, 1 / 3),
    "straight through x3": Way(Isolation.STRAIGHT_THROUGH, 3.0),
    "joined x3": Way(None, 3.0),
    "shadow x3": Way(Isolation.SHADOW, 3.0),
}
"""The first is what the others are compared with."""


class Measures(NamedTuple):
    """What one episode gives. Accuracies are fractions of the evaluation split, losses nats.

    `accuracy` and `loss` are means of the last three epochs, `born` is the accuracy at birth, `lowest` the lowest
    after any later epoch, `without` the accuracy with the seed left out again when it is three epochs old.
    `newborn_seconds` is the training time of the median of these three epochs, `seconds` that of the whole episode.
    """

    accuracy: float
    loss: float
    born: float
    lowest: float
    without: float
    newborn_seconds: float
    seconds: float


class Episode:
    """A host that trains for some epochs, gets a seed, and trains on."""

    def __init__(self, case: Case, seed: int, way: Way) -> None:
        self.case, self.way = case, way
        inputs, labels = case.examples()
        self.order = torch.Generator().manual_seed(1000 + seed)
        shuffled, kept = torch.randperm(len(labels), generator=self.order), len(labels) // 3
        self.evaluation = inputs[shuffled[:kept]], labels[shuffled[:kept]]
        self.training = inputs[shuffled[kept:]], labels[shuffled[kept:]]
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            host = case.host()
        config = GrowthConfig(Thresholds(horizon=EPOCHS), way.isolation or Isolation.STRAIGHT_THROUGH)
        births = torch.Generator().manual_seed(2000 + seed)
        self.body = graft(host, [case.slot], inputs[:2], topology=case.topology, config=config, generator=births)
        self.slot = self.body.slot(case.slot)
        self.optimizer = case.optimizer(host.parameters())
        self.body.optimise_with(self.optimizer, lr=way.rate * self.optimizer.defaults["lr"])
        self.seconds: list[float] = []
        self.scores: list[tuple[float, float]] = []
        self.without = (0.0, 0.0)

    def epoch(self) -> None:
        """Move the seed on as far as the gates allow, train, evaluate, tick."""
        if self.body.epoch == EPOCHS_ALONE:
            self._plant()
        self.body.execute(Action(Op.ADVANCE, self.slot.id))
        start = time.perf_counter()
        self._train()
        self.seconds.append(time.perf_counter() - start)
        self.scores.append(self._score())
        if len(self.scores) == EPOCHS_ALONE + EPOCHS_ISOLATED:
            with self.body.only([]):
                self.without = self._score()
        self.body.tick()

    def _plant(self) -> None:
        """Germinate. The lifecycle has no way to join at birth, so there the state is set by hand."""
        before = self._score()
        self.body.execute(Action(Op.GERMINATE, self.slot.id, blueprint=self.case.blueprint, tempo=Tempo.FAST))
        if self.way.isolation is None:
            self.slot.state = replace(self.slot.state, stage=Stage.HOLDING, schedule=AlphaSchedule(1.0, 1.0))
        if self._score() != before:
            raise RuntimeError("the output jumped at birth; a newborn's delta must be zero")

    def _train(self) -> None:
        self.body.train()
        inputs, labels = self.training
        for batch in torch.randperm(len(labels), generator=self.order).chunk(STEPS):
            loss_of = partial(cross_entropy, target=labels[batch])
            self.optimizer.zero_grad()
            loss_of(self.body(inputs[batch])).backward()
            if self.way.isolation is Isolation.SHADOW:
                self.body.train_isolated(loss_of, inputs[batch])
            self.body.record_gradients()
            self.optimizer.step()

    @torch.no_grad()
    def _score(self) -> tuple[float, float]:
        """Accuracy and loss on the evaluation split."""
        inputs, labels = self.evaluation
        outputs = self.body.eval()(inputs)
        accuracy = (outputs.argmax(dim=1) == labels).double().mean()
        return float(accuracy), float(cross_entropy(outputs, labels))

    def measures(self) -> Measures:
        """To be asked after the last epoch."""
        if self.slot.alpha != 1.0:
            raise RuntimeError(f"the seed did not arrive at full strength: {self.slot.snapshot()}")
        accuracy, loss = np.mean(self.scores[-EPOCHS_JUDGED:], axis=0)
        (born, _), after = self.scores[EPOCHS_ALONE - 1], self.scores[EPOCHS_ALONE:]
        newborn = self.seconds[EPOCHS_ALONE : EPOCHS_ALONE + EPOCHS_ISOLATED]
        return Measures(accuracy, loss, born, min(after)[0], self.without[0], median(newborn), sum(self.seconds))


def play(host: str, seed: int) -> list[Measures]:
    """One episode per way, in the order of `WAYS`, taking turns."""
    episodes = [Episode(CASES[host], seed, way) for way in WAYS.values()]
    for _ in range(EPOCHS):
        for episode in episodes:
            episode.epoch()
    isolated = {episode.without for episode in episodes if episode.way.isolation is not None}
    if len(isolated) > 1:
        raise RuntimeError(f"the hosts of {host}, seed {seed} differ in isolation, which must not reach the host")
    return [episode.measures() for episode in episodes]


Row = tuple[str, int, str, Measures]
"""Host, seed, way, and what was measured."""


def read(path: Path) -> list[Row]:
    """The rows that are there."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        _, *rows = csv.reader(file)
    return [(host, int(seed), way, Measures(*map(float, values))) for host, seed, way, *values in rows]


def write(path: Path, rows: Sequence[Row]) -> None:
    """All rows, one per episode."""
    cells = ([host, seed, way, *(f"{value:.5f}" for value in measures)] for host, seed, way, measures in rows)
    write_csv(path, ["host", "seed", "way", *Measures._fields], cells)


def interval(values: Numbers) -> str:
    """The mean and its 95 % percentile bootstrap interval."""
    draws = np.random.default_rng(0).integers(len(values), size=(10_000, len(values)))
    low, high = np.percentile(values[draws].mean(axis=1), (2.5, 97.5))
    return f"{values.mean():+.2f} ({low:+.2f} to {high:+.2f})"


def line(cells: Sequence[str]) -> str:
    """One line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def by_host(values: Numbers) -> Iterator[str]:
    """Accuracy of shadow in %, and the paired differences of the other ways in points."""
    points = 100.0 * values[..., Measures._fields.index("accuracy")]
    differences = points[:, :, 1:] - points[:, :, :1]
    yield line(["host", *WAYS])
    yield line(["---"] * (1 + len(WAYS)))
    for host, of_host, base in zip(CASES, differences, points[:, :, 0].mean(axis=1), strict=True):
        yield line([host, f"{base:.1f}", *map(interval, of_host.T)])
    yield line(["all hosts", f"{points[:, :, 0].mean():.1f}", *map(interval, differences.mean(axis=1).T)])


def overall(values: Numbers) -> Iterator[str]:
    """The other measures over all hosts: differences to shadow, and for times the median ratio."""
    yield line(["difference to shadow, all hosts", *list(WAYS)[1:]])
    yield line(["---"] * len(WAYS))
    for index, name in enumerate(Measures._fields):
        base, others = values[..., :1, index], values[..., 1:, index]
        if name.endswith("seconds"):
            ratios = np.median(others / base, axis=(0, 1))
            yield line([f"{name}, ratio", *(f"{ratio:.2f}" for ratio in ratios)])
        elif name != "born":
            scale = 1.0 if name == "loss" else 100.0
            yield line([name, *map(interval, scale * (others - base).mean(axis=1).T)])


def main() -> None:
    """Play what is missing, seed by seed, so that a stopped run has compared all hosts equally often."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "isolation.csv")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = read(given.out)
    for seed, host in product(range(given.seeds), CASES):
        if not any(row[:2] == (host, seed) for row in rows):
            rows += [(host, seed, way, measures) for way, measures in zip(WAYS, play(host, seed), strict=True)]
            write(given.out, rows)
    found = {row[:3]: row[3] for row in rows}
    values = np.array([[[found[host, seed, way] for way in WAYS] for seed in range(given.seeds)] for host in CASES])
    print("\n".join([*by_host(values), "", *overall(values)]))


if __name__ == "__main__":
    main()
