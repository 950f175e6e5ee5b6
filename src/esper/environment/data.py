"""The data of the tasks: three splits of tensors, held once in memory per process.

Embedded sets need no download. Hub sets come through the `datasets` library, an optional extra, or from a local
directory in the hub's schema; what is missing is an error that says what to do, never a substitute.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn import functional

from esper.contracts import CHARACTER, EsperError, Token, nearest

EVALUATION_ROWS = 5_000
EVALUATION_SHARE = 5  # a set too small for that gives one row in five
EVALUATION_QUARTER = 4  # of a set cut short, rows to train on for each row to evaluate on
BATCH_ROWS = 1_000  # rows of a hub set decoded at a time

SPIRAL_TURNS = 1.65
SPIRAL_NOISE = 0.04


class MissingLibrary(EsperError):
    """An optional library that this data needs is not installed."""


class MissingData(EsperError):
    """The data is not where it was looked for."""


class UnreadableData(EsperError):
    """The data is there and cannot be read."""


class WrongSchema(EsperError):
    """The data can be read and is not what the task expects."""


PADDING = -100
"""The label of what is not counted, in training or in evaluation."""


@dataclass(frozen=True, eq=False)
class Split:
    """Samples `x` of shape (n, ...), float32, and their labels `y` of shape (n,), int64. Shared: do not write to it.

    Of text, samples are windows of tokens (n, tokens), int64, with as many labels; `token` says what one stands for.
    """

    x: Tensor
    y: Tensor
    token: Token = CHARACTER

    def to(self, device: torch.device) -> "Split":
        return self if self.x.device == device else Split(self.x.to(device), self.y.to(device), self.token)

    def first(self, samples: int) -> "Split":
        """The first so many samples."""
        return Split(self.x[:samples], self.y[:samples], self.token)


def cross_entropy(output: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
    """Of outputs (n, ..., outcomes) at labels (n, ...), in nats per label that counts."""
    return functional.cross_entropy(output.flatten(0, -2), y.flatten(), ignore_index=PADDING, reduction=reduction)


@dataclass(frozen=True, eq=False)
class Splits:
    """`train` is for gradients, `evaluation` for reward and controller, `test` for final tables only."""

    train: Split
    evaluation: Split
    test: Split

    def to(self, device: torch.device) -> "Splits":
        """The same data there; itself if it is there already, so that it is held once."""
        if self.train.x.device == device:
            return self
        return Splits(self.train.to(device), self.evaluation.to(device), self.test.to(device))


@dataclass(frozen=True)
class Source:
    """A set that tasks can name: its origin in words, one sample's shape, and how to load it.

    `load` takes the user's data directory, which only hub sets look at.
    """

    name: str
    origin: str
    shape: tuple[int, ...]
    classes: int
    load: Callable[[Path | None], Splits]
    dtype: torch.dtype = torch.float32

    @property
    def is_text(self) -> bool:
        """Whether samples are tokens."""
        return not self.dtype.is_floating_point


@dataclass(frozen=True)
class HubSource:
    """What the Hugging Face hub has under a name."""

    repository: str
    config: str

    @property
    def folder(self) -> str:
        """The name of the set's own directory inside a data directory."""
        return self.repository.rpartition("/")[2]

    @property
    def schema(self) -> str:
        """Its splits and fields, in words."""
        raise NotImplementedError


@dataclass(frozen=True)
class HubSet(HubSource):
    """An image set of the Hugging Face hub. `mean` and `deviation` are per channel, of pixels in 0..1.

    `names` are those of the labels. A copy that has other names is another set, though it may look the same.
    """

    image_field: str
    shape: tuple[int, int, int]
    names: tuple[str, ...]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @property
    def schema(self) -> str:
        return f"splits train and test with the fields {self.image_field} and label"


CIFAR10 = HubSet(
    repository="uoft-cs/cifar10",
    config="plain_text",
    image_field="img",
    shape=(3, 32, 32),
    names=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    mean=(0.4914, 0.4822, 0.4465),
    deviation=(0.2470, 0.2435, 0.2616),
)
FASHION_MNIST = HubSet(
    repository="zalando-datasets/fashion_mnist",
    config="fashion_mnist",
    image_field="image",
    shape=(1, 28, 28),
    names=(
        "T - shirt / top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
    ),
    mean=(0.2860,),
    deviation=(0.3530,),
)  # fmt: skip


