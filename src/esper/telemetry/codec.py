"""One annotation, three readings: how a value is written as JSON, how it is read back, and its type in SQL.

Enum members go by name, tuples are lists. JSON has no NaN and no infinities, and null means None, so these floats are
the strings "NaN", "Infinity" and "-Infinity", which SQL takes as numbers too.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from operator import index
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
INTEGERS = range(-(2**63), 2**63)
"""What SQL can hold as BIGINT."""


class Misfit(TypeError):
    """A value is not of the type that its annotation names."""


@dataclass(frozen=True)
class Codec:
    """What becomes of the values of one annotation."""

    write: Callable[[Any], Any]
    """To what JSON can say. Raises if the value is not of its type: what cannot be read again is not written."""
    read: Callable[[Any], Any]
    """From parsed JSON; nothing is trusted, nothing is converted from another type."""
    sql: str


def _write_float(value: Any) -> float | str:
    number = float(value)
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _read_float(value: Any) -> float:
    if type(value) is float:
        return value
    return float(value) if type(value) is int else NOT_FINITE[value]


def _write_int(value: Any) -> int:
    return _in_range(int(index(value)))


def _read_int(value: Any) -> int:
    if type(value) is not int:
        raise Misfit(f"{type(value).__name__} for an integer")
    return _in_range(value)


def _in_range(number: int) -> int:
    if number not in INTEGERS:
        raise Misfit("an integer of more than 64 bits")
    return number


def _write_str(value: Any) -> str:
    if not isinstance(value, str):
        raise Misfit(f"{type(value).__name__} for a string")
    return value


def _read_str(value: Any) -> str:
    if type(value) is not str:
        raise Misfit(f"{type(value).__name__} for a string")
    if not value.isascii():
        value.encode()  # raises for halves of surrogate pairs, which no terminal or database takes
    return value


def _write_bool(value: Any) -> bool:
    if value not in (True, False):
        raise Misfit(f"{type(value).__name__} for true or false")
    return bool(value)


def _read_bool(value: Any) -> bool:
    if type(value) is not bool:
        raise Misfit(f"{type(value).__name__} for true or false")
    return value


LEAVES: Mapping[type, Codec] = {
    int: Codec(_write_int, _read_int, "BIGINT"),
    float: Codec(_write_float, _read_float, "DOUBLE"),
    str: Codec(_write_str, _read_str, "VARCHAR"),
    bool: Codec(_write_bool, _read_bool, "BOOLEAN"),
}


def codec_of(annotation: Any) -> Codec:
    """The codec of an annotation. Others than these are refused: an event holds no untyped payload.

    >>> codec_of(tuple[float, ...]).write((1, math.inf)), codec_of(dict[str, int | None]).sql
    ([1.0, 'Infinity'], 'MAP(VARCHAR, BIGINT)')
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in LEAVES:
        return LEAVES[annotation]
    if origin is UnionType and len(arguments) == 2 and arguments[1] is NoneType:
        return _optional(codec_of(arguments[0]))
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _listed(codec_of(arguments[0]))
    if origin is dict and arguments[0] is str:
        return _mapped(codec_of(arguments[1]))
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return Codec(lambda member: annotation(member).name, lambda name: annotation[name], "VARCHAR")
    if isinstance(annotation, type) and is_dataclass(annotation):
        return _record(annotation)
    raise TypeError(f"{annotation} cannot be part of an event; use numbers, text, enums, tuples, dicts or dataclasses")


def codecs_of(record: type[Any]) -> dict[str, Codec]:
    """The codec of every field of a dataclass, in order."""
    hints = get_type_hints(record)
    return {each.name: codec_of(hints[each.name]) for each in fields(record)}


def _optional(inner: Codec) -> Codec:
    write, read = inner.write, inner.read
    return Codec(
        lambda value: None if value is None else write(value),
        lambda value: None if value is None else read(value),
        inner.sql,
    )


def _listed(inner: Codec) -> Codec:
    write, read = inner.write, inner.read

    def read_all(values: Any) -> tuple[Any, ...]:
        if type(values) is not list:
            raise Misfit(f"{type(values).__name__} for a list")
        return tuple(map(read, values))

    return Codec(lambda values: list(map(write, values)), read_all, f"{inner.sql}[]")


def _mapped(inner: Codec) -> Codec:
    write, read = inner.write, inner.read

    def write_all(values: Any) -> dict[str, Any]:
        return {_write_str(key): write(value) for key, value in values.items()}

    def read_all(values: Any) -> dict[str, Any]:
        if type(values) is not dict:
            raise Misfit(f"{type(values).__name__} for a map")
        return {_read_str(key): read(value) for key, value in values.items()}

    return Codec(write_all, read_all, f"MAP(VARCHAR, {inner.sql})")


def _record(record: type[Any]) -> Codec:
    codecs = codecs_of(record)
    writers = [(name, codec.write) for name, codec in codecs.items()]
    readers = [(name, codec.read) for name, codec in codecs.items()]

    def write_all(value: Any) -> dict[str, Any]:
        return {name: write(getattr(value, name)) for name, write in writers}

    def read_all(values: Any) -> Any:
        if type(values) is not dict or len(values) != len(readers):
            raise Misfit(f"not the fields of {record.__name__}")
        return record(**{name: read(values[name]) for name, read in readers})

    columns = ", ".join(f'"{name}" {codec.sql}' for name, codec in codecs.items())
    return Codec(write_all, read_all, f"STRUCT({columns})")
