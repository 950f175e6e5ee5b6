"""Does growing pay? Hosts and data that no controller was trained on, against networks that do not grow.

    python benchmarks/gardener.py --seeds 20                  # goes on where it was stopped
    python benchmarks/gardener.py --table                     # what the rows so far say
    python benchmarks/gardener.py --cases fashion --data-dir DIRECTORY   # with `datasets` parquet files, or downloads

Every training has a learning rate that falls to 0 (cosine), and is judged on a test split that nobody saw: accuracy, or
the share of variance that is explained. Arms: the host `alone`; grown by the `heuristic`, the `ranker` and the shipped
controller, which decide by the evaluation split; and, with the size that the ranker grew to on the same seed, the host
`widened` to at least as many parameters, the `scratch` training of the grown architecture from the first epoch on, and
the `next` size up, twice as wide. Rows with `budget` flops train static networks for as many epochs as take the
training operations of the ranker's run, so that nobody pays more than another; what evaluations
cost is left out.
"""

import argparse
import csv
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from sklearn.datasets import load_breast_cancer, make_friedman1, make_gaussian_quantiles
from torch import Tensor, nn

import esper
from esper.environment import SOURCES
from esper.growth import Fossil, count_flops, count_parameters, plant

GROWN = {"heuristic": "heuristic", "ranker": "ranker", "shipped": "tamiyo"}
"""Arms and their controllers."""
STATIC = ("alone", "widened", "scratch", "next")
REFERENCE = "ranker"
"""The arm whose size and training operations the static ones are given."""
BACKWARD = 3
"""Operations of a training step, in those of a forward pass."""
RENT = 0.02


@dataclass(frozen=True)
class Data:
    """Three splits of inputs and targets: to train on, to decide by, to judge by. Real targets are standardised."""

    inputs: Sequence[Tensor]
    targets: Sequence[Tensor]

    @property
    def outputs(self) -> int:
        return int(self.targets[0].max()) + 1 if self.classes else 1

    @property
    def classes(self) -> bool:
        return not self.targets[0].is_floating_point()


def split(x: Tensor, y: Tensor, train: int) -> Data:
    """The first rows to train on, half of the others for each of the other splits."""
    half = (len(x) - train) // 2
    return Data(x.split([train, half, len(x) - train - half]), y.split([train, half, len(x) - train - half]))


def cancer(draw: torch.Generator, directory: Path | None) -> Data:
    """Breast cancer: 30 measurements, 2 classes."""
    raw = load_breast_cancer()
    order = torch.randperm(len(raw.data), generator=draw)
    x = torch.tensor(raw.data, dtype=torch.float32)[order]
    return split((x - x[:250].mean(0)) / x[:250].std(0), torch.tensor(raw.target)[order], 250)


def friedman(draw: torch.Generator, directory: Path | None) -> Data:
    """Friedman's first function of 5 of 10 numbers, with noise: a real target."""
    x, y = make_friedman1(2400, noise=1.0, random_state=int(torch.randint(2**31, (), generator=draw)))
    target = torch.tensor(y, dtype=torch.float32)
    return split(torch.tensor(x, dtype=torch.float32) * 2 - 1, (target - target.mean()) / target.std(), 800)


def quantiles(draw: torch.Generator, directory: Path | None) -> Data:
    """Four shells around the origin of 8 dimensions."""
    seed = int(torch.randint(2**31, (), generator=draw))
    x, y = make_gaussian_quantiles(n_samples=2400, n_features=8, n_classes=4, random_state=seed)
    return split(torch.tensor(x, dtype=torch.float32), torch.tensor(y), 1200)


def gratings(draw: torch.Generator, directory: Path | None) -> Data:
    """Waves of 6 directions in noise, 12 x 12."""
    y = torch.randint(6, (1800,), generator=draw)
    angle = y * torch.pi / 6 + 0.15 * torch.randn(1800, generator=draw)
    phase = 6.3 * torch.rand(1800, generator=draw)
    row, column = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
    wave = torch.cos(angle)[:, None, None] * row + torch.sin(angle)[:, None, None] * column
    x = torch.sin(1.3 * wave + phase[:, None, None]) + 1.2 * torch.randn(1800, 12, 12, generator=draw)
    return split(x[:, None], y, 900)