def partition(sizes: tuple[int, int, int], generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Indices of train, evaluation and test: a random order of all rows, cut into pieces of these sizes."""
    train, evaluation, test = torch.randperm(sum(sizes), generator=generator).split(sizes)
    return train, evaluation, test


def _cut(x: Tensor, y: Tensor, sizes: tuple[int, int, int], generator: torch.Generator) -> Splits:
    train, evaluation, test = (Split(x[rows], y[rows]) for rows in partition(sizes, generator))
    return Splits(train, evaluation, test)


@cache
def digits() -> Splits:
    """Scikit-learn's digits: images of shape (n, 1, 8, 8) in 0..1; 997 to train, 400 to evaluate, 400 to test."""
    raw = load_digits()
    x = torch.tensor(raw.images, dtype=torch.float32).unsqueeze(1) / 16.0
    return _cut(x, torch.tensor(raw.target), (997, 400, 400), torch.Generator().manual_seed(1))


@cache
def spirals() -> Splits:
    """Points (n, 2) on three noisy arms that wind around each other; 1,200 to train, 600 to evaluate, 600 to test."""
    sizes = (1_200, 600, 600)
    generator = torch.Generator().manual_seed(2)
    y = torch.arange(sum(sizes)) % 3
    radius = 0.2 + 1.8 * torch.rand(len(y), generator=generator).sqrt()
    angle = 2 * math.pi * (SPIRAL_TURNS * radius / 2 + y / 3)
    arms = torch.stack((radius * angle.cos(), radius * angle.sin()), dim=1)
    x = arms + SPIRAL_NOISE * torch.randn(arms.shape, generator=generator)
    return _cut(x, y, sizes, generator)


def hub(source: HubSet, data_dir: Path | None = None) -> Splits:
    """A hub set, normalised by its constants; images have shape (n, channels, height, width).

    `data_dir` is a directory that holds the set in a folder of the set's name, or is that folder; without it
    the set is downloaded. Evaluation takes the last 5,000 rows of the hub's train split, or the last fifth of
    one with fewer than 25,000; test is the hub's test split.
    """
    return _read(source, None if data_dir is None else folder_of(source, data_dir))


@cache
def first_rows(splits: Splits, samples: int) -> Splits:
    """The first `samples` rows to train on and a quarter as many to evaluate on; the test split stays whole."""
    train, evaluation = splits.train, splits.evaluation
    few = math.ceil(samples / EVALUATION_QUARTER)
    return Splits(train.first(samples), evaluation.first(few), splits.test)


def folder_of(source: HubSource, data_dir: Path) -> Path:
    """The set's own directory, which is the data directory or lies in it."""
    root = data_dir.resolve()
    if not root.is_dir():
        raise MissingData(f"there is no directory {root}; give one with --data-dir DIR that holds {layout_of(source)}")
    inside = root / source.folder
    # The set's own directory may have a subdirectory of the same name, because the hub names it after the config.
    return inside if inside.is_dir() and root.name != source.folder else root


def layout_of(source: HubSource) -> str:
    """What must lie in a user's data directory, in words."""
    return f"'{source.folder}' in the schema of the hub's {source.repository}: {source.schema}"


@cache
def _read(source: HubSet, folder: Path | None) -> Splits:
    sets, place = load_hub(source, folder), folder or source.repository
    absent = [split for split in ("train", "test") if split not in sets]
    if absent:
        raise WrongSchema(f"{place} has the splits {sorted(sets)}, not {absent}; it must hold {layout_of(source)}")
    rows = _tensors(sets["train"], source, f"{place}, split train")
    test = _tensors(sets["test"], source, f"{place}, split test")
    kept = len(rows.y) - min(EVALUATION_ROWS, math.ceil(len(rows.y) / EVALUATION_SHARE))
    if not kept:
        raise WrongSchema(f"{place}, split train has {len(rows.y)} rows; training and evaluation need at least 2")
    return Splits(Split(rows.x[:kept], rows.y[:kept]), Split(rows.x[kept:], rows.y[kept:]), test)


def load_hub(source: HubSource, folder: Path | None) -> Any:
    """What `datasets.load_dataset` returns. It raises errors of many unrelated classes, so all are caught."""
    try:
        library = import_module("datasets")
    except ImportError as error:
        raise MissingLibrary(
            f'{source.repository} is read with the library datasets ({error}); pip install "esper-growth[data]"'
        ) from error
    # Its progress bars would share a semaphore among processes, which a worker that is ended leaves behind.
    import_module("tqdm").tqdm.set_lock(RLock())
    try:
        if folder is not None:
            return library.load_dataset(str(folder))
        return library.load_dataset(source.repository, source.config)
    except Exception as error:
        if folder is not None:
            raise UnreadableData(
                f"{folder} cannot be read ({words_of(error)}); --data-dir DIR needs {layout_of(source)}"
            ) from error
        raise MissingData(
            f"{source.repository} could not be downloaded from the hub ({words_of(error)}); connect to the network, or "
            f"give a local copy with --data-dir DIR, where DIR holds {layout_of(source)}"
        ) from error


def words_of(error: BaseException) -> str:
    """The error that started it all, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"


def _tensors(rows: Any, source: HubSet, where: str) -> Split:
    for field in (source.image_field, "label"):
        if field not in rows.column_names:
            raise WrongSchema(
                f"{where} has no field '{field}'; {nearest(field, rows.column_names)}; it must hold {layout_of(source)}"
            )
    names = tuple(getattr(rows.features["label"], "names", None) or source.names)
    if names != source.names:
        raise WrongSchema(f"{where} has the labels {', '.join(names)[:80]}; those of {source.repository} differ")
    x, y = torch.empty(len(rows), *source.shape), torch.empty(len(rows), dtype=torch.int64)
    batches = rows.select_columns([source.image_field, "label"]).with_format("numpy").iter(BATCH_ROWS)
    done = 0
    try:
        for batch in batches:
            images = _images(batch[source.image_field], source, where)
            x[done : done + len(images)] = images
            y[done : done + len(images)] = _labels(batch["label"], source, where)
            done += len(images)
    except EsperError:
        raise
    except Exception as error:
        raise UnreadableData(
            f"{where} cannot be decoded from row {done} on ({words_of(error)}); copy it anew"
        ) from error
    return Split(x, y)


def _images(raw: Any, source: HubSet, where: str) -> Tensor:
    channels, height, width = source.shape
    expected = (height, width) if channels == 1 else (height, width, channels)
    if not isinstance(raw, np.ndarray) or raw.dtype != np.uint8 or raw.shape[1:] != expected:
        found = f"{raw.dtype} {raw.shape[1:]}" if isinstance(raw, np.ndarray) else type(raw).__name__
        raise WrongSchema(f"{where} has images of {found}, not uint8 {expected}; it must hold {layout_of(source)}")
    pixels = torch.from_numpy(raw).reshape(-1, height, width, channels).permute(0, 3, 1, 2)
    mean, deviation = (torch.tensor(values).view(-1, 1, 1) for values in (source.mean, source.deviation))
    return (pixels / 255.0 - mean) / deviation


def _labels(raw: Any, source: HubSet, where: str) -> Tensor:
    labels, last = np.asarray(raw), len(source.names) - 1
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() > last:
        raise WrongSchema(f"{where} has labels that are not integers in 0..{last}")
    return torch.from_numpy(labels.astype(np.int64))


def augmented(images: Tensor, generator: torch.Generator, padding: int = 4) -> Tensor:
    """Each image (n, channels, height, width) shifted by up to `padding` pixels and perhaps mirrored, by chance.

    What is shifted in is 0, the mean colour of normalised images. Draws from `generator` only.
    """
    count, _, height, width = images.shape
    top, left = torch.randint(2 * padding + 1, (2, count), generator=generator, device=generator.device)
    mirrored = torch.randint(2, (count, 1, 1, 1), generator=generator, device=generator.device)
    padded = functional.pad(images, (padding, padding, padding, padding))
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)
    shifted = windows[torch.arange(count), :, top, left]
    return torch.where(mirrored.bool().to(images.device), shifted.flip(3), shifted)


def _embedded(load: Callable[[], Splits], data_dir: Path | None) -> Splits:
    return load()


SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        Source("digits", "scikit-learn, no download", (1, 8, 8), 10, partial(_embedded, digits)),
        Source("spirals", "generated, no download", (2,), 3, partial(_embedded, spirals)),
        *(
            Source(each.folder, f"hub {each.repository}", each.shape, len(each.names), partial(hub, each))
            for each in (FASHION_MNIST, CIFAR10)
        ),
    )
}
"""The sets that tasks can name, in a task file too."""
