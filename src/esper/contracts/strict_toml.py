"""A user's TOML file, read strictly: no more than it may hold, every key known, every value of its kind."""

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from esper.contracts.errors import EsperError, nearest

MAX_BYTES = 1_000_000


class BadToml(EsperError):
    """A file that cannot be read, is not TOML, or holds what is not allowed."""


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
    "a list of tables": lambda value: _is_list_of(KINDS["a table"], value),
}
"""What a value can be, in the words of the error messages."""


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a file of at most a megabyte."""
    try:
        if not path.is_file():
            raise BadToml("there is no such file; give the path of a TOML file")
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise BadToml(f"the file cannot be read: {error.strerror}") from error
    if len(raw) > MAX_BYTES:
        raise BadToml(f"the file is larger than {MAX_BYTES:,} bytes; give a smaller one")
    try:
        return tomllib.loads(raw.decode())
    except UnicodeDecodeError as error:
        raise BadToml("the file is not UTF-8 text; give a TOML file") from error
    except RecursionError as error:
        raise BadToml("the file is nested too deeply; give one with plain tables") from error
    except ValueError as error:
        raise BadToml(f"the file is not TOML: {error}") from error


def checked_table(
    table: Mapping[str, Any], required: Mapping[str, str], optional: Mapping[str, str], inside: str = ""
) -> dict[str, Any]:
    """The table with lists as tuples, once its keys and the kinds of its values are those that are allowed.

    `required` and `optional` say for each key which of the `KINDS` it takes; `inside` is put before keys in messages.
    """
    known = {**required, **optional}
    for key, value in table.items():
        if key not in known:
            raise BadToml(f"there is no key {inside + key!r}; {nearest(key, known)}")
        if not KINDS[known[key]](value):
            raise BadToml(f"'{inside}{key}' must be {known[key]}, and is {shown_value(value)}")
    absent = [f"'{inside}{key}' ({kind})" for key, kind in required.items() if key not in table]
    if absent:
        raise BadToml(f"the file lacks {', '.join(absent)}")
    return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}


def shown_value(value: Any) -> str:
    """The value, shortened; integers that Python refuses to write out are named by their size."""
    if type(value) is int and not _is_integer(value):
        return "an integer of more than 64 bits"
    if isinstance(value, (list, dict)):
        return f"a {'list' if isinstance(value, list) else 'table'} of {len(value)}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