def counts(draw: torch.Generator, directory: Path | None) -> Data:
    """How many of at most 5 spots there are, 12 x 12."""
    y = torch.randint(6, (1800,), generator=draw)
    x = 0.3 * torch.randn(1800, 1, 12, 12, generator=draw)
    for spot in range(5):
        place = torch.randint(1, 11, (1800, 2), generator=draw)
        there = (y > spot).nonzero().flatten()
        x[there, 0, place[there, 0], place[there, 1]] += 2.0
    return split(x, y, 900)


def motifs(draw: torch.Generator, directory: Path | None) -> Data:
    """Sequences of 16 symbols of 8: the symbol that follows the only 0 names the class."""
    x = torch.randint(1, 8, (1800, 16), generator=draw)
    place = torch.randint(0, 15, (1800,), generator=draw)
    rows = torch.arange(1800)
    x[rows, place] = 0
    return split(nn.functional.one_hot(x, 8).float(), x[rows, place + 1] - 1, 900)


def stored(name: str, draw: torch.Generator, directory: Path | None) -> Data:
    """A thousand rows of a stored or downloaded image set."""
    found = SOURCES[name].load(directory)
    order = torch.randperm(len(found.train.x), generator=draw)[:2000]
    return split(found.train.x[order], found.train.y[order], 1000)


class Residual(nn.Module):
    """A module beside which its input goes on."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, h: Tensor) -> Tensor:
        return torch.relu(h + self.inner(h))


class Reader(nn.Module):
    """A transformer over sequences that know their places."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.embed, self.places = nn.Linear(8, width), nn.Parameter(0.5 * torch.randn(16, width))
        layers = (nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.0, batch_first=True) for _ in range(2))
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.layers(self.embed(x) + self.places).mean(1))
        return scores


def perceptron(inputs: int, width: int, outputs: int, activation: Callable[[], nn.Module]) -> nn.Module:
    """Two layers with norms."""
    first = nn.Sequential(nn.Linear(inputs, width), nn.LayerNorm(width), activation())
    second = nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), activation())
    return nn.Sequential(first, second, nn.Linear(width, outputs))


def residual(inputs: int, width: int, outputs: int) -> nn.Module:
    """Two residual blocks of a layer each."""
    blocks = (Residual(nn.Linear(width, width)) for _ in range(2))
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), *blocks, nn.Linear(width, outputs))


def _convolution(channels: int, out: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(channels, out, 3, padding=1), nn.BatchNorm2d(out), nn.LeakyReLU(0.1))


def plain(channels: int, width: int, outputs: int) -> nn.Module:
    """Three convolutions with pooling between them."""
    blocks = (_convolution(channels, width), nn.MaxPool2d(2), _convolution(width, width), _convolution(width, width))
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, outputs))


def resnet(channels: int, width: int, outputs: int) -> nn.Module:
    """A stem, and two residual blocks of two convolutions."""
    blocks = (
        Residual(nn.Sequential(_convolution(width, width), nn.Conv2d(width, width, 3, padding=1))) for _ in range(2)
    )
    end = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, outputs))
    return nn.Sequential(_convolution(channels, width), *blocks, *end)


def reader(inputs: int, width: int, outputs: int) -> nn.Module:
    """Of any even width."""
    return Reader(width + width % 2, outputs)


@dataclass(frozen=True)
class Case:
    """A host and its data. `build` takes the channels of the inputs, a width and the outputs."""

    data: Callable[[torch.Generator, Path | None], Data]
    build: Callable[[int, int, int], nn.Module]
    width: int
    epochs: int = 20
    rate: float = 0.01
    batch: int = 64


CASES = {
    "cancer": Case(cancer, partial(perceptron, activation=nn.ReLU), 3),
    "friedman": Case(friedman, partial(perceptron, activation=nn.GELU), 4),
    "quantiles": Case(quantiles, residual, 6),
    "gratings": Case(gratings, plain, 3),
    "counts": Case(counts, resnet, 3),
    "motifs": Case(motifs, reader, 8, epochs=30),
    "fashion": Case(partial(stored, "fashion_mnist"), plain, 4),
    "cifar": Case(partial(stored, "cifar10"), resnet, 4),
}
STANDARD = ("cancer", "friedman", "quantiles", "gratings", "counts", "motifs")


