"""The tasks: what a host learns from, where seeds can grow in it, and for how long. A dict and a decorator."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor, nn

from esper.contracts import ACCURACY_GRAIN, LOSS_GRAIN, EsperError, JudgedBy, Metric, SlotId, grain_of, metric_of
from esper.environment.data import SOURCES, Source, Split, Splits, first_rows
from esper.environment.task_file import HostShape, Optimizer
from esper.environment.text import TEXTS, Text
from esper.growth import ConvHost, ConvShape, DenseHost, DenseShape, GPTHost, GPTShape, count_parameters

DEFAULT_TASK = "digits-pointwise"
NAME = r"(family:[a-z-]{1,40}/[0-9]{1,18}|[A-Za-z0-9][A-Za-z0-9_.-]{0,63})"

RANGES: dict[str, tuple[int, int] | tuple[float, float]] = {
    "classes": (2, 10_000),
    "horizon": (1, 10_000),
    "batch_size": (1, 65_536),
    "batches": (1, 1_000_000),
    "learning_rate": (1e-7, 10.0),
    "seed_learning_rate": (1e-7, 10.0),
    "max_gradient_norm": (1e-6, 1e6),
    "cooldown_share": (0.0, 1.0),
    "warmup_share": (0.0, 1.0),
    "final_rate": (0.0, 1.0),
    "min_contribution": (-1.0, 1.0),
    "rent": (0.0, 1.0),
}
"""The least and the most of each number of a task that is given. Where both are integers the number must be one."""
SAMPLES = (2, 10_000_000)


class InvalidTask(EsperError):
    """A task's setting lies outside its range."""


class DuplicateTask(EsperError):
    """The name is taken."""


