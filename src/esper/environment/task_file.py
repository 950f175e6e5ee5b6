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

May be added: `summary`, `blueprints` (a list; all that fit without it), `augment` (true or false),
`max_gradient_norm`, and for the host `kernel`, `norm` and `pool_after`. A host of kind "dense" has `widths` instead.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esper.contracts import EsperError, nearest
from esper.growth import ConvShape

MAX_BYTES = 1_000_000
MAX_LAYERS = 64
MAX_WIDTH = 1_024
MAX_KERNEL = 15
NORMS = ("group", "batch", "none")


class InvalidTaskFile(EsperError):
    """A task file that cannot be read, or says what is not allowed."""


@dataclass(frozen=True)
class TaskFile:
    """What a file says, key by key; ranges of the settings are left to the task. `host` is a CNN's shape or widths."""

    name: str
    data: str
    host: ConvShape | tuple[int, ...]
    slots: tuple[str, ...]
    horizon: int
    batch_size: int
    learning_rate: float
    seed_learning_rate: float
    summary: str = ""
    blueprints: tuple[str, ...] | None = None
    augment: bool = False
    max_gradient_norm: float = 1.0


def _is_integer(value: Any) -> bool:
    return type(value) is int and abs(value) < 2**63


def _is_list_of(holds: Callable[[Any], bool], value: Any) -> bool:
    return isinstance(value, list) and all(map(holds, value))


def _is_string(value: Any) -> bool:
    return isinstance(value, str)


KINDS: dict[str, Callable[[Any], bool]] = {
    "a string": _is_string,
    "an integer": _is_integer,
    "a number": lambda value: isinstance(value, float) or _is_integer(value),
    "true or false": lambda value: isinstance(value, bool),
    "a table": lambda value: isinstance(value, dict),
    "a list of strings": lambda value: _is_list_of(_is_string, value),
    "a list of integers": lambda value: _is_list_of(_is_integer, value),
}
"""What a value can be, in the words of the error messages."""

REQUIRED = {
    "name": "a string",
    "data": "a string",
    "host": "a table",
    "slots": "a list of strings",
    "horizon": "an integer",
    "batch_size": "an integer",
    "learning_rate": "a number",
    "seed_learning_rate": "a number",
}
OPTIONAL = {
    "summary": "a string",
    "blueprints": "a list of strings",
    "augment": "true or false",
    "max_gradient_norm": "a number",
}

HOSTS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "conv": (
        {"kind": "a string", "channels": "a list of integers"},
        {"kernel": "an integer", "norm": "a string", "pool_after": "a list of integers"},
    ),
    "dense": ({"kind": "a string", "widths": "a list of integers"}, {}),
}
"""For each kind of host the keys that it needs, and those that may be added."""


def read_task_file(path: Path) -> TaskFile:
    """What the file says, with every key and type checked."""
    try:
        table = _parsed(path)
        values = _checked(table, REQUIRED, OPTIONAL, "")
        host = values.pop("host")
        return TaskFile(host=_host(host), **values)
    except InvalidTaskFile as error:
        raise InvalidTaskFile(f"{path}: {error}") from error.__cause__


def _parsed(path: Path) -> dict[str, Any]:
    try:
        if not path.is_file():
            raise InvalidTaskFile("there is no such file; give the path of a TOML file")
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InvalidTaskFile(f"the file cannot be read: {error.strerror}") from error
    if len(raw) > MAX_BYTES:
        raise InvalidTaskFile(f"the file is larger than {MAX_BYTES:,} bytes; a task takes about 400")
    try:
        return tomllib.loads(raw.decode())
    except UnicodeDecodeError as error:
        raise InvalidTaskFile("the file is not UTF-8 text; a task file is TOML") from error
    except RecursionError as error:
        raise InvalidTaskFile("the file is nested too deeply; a task has one table, [host]") from error
    except ValueError as error:
        raise InvalidTaskFile(f"the file is not TOML: {error}") from error


def _checked(
    table: Mapping[str, Any], required: Mapping[str, str], optional: Mapping[str, str], inside: str
) -> dict[str, Any]:
    """The table with lists as tuples; `inside` names the table that it is, for messages."""
    known = {**required, **optional}
    for key, value in table.items():
        if key not in known:
            raise InvalidTaskFile(f"there is no key {inside + key!r}; {nearest(key, known)}")
        if not KINDS[known[key]](value):
            raise InvalidTaskFile(f"'{inside}{key}' must be {known[key]}, and is {_shown(value)}")
    absent = [f"'{inside}{key}' ({kind})" for key, kind in required.items() if key not in table]
    if absent:
        raise InvalidTaskFile(f"the file lacks {', '.join(absent)}")
    return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}


def _shown(value: Any) -> str:
    """The value, shortened; integers that Python refuses to write out are named by their size."""
    if type(value) is int and not _is_integer(value):
        return "an integer of more than 64 bits"
    if isinstance(value, (list, dict)):
        return f"a {'list' if isinstance(value, list) else 'table'} of {len(value)}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _host(table: Mapping[str, Any]) -> ConvShape | tuple[int, ...]:
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in HOSTS:
        raise InvalidTaskFile(f"'host.kind' must be one of {', '.join(HOSTS)}, and is {_shown(kind)}")
    values = _checked(table, *HOSTS[kind], "host.")
    del values["kind"]
    if kind == "dense":
        return _widths("host.widths", values["widths"])
    shape = ConvShape(**values)
    _widths("host.channels", shape.channels)
    if shape.kernel % 2 == 0 or not 1 <= shape.kernel <= MAX_KERNEL:
        raise InvalidTaskFile(f"'host.kernel' is {shape.kernel}; give an odd number from 1 to {MAX_KERNEL}")
    if shape.norm not in NORMS:
        raise InvalidTaskFile(f"'host.norm' is {_shown(shape.norm)}; {nearest(shape.norm, NORMS)}")
    blocks = range(len(shape.channels))
    if len(set(shape.pool_after)) < len(shape.pool_after) or not set(shape.pool_after) <= set(blocks):
        raise InvalidTaskFile(f"'host.pool_after' names blocks by index, each once, from 0 to {blocks[-1]}")
    return shape


def _widths(key: str, widths: tuple[int, ...]) -> tuple[int, ...]:
    if not 1 <= len(widths) <= MAX_LAYERS or not all(1 <= width <= MAX_WIDTH for width in widths):
        raise InvalidTaskFile(f"'{key}' must be 1 to {MAX_LAYERS} numbers, each from 1 to {MAX_WIDTH:,}")
    return widths