@dataclass(frozen=True)
class Row:
    """One training. `score` is that of the test split, `flops` are the training operations of all epochs."""

    case: str
    seed: int
    arm: str
    budget: str
    score: float
    parameters: int
    flops: int
    epochs: int
    seconds: float


@dataclass(frozen=True)
class Grown:
    """What a controller made."""

    row: Row
    fossils: tuple[Fossil, ...]


class Bench:
    """One case with one seed: the same data and, for the same width, the same first weights for every arm."""

    def __init__(self, name: str, seed: int, directory: Path | None) -> None:
        self.name, self.seed, self.case = name, seed, CASES[name]
        self.data = self.case.data(torch.Generator().manual_seed(seed), directory)

    def host(self, width: int) -> nn.Module:
        """Newborn."""
        torch.manual_seed(self.seed)
        return self.case.build(self._channels(), width, self.data.outputs)

    def _channels(self) -> int:
        first = self.data.inputs[0]
        return first.shape[1] if first.ndim in (2, 4) else first.shape[2]

    def grown(self, arm: str) -> Grown:
        """The harvest of a gardener with this controller."""
        started, model = time.process_time(), self.host(self.case.width)
        optimizer = torch.optim.AdamW(model.parameters(), lr=self.case.rate)
        gardener = esper.Gardener(
            model,
            optimizer,
            example=self.data.inputs[0][:2],
            epochs=self.case.epochs,
            controller=GROWN[arm],
            rent=RENT,
            direction="max" if self.data.classes else "min",
        )
        flops = 0
        for _ in self._epochs(model, optimizer, self.case.epochs):
            flops += gardener.costs().live.flops * BACKWARD * len(self.data.inputs[0])
            gardener.step(lambda model: self.score(model, 1) if self.data.classes else 1.0 - self.score(model, 1))
        network = gardener.harvest()
        row = self._row(arm, "epochs", network, flops, self.case.epochs, time.process_time() - started)
        return Grown(row, gardener.body.delivered())

    def static(self, arm: str, grown: Grown, budget: str) -> Row:
        """A network that does not grow, for as many epochs or as many operations as the reference."""
        started, model = time.process_time(), self._static_host(arm, grown)
        example = self.data.inputs[0][:1]
        per_epoch = count_flops(model.eval(), example) * BACKWARD * len(self.data.inputs[0])
        epochs = self.case.epochs if budget == "epochs" else max(1, round(grown.row.flops / per_epoch))
        optimizer = torch.optim.AdamW(model.parameters(), lr=self.case.rate)
        for _ in self._epochs(model, optimizer, epochs):
            pass
        return self._row(arm, budget, model, per_epoch * epochs, epochs, time.process_time() - started)

    def _static_host(self, arm: str, grown: Grown) -> nn.Module:
        width = self.case.width
        if arm == "scratch":
            return plant(self.host(width), grown.fossils)
        if arm == "next":
            return self.host(2 * width)
        if arm == "widened":
            while count_parameters(self.host(width).parameters()) < grown.row.parameters:
                width += 1
        return self.host(width)

    def _epochs(self, model: nn.Module, optimizer: torch.optim.Optimizer, epochs: int) -> Iterator[None]:
        """Train; whatever else is to happen after an epoch is for the caller."""
        x, y = self.data.inputs[0], self.data.targets[0]
        steps = epochs * -(-len(x) // self.case.batch)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        order = torch.Generator().manual_seed(self.seed)
        for _ in range(epochs):
            model.train()
            for rows in torch.randperm(len(x), generator=order).split(self.case.batch):
                optimizer.zero_grad()
                self._loss(model(x[rows]), y[rows]).backward()
                optimizer.step()
                scheduler.step()
            yield

    def _loss(self, output: Tensor, y: Tensor) -> Tensor:
        if self.data.classes:
            return nn.functional.cross_entropy(output, y)
        return nn.functional.mse_loss(output.squeeze(1), y)

    @torch.no_grad()
    def score(self, model: nn.Module, at: int) -> float:
        """Accuracy or explained variance on the split of that number."""
        output, y = model.eval()(self.data.inputs[at]), self.data.targets[at]
        if self.data.classes:
            return float((output.argmax(1) == y).float().mean())
        return 1.0 - float((output.squeeze(1) - y).square().mean() / y.var(correction=0))

    def _row(self, arm: str, budget: str, model: nn.Module, flops: int, epochs: int, seconds: float) -> Row:
        score, parameters = round(self.score(model, 2), 5), count_parameters(model.parameters())
        return Row(self.name, self.seed, arm, budget, score, parameters, flops, epochs, round(seconds, 2))


def rows_of(name: str, seed: int, directory: Path | None) -> Iterator[Row]:
    """All arms of one case and seed."""
    bench = Bench(name, seed, directory)
    grown = {arm: bench.grown(arm) for arm in GROWN}
    yield from (each.row for each in grown.values())
    for arm in STATIC:
        for budget in ("epochs", "flops"):
            yield bench.static(arm, grown[REFERENCE], budget)


def read_rows(path: Path) -> list[Row]:
    """What was measured so far."""
    if not path.exists():
        return []
    kinds: dict[str, Any] = {each.name: each.type for each in fields(Row)}
    with path.open(newline="", encoding="utf-8") as file:
        return [Row(**{name: kinds[name](value) for name, value in row.items()}) for row in csv.DictReader(file)]


def append_rows(path: Path, rows: Sequence[Row]) -> None:
    """All arms of a case and seed at once, so that a seed is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [each.name for each in fields(Row)], lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(map(asdict, rows))


def table(rows: Sequence[Row]) -> str:
    """Scores in points, and what each arm gains over the host alone on the same seeds, with 95 % intervals."""
    lines = [
        "| case | arm | seeds | score | gain over alone | gain at the ranker's operations | size | operations |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name in dict.fromkeys(row.case for row in rows):
        found = {(row.arm, row.budget, row.seed): row for row in rows if row.case == name}
        seeds = sorted({seed for _, _, seed in found})
        for arm in ("alone", *GROWN, *STATIC[1:]):
            own = [found[arm, "epochs", seed] for seed in seeds]
            alone = [found["alone", "epochs", seed] for seed in seeds]
            alone_for_flops = [found["alone", "flops", seed] for seed in seeds]
            for_flops = [found.get((arm, "flops", seed)) for seed in seeds]
            at_equal = own if arm == REFERENCE else [row for row in for_flops if row is not None]
            cells = (
                name,
                arm,
                str(len(seeds)),
                f"{100 * fmean(row.score for row in own):.2f}",
                "" if arm == "alone" else gain(own, alone),
                gain(at_equal, alone_for_flops) if at_equal and arm != "alone" else "",
                f"x{fmean(row.parameters / base.parameters for row, base in zip(own, alone, strict=True)):.2f}",
                f"x{fmean(row.flops / base.flops for row, base in zip(own, alone, strict=True)):.2f}",
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def gain(rows: Sequence[Row], others: Sequence[Row]) -> str:
    """Of one arm over another on the same seeds, in points."""
    points = [100 * (row.score - other.score) for row, other in zip(rows, others, strict=True)]
    if len(points) < 2:
        return f"{points[0]:+.2f}"
    return f"{fmean(points):+.2f} ± {1.96 * stdev(points) / sqrt(len(points)):.2f}"


def main() -> None:
    """Measure what is missing, or print the table."""
    parser = argparse.ArgumentParser(description="Does growing pay on hosts and data that are new?")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--cases", nargs="*", choices=list(CASES), default=list(STANDARD))
    parser.add_argument("--data-dir", type=Path, default=None, help="of data sets; else they are downloaded")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/gardener.csv"))
    parser.add_argument("--table", action="store_true", help="print what the rows so far say")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if not given.table:
        done = {(row.case, row.seed) for row in read_rows(given.out)}
        for seed in range(given.seeds):
            for name in given.cases:
                if (name, seed) not in done:
                    append_rows(given.out, list(rows_of(name, seed, given.data_dir)))
                    print(f"{name} {seed}", flush=True)
    print(table(read_rows(given.out)))


if __name__ == "__main__":
    main()
