"""What comes from outside, as dataclasses: every key known, every value of its type, nothing converted on the way.

Messages name the key, what is allowed there and what was given; `msgspec` judges the values.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from esper.contracts import EsperError, nearest

MAX_TOML_BYTES = 1_000_000
MAX_INTEGER = 2**63 - 1
WORDS = {int: "an integer", float: "a number", str: "a string", bool: "true or false", dict: "a table"}
ITEMS = {str: "a list of strings", int: "a list of integers", float: "a list of numbers"}

UNIONS = (UnionType, Union)
"""As Python knows them: that of a literal and None is of the older kind."""

Record = TypeVar("Record")


class BadValue(EsperError):
    """A file that cannot be read, or a key or value that is not allowed."""


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a file of at most a megabyte."""
    try:
        if not path.is_file():
            raise BadValue("there is no such file; give the path of a TOML file")
        with path.open("rb") as file:
            raw = file.read(MAX_TOML_BYTES + 1)
    except OSError as error:
        raise BadValue(f"the file cannot be read: {error.strerror}") from error
    if len(raw) > MAX_TOML_BYTES:
        raise BadValue(f"the file is larger than {MAX_TOML_BYTES:,} bytes; give a smaller one")
    try:
        return tomllib.loads(raw.decode())
    except UnicodeDecodeError as error:
        raise BadValue("the file is not UTF-8 text; give a TOML file") from error
    except RecursionError as error:
        raise BadValue("the file is nested too deeply; give one with plain tables") from error
    except ValueError as error:
        raise BadValue(f"the file is not TOML: {error}") from error


def checked(kind: type[Record], table: Mapping[str, Any], defaults: Record | None = None, inside: str = "") -> Record:
    """The dataclass that the table describes; what it leaves out is as in `defaults`, or as the class says.

    `inside` is put before keys in messages.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Plot:
    ...     rows: int
    ...     crop: str = "oats"
    >>> checked(Plot, {"rows": 3})
    Plot(rows=3, crop='oats')
    >>> checked(Plot, {"rows": 3, "corp": "rye"})
    Traceback (most recent call last):
    ...
    esper.checked.BadValue: there is no key 'corp'; did you mean 'crop'?
    """
    known = {each.name: each for each in fields(kind) if each.init}  # type: ignore[arg-type]  # a dataclass
    for key in table:
        if key not in known:
            raise BadValue(f"there is no key {inside + key!r}; {nearest(key, known)}")
    hints = get_type_hints(kind)
    if defaults is None:
        absent = [name for name, each in known.items() if name not in table and _needed(each)]
        if absent:
            lacking = ", ".join(f"'{inside}{name}' ({words_for(hints[name])})" for name in absent)
            raise BadValue(f"it lacks {lacking}")
    given = {key: _value(hints[key], value, inside + key, getattr(defaults, key, None)) for key, value in table.items()}
    rest = {} if defaults is None else {name: getattr(defaults, name) for name in known if name not in table}
    return kind(**rest, **given)


def _needed(each: "Field[Any]") -> bool:
    return each.default is MISSING and each.default_factory is MISSING


def _value(kind: Any, value: Any, key: str, default: Any) -> Any:
    """The value as `kind`: tables are dataclasses, words name choices, all else is for msgspec."""
    if get_origin(kind) in UNIONS:
        if value is None:
            return None
        kind = get_args(kind)[0]
    item = get_args(kind)[0] if get_origin(kind) is tuple else None
    choices = _choices(kind)
    if is_dataclass(kind) and isinstance(kind, type) and isinstance(value, Mapping):
        return checked(kind, value, default, f"{key}.")
    if is_dataclass(item) and isinstance(item, type) and isinstance(value, list):
        return tuple(_value(item, each, f"{key} {number}", None) for number, each in enumerate(value, start=1))
    if choices:
        if not isinstance(value, str) or value.lower() not in choices:
            raise BadValue(f"'{key}' is {shown_value(value)}; {nearest(str(value).lower(), choices)}")
        return choices[value.lower()]
    try:
        if type(value) is int and abs(value) > MAX_INTEGER:
            raise TypeError
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, TypeError):
        raise BadValue(f"'{key}' must be {words_for(kind)}, and is {shown_value(value)}") from None


def _choices(kind: Any) -> dict[str, Any]:
    """What words can name: members of an enumeration, in lower case, or literals."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {member.name.lower(): member for member in kind}
    return {each: each for each in get_args(kind) if isinstance(each, str)}


def words_for(kind: Any) -> str:
    """A type in the words of a message.

    >>> words_for(tuple[str, ...]), words_for(int | None)
    ('a list of strings', 'an integer')
    """
    arguments = get_args(kind)
    if get_origin(kind) is tuple:
        return ITEMS.get(arguments[0], "a list of tables")
    if get_origin(kind) in UNIONS:
        return words_for(arguments[0])
    return "one of " + ", ".join(_choices(kind)) if _choices(kind) else WORDS.get(get_origin(kind) or kind, "a table")


def shown_value(value: Any) -> str:
    """The value, shortened; integers that Python refuses to write out are named by their size."""
    if type(value) is int and abs(value) > MAX_INTEGER:
        return "an integer of more than 64 bits"
    if isinstance(value, (list, dict)):
        return f"a {'list' if isinstance(value, list) else 'table'} of {len(value)}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def require_ranges(
    record: object, ranges: Mapping[str, tuple[float, float]], error: type[EsperError], inside: str = ""
) -> None:
    """Raise `error` unless these numbers of the record are from the lowest to the highest that is allowed.

    `inside` is put before names in messages. NaN is in no range; None is left to whoever reads it.

    >>> from types import SimpleNamespace
    >>> require_ranges(SimpleNamespace(rows=0), {"rows": (1, 9_000)}, BadValue, "plot.")
    Traceback (most recent call last):
    ...
    esper.checked.BadValue: plot.rows = 0; give a value from 1 to 9,000
    """
    for name, (low, high) in ranges.items():
        value = getattr(record, name)
        if value is not None and not low <= value <= high:
            raise error(f"{inside}{name} = {value}; give a value from {low:,} to {high:,}")
