"""A user's task in a TOML file. It selects data, a host's shape and settings; nothing in it is ever executed.

    name = "digits-wide"
    data = "digits"
    slots = ["block0", "block2"]
    horizon = 25
    batch_size = 64
    learning_rate = 0.01
    seed_learning_rate = 0.01

    [host]
    kind = "conv"
    channels = [8, 8, 8]

May be added: `summary`, `blueprints` (a list; all that fit without it), `augment` (true or false), `optimizer`
("adam", "adamw" or "sgd"), `rent`, `judged_by` ("accuracy", or for cross-entropy "loss" in nats, "perplexity", "bits
per character" or "bits per byte"), `max_gradient_norm`, `cooldown_share`, `warmup_share`, `final_rate`, `smooth`,
`min_contribution`, `batches` (of an epoch; one pass over the data without it), `samples` (rows to train on; all without
it), and for the host `kernel` or `kernels`, `norm`, `pool_after`, `pooling`, `residual`, `activation` and
`channels_last`. A host of kind "dense" has `widths` instead, and may have `residual` and `activation`; one of kind
"gpt" has `layers`, `width`, `heads` and `context`, and learns a text: `data = "shakespeare"`, or `text = "my.txt"` in
place of `data` for a file that lies beside the task file or below it. What is left out is as texts are trained and
judged, in bits per character. A file with `name`, `family = "small/17"` and
perhaps `rent`, and nothing else, is that task of that family.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from esper.checked import checked, read_toml, require_ranges, shown_value
from esper.contracts import EsperError, JudgedBy, nearest
from esper.growth import ACTIVATIONS, POOLINGS, ConvShape, DenseShape, GPTShape

MAX_LAYERS = 64
MAX_WIDTH = 1_024
MAX_KERNEL = 15
MAX_CONTEXT = 2_048
NORMS = ("group", "batch", "none")

Optimizer = Literal["adam", "adamw", "sgd"]
HostShape = ConvShape | DenseShape | GPTShape


class InvalidTaskFile(EsperError):
    """A task file that cannot be read, or says what is not allowed."""


@dataclass(frozen=True)
class TaskFile:
    """What a file says, key by key, and None of what it leaves out; ranges of the settings are left to the task."""

    name: str
    host: dict[str, Any]
    slots: tuple[str, ...]
    horizon: int
    batch_size: int
    learning_rate: float
    seed_learning_rate: float
    data: str | None = None
    text: str | None = None
    summary: str = ""
    blueprints: tuple[str, ...] | None = None
    augment: bool | None = None
    max_gradient_norm: float | None = None
    cooldown_share: float | None = None
    samples: int | None = None
    judged_by: JudgedBy | None = None
    optimizer: Optimizer | None = None
    rent: float | None = None
    batches: int | None = None
    warmup_share: float | None = None
    final_rate: float | None = None
    smooth: bool | None = None
    min_contribution: float | None = None
    shape: HostShape = field(init=False)
    """What the table `host` describes."""

    def __post_init__(self) -> None:
        if (self.data is None) is (self.text is None):
            raise InvalidTaskFile("it needs either 'data', the name of a set, or 'text', the name of a text file")
        object.__setattr__(self, "shape", _shape(self.host))


@dataclass(frozen=True)
class FamilyFile:
    """What a file says that names a task of a family."""

    name: str
    family: str
    rent: float | None = None


def read_task_file(path: Path) -> TaskFile | FamilyFile:
    """What the file says, with every key and type checked."""
    try:
        table = read_toml(path)
        return checked(FamilyFile, table) if "family" in table else checked(TaskFile, table)
    except EsperError as error:
        raise InvalidTaskFile(f"{path}: {error}") from error.__cause__


def _shape(host: Mapping[str, Any]) -> HostShape:
    table = dict(host)
    kind = table.pop("kind", None)
    if kind == "gpt":
        return _gpt(table)
    if kind == "dense":
        dense = checked(DenseShape, table, inside="host.")
        _check_widths("host.widths", dense.widths)
        _check_word("host.activation", dense.activation, ACTIVATIONS)
        return dense
    if kind != "conv":
        raise InvalidTaskFile(f"'host.kind' must be one of conv, dense, gpt, and is {shown_value(kind)}")
    if "channels" not in table:
        raise InvalidTaskFile("it lacks 'host.channels' (a list of integers)")
    shape = checked(ConvShape, table, inside="host.")
    _check_widths("host.channels", shape.channels)
    _check_kernels(shape)
    _check_word("host.norm", shape.norm, NORMS)
    _check_word("host.activation", shape.activation, ACTIVATIONS)
    _check_word("host.pooling", shape.pooling, POOLINGS)
    blocks = range(len(shape.channels))
    if len(set(shape.pool_after)) < len(shape.pool_after) or not set(shape.pool_after) <= set(blocks):
        raise InvalidTaskFile(f"'host.pool_after' names blocks by index, each once, from 0 to {blocks[-1]}")
    return shape


def _gpt(table: Mapping[str, Any]) -> GPTShape:
    gpt = checked(GPTShape, table, inside="host.")
    most = {"layers": (1, MAX_LAYERS), "width": (2, MAX_WIDTH), "heads": (1, MAX_WIDTH), "context": (2, MAX_CONTEXT)}
    require_ranges(gpt, most, InvalidTaskFile, "host.")
    return gpt


def _check_widths(key: str, widths: tuple[int, ...]) -> None:
    if not 1 <= len(widths) <= MAX_LAYERS or not all(1 <= width <= MAX_WIDTH for width in widths):
        raise InvalidTaskFile(f"'{key}' must be 1 to {MAX_LAYERS} numbers, each from 1 to {MAX_WIDTH:,}")


def _check_kernels(shape: ConvShape) -> None:
    for key, kernels in (("host.kernel", (shape.kernel,)), ("host.kernels", shape.kernels)):
        for kernel in kernels:
            if kernel % 2 == 0 or not 1 <= kernel <= MAX_KERNEL:
                raise InvalidTaskFile(f"'{key}' is {kernel}; give an odd number from 1 to {MAX_KERNEL}")
    if len(shape.block_kernels) != len(shape.channels):
        raise InvalidTaskFile(
            f"'host.kernels' names {len(shape.kernels)} kernels for {len(shape.channels)} blocks; name one for each"
        )


def _check_word(key: str, word: str, known: Iterable[str]) -> None:
    if word not in known:
        raise InvalidTaskFile(f"'{key}' is {shown_value(word)}; {nearest(word, known)}")