@dataclass(frozen=True)
class Task:
    """Everything that an episode needs besides its seed and its actions.

    `source` says in words where the data comes from; `load` takes the user's data directory, or None. `build_host`
    draws initial weights from the global random numbers. `blueprints` narrows what may germinate; None allows all
    that fit. `classes` counts what there is to choose from: the classes, or the tokens of a vocabulary.
    `horizon` counts epochs, `batch_size` samples. An epoch is one pass over the data, or so many `batches`, drawn anew.
    `augment` crops and flips training images. `optimizer` is "adam", "adamw", or "sgd" with momentum. Gradients are
    clipped to `max_gradient_norm`. Learning rates rise in the first `warmup_share` of the epochs, and fall to
    `final_rate` of themselves in the last `cooldown_share`, epoch by epoch, or batch by batch if it is `smooth`.
    `judged_by` is "accuracy" or one of `UNITS`. A seed is kept if it brings `min_contribution`. `rent` is the
    quality that growing by a factor e must bring to pay. `traits` are words by which tables group tasks.
    """

    name: str
    summary: str
    source: str
    load: Callable[[Path | None], Splits]
    build_host: Callable[[], nn.Module]
    slots: tuple[SlotId, ...]
    classes: int
    blueprints: tuple[str, ...] | None
    horizon: int
    batch_size: int
    learning_rate: float
    seed_learning_rate: float
    augment: bool = False
    max_gradient_norm: float = 1.0
    cooldown_share: float = 0.4
    judged_by: JudgedBy = "accuracy"
    optimizer: Optimizer = "adam"
    rent: float = 0.08
    batches: int | None = None
    warmup_share: float = 0.0
    final_rate: float = 0.05
    smooth: bool = False
    min_contribution: float = ACCURACY_GRAIN
    traits: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.judged_by not in get_args(JudgedBy):
            raise InvalidTask(
                f"task '{self.name}' has judged_by {self.judged_by!r}; give one of {', '.join(get_args(JudgedBy))}"
            )
        if not re.fullmatch(NAME, self.name) or self.name.lower().endswith(".toml"):
            raise InvalidTask(
                f"a task cannot be named {self.name[:80]!r}; use up to 64 letters, digits, '-', '_' and '.', "
                "with a letter or digit first and without the ending .toml"
            )
        for name, (least, most) in RANGES.items():
            self._check_number(name, least, most)
        if self.optimizer not in get_args(Optimizer):
            known = ", ".join(get_args(Optimizer))
            raise InvalidTask(f"task '{self.name}' has optimizer {self.optimizer!r}; give one of {known}")
        if self.warmup_share and not self.smooth:
            raise InvalidTask(
                f"task '{self.name}' warms up epoch by epoch, so that its first would have a rate of 0; set smooth, "
                "or leave out warmup_share"
            )
        for what, names in (("slots", self.slots), ("blueprints", self.blueprints)):
            if names is not None and (not names or len(set(names)) < len(names)):
                raise InvalidTask(f"task '{self.name}' has {what} {list(names)}; name at least one, each once")

    def _check_number(self, name: str, least: float, most: float) -> None:
        value = getattr(self, name)
        if value is None and name == "batches":
            return
        types = (int,) if isinstance(least, int) else (int, float)
        if isinstance(value, bool) or not isinstance(value, types) or not least <= value <= most:
            number = "an integer" if isinstance(least, int) else "a number"
            raise InvalidTask(f"task '{self.name}' has {name} {value!r}; give {number} from {least:,} to {most:,}")

    @property
    def grain(self) -> float:
        """The least difference in quality that is worth a decision."""
        return grain_of(self.judged_by)

    def metric_on(self, split: Split) -> Metric:
        """What its networks are judged by on that data."""
        return metric_of(self.judged_by, self.classes, split.token)

    def samples_of(self, split: Split) -> int:
        """How many an epoch trains on."""
        return len(split.x) if self.batches is None else self.batches * self.batch_size

    def batches_of(self, split: Split) -> int:
        """How many an epoch has; the last one of a pass may be smaller than the others."""
        return -(-self.samples_of(split) // self.batch_size)

    def draw_batches(self, split: Split, generator: torch.Generator) -> Sequence[Tensor]:
        """The rows of every batch of an epoch."""
        if self.batches is None:
            return list(torch.randperm(len(split.x), generator=generator).split(self.batch_size))
        return list(torch.randint(len(split.x), (self.batches, self.batch_size), generator=generator))

    def host_parameters(self) -> int:
        """The exact parameter count of a freshly built host; the global random numbers stay as they are."""
        with torch.random.fork_rng():
            return count_parameters(self.build_host().parameters())


def task_on(source: Source, host: HostShape, name: str, summary: str) -> Task:
    """A task with a slot behind every block or layer of `host`; in a transformer, behind attention and MLP as well.

    Its other settings suit small data; `dataclasses.replace` changes them.
    """
    if isinstance(host, GPTShape):
        build: Callable[[], nn.Module] = partial(GPTHost, source.classes, host)
        blocks = [f"block{index}" for index in range(host.layers)]
        slots = tuple(slot for block in blocks for slot in (f"{block}.attention", f"{block}.mlp", block))
        kind, kernel = "transformer", "none"
    elif isinstance(host, ConvShape):
        build = partial(ConvHost, source.shape[0], source.classes, host)
        slots = tuple(f"block{index}" for index in range(len(host.channels)))
        kernels = sorted(set(host.block_kernels))
        kind, kernel = "conv", str(kernels[0]) if len(kernels) == 1 else "mixed"
    else:
        build = partial(DenseHost, source.shape[0], source.classes, host.widths, host.activation, host.residual)
        slots = tuple(f"layer{index}" for index in range(len(host.widths)))
        kind, kernel = "dense", "none"
    return Task(
        name=name,
        summary=summary,
        source=source.origin,
        load=source.load,
        build_host=build,
        slots=slots,
        classes=source.classes,
        blueprints=None,
        horizon=25,
        batch_size=64,
        learning_rate=0.01,
        seed_learning_rate=0.01,
        traits={"data": source.name, "host": kind, "kernel": kernel},
    )


def text_task(text: Text, host: GPTShape, name: str, summary: str) -> Task:
    """A task on a text, with the usual settings; `dataclasses.replace` changes them."""
    return trained_on_text(task_on(text.source(host.context), host, name, summary))


def trained_on_text(task: Task) -> Task:
    """The task with the rate of language models: warm-up, steady, then evenly down to nothing.

    Its rent suits losses, which move less than accuracies.
    """
    return replace(
        task,
        horizon=25,
        batch_size=32,
        batches=30,
        learning_rate=0.005,
        seed_learning_rate=0.005,
        optimizer="adamw",
        smooth=True,
        warmup_share=0.05,
        final_rate=0.0,
        judged_by="bits per character",
        min_contribution=LOSS_GRAIN,
        rent=0.01,
    )


def with_samples(task: Task, samples: int) -> Task:
    """The task with the first `samples` rows of its data to train on, and a quarter as many to evaluate on."""
    least, most = SAMPLES
    if not least <= samples <= most:
        raise InvalidTask(f"task '{task.name}' has samples {samples}; give an integer from {least:,} to {most:,}")
    return replace(task, load=partial(_few, task.load, samples))


def _few(load: Callable[[Path | None], Splits], samples: int, data_dir: Path | None) -> Splits:
    return first_rows(load(data_dir), samples)


_REGISTRY: dict[str, Task] = {}

Factory = Callable[[], Task]


def task(name: str) -> Callable[[Factory], Factory]:
    """Register the task that a function returns. It is built, and so checked, at once."""

    def register(factory: Factory) -> Factory:
        if name in _REGISTRY:
            raise DuplicateTask(f"a task '{name}' exists already; choose another name")
        built = factory()
        if built.name != name:
            raise InvalidTask(f"@task('{name}') returned a task named '{built.name}'; give both the same name")
        _REGISTRY[name] = built
        return factory

    return register


def all_tasks() -> tuple[Task, ...]:
    """All registered tasks, in the order of their registration."""
    return tuple(_REGISTRY.values())


DIGITS, SPIRALS, FASHION, CIFAR = (SOURCES[name] for name in ("digits", "spirals", "fashion_mnist", "cifar10"))
HUB_BATCH_SIZE = 128


@task("digits-pointwise")
def _digits_pointwise() -> Task:
    summary = "1x1 convolutions cannot see space: poor alone, good with well-chosen seeds"
    return task_on(DIGITS, ConvShape((4, 8, 8), kernel=1), "digits-pointwise", summary)


@task("digits")
def _digits() -> Task:
    summary = "a 3x3 host near its ceiling: growth must know when not to pay"
    return task_on(DIGITS, ConvShape((4, 8, 8)), "digits", summary)


@task("spirals")
def _spirals() -> Task:
    return task_on(SPIRALS, DenseShape((6, 6)), "spirals", "three arms in the plane, a perceptron too narrow for them")


@task("fashion")
def _fashion() -> Task:
    host = ConvShape((8, 16, 16), pool_after=(0, 1), channels_last=True)
    return replace(task_on(FASHION, host, "fashion", "clothes, a small 3x3 host"), batch_size=HUB_BATCH_SIZE)


@task("fashion-pointwise")
def _fashion_pointwise() -> Task:
    host = ConvShape((4, 8, 8), kernel=1, pool_after=(0, 1))
    summary = "clothes, 1x1 convolutions: only the pooling sees space"
    return with_samples(replace(task_on(FASHION, host, "fashion-pointwise", summary), batch_size=HUB_BATCH_SIZE), 2_000)


@task("cifar10")
def _cifar10() -> Task:
    host = ConvShape((8, 16, 32), pool_after=(0, 1), channels_last=True)
    built = task_on(CIFAR, host, "cifar10", "objects, a small 3x3 host")
    return replace(built, batch_size=HUB_BATCH_SIZE, augment=True)


@task("cifar10-impaired")
def _cifar10_impaired() -> Task:
    host = ConvShape((2, 3, 3), kernel=1, pool_after=(0, 1))
    summary = "objects, very few 1x1 convolutions: only the pooling sees space"
    return replace(task_on(CIFAR, host, "cifar10-impaired", summary), batch_size=HUB_BATCH_SIZE, augment=True)


@task("cifar10-deep")
def _cifar10_deep() -> Task:
    """Two slots per block: behind the norm, where features have both signs, and behind the whole block."""
    host = ConvShape((8, 8, 16, 16, 32), pool_after=(0, 2, 3), channels_last=True)
    slots = tuple(slot for index in range(5) for slot in (f"block{index}.1", f"block{index}"))
    built = task_on(CIFAR, host, "cifar10-deep", "objects, a deeper host with two slots in every block")
    return replace(built, slots=slots, batch_size=HUB_BATCH_SIZE, augment=True)


@task("shakespeare-char")
def _shakespeare_char() -> Task:
    summary = "the next character of Shakespeare, a transformer of two layers"
    return text_task(TEXTS["shakespeare"], GPTShape(2, 48, 4, context=64), "shakespeare-char", summary)


@task("tinystories")
def _tinystories() -> Task:
    summary = "the next token of short stories, a transformer of two layers"
    built = text_task(TEXTS["tinystories"], GPTShape(2, 64, 4, context=64), "tinystories", summary)
    return replace(built, judged_by="bits per byte")
