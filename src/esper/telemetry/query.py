"""SQL over the log of a run. Nothing but that log can be read, and nothing can be written, whatever the SQL says."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from esper.contracts import EsperError, nearest
from esper.telemetry.log import END_OF_TIME, LogReport, plain, refuse_newer, whole_lines
from esper.telemetry.views import ARRANGE, EVENT_VIEWS, PREPARE, TAKE_LINES, VIEWS

LOG_FILE = "events.jsonl"
BATCH_LINES, BATCH_BYTES = 20_000, 16_000_000
"""What is handed to the database at once."""
MAX_BRACKETS = 1_000
"""A line with more is looked at for how deeply it is nested: the database's own functions do not bear everything."""
SPARE_MEGABYTES = 2_000
"""Memory that a query may use, beside what the log takes."""
SHUT: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": False,
    "python_enable_replacements": False,
    "temp_directory": "",
    "lock_configuration": True,
}
"""No files, no network, no variables of this process, no way to change that."""
READS = {duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN, duckdb.StatementType.MULTI}
"""Statements that only read; MULTI is PIVOT."""
ENCODER = msgspec.json.Encoder(enc_hook=str, decimal_format="number")
ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})

Row = tuple[Any, ...]


class BadQuery(EsperError):
    """The SQL cannot be answered."""


def open_run(directory: Path) -> duckdb.DuckDBPyConnection:
    """A database in memory with the views on a run's events as they are now. Its times are UTC.

    A run without events gives empty views; lines that cannot be read are left out.
    """
    path = directory / LOG_FILE
    megabytes = path.stat().st_size // 1_000_000 if path.is_file() else 0
    connection = duckdb.connect(":memory:", config=SHUT | {"memory_limit": f"{SPARE_MEGABYTES + 4 * megabytes}MB"})
    for statement in PREPARE:
        connection.execute(statement)
    for numbers, lines in _batches(path):
        connection.execute(TAKE_LINES, [numbers, lines])
    (schema,) = connection.execute("SELECT coalesce(max(schema), 0) FROM log.read").fetchall()[0]
    refuse_newer(schema, path)
    connection.execute(ARRANGE, [END_OF_TIME])
    connection.execute("DROP TABLE log.read")
    for name, statement in (EVENT_VIEWS | VIEWS).items():
        connection.execute(f"CREATE VIEW {name} AS {statement}")
    return connection


def _batches(path: Path) -> Iterator[tuple[list[int], list[str]]]:
    """Lines of a file with their numbers, a bounded amount at a time."""
    report = LogReport()
    numbers: list[int] = []
    lines: list[str] = []
    first = 0
    for line in whole_lines(path, report):
        numbers.append(report.lines)
        lines.append(_text(line))
        if len(lines) >= BATCH_LINES or report.offset - first >= BATCH_BYTES:
            yield numbers, lines
            numbers, lines, first = [], [], report.offset
    yield numbers, lines


def _text(line: bytes) -> str:
    """The line, or nothing if it is no text or nested too deeply."""
    try:
        text = line.decode()
        if line.count(b"[") + line.count(b"{") > MAX_BRACKETS:
            json.loads(text)
        return text
    except (ValueError, RecursionError):
        return ""


def query(directory: Path, sql: str) -> tuple[list[str], list[Row]]:
    """The names of the columns and the rows that answer one SELECT."""
    with open_run(directory) as connection:
        try:
            sql.encode()  # the database takes no halves of surrogate pairs, and does not say so
            statements = connection.extract_statements(sql)
        except (duckdb.Error, UnicodeError) as error:
            raise BadQuery(_explained(error)) from error
        if len(statements) != 1:
            raise BadQuery(f"{len(statements)} statements were given; give one SELECT. {_views()}")
        if statements[0].type not in READS:
            raise BadQuery(
                f"{statements[0].type.name} is not for reading; give a SELECT, DESCRIBE, SUMMARIZE or SHOW. {_views()}"
            )
        try:
            answer = connection.execute(statements[0])
            return [name for name, *_ in answer.description or ()], answer.fetchall()
        except (duckdb.Error, ValueError, OverflowError) as error:
            raise BadQuery(_explained(error)) from error


def as_tsv(columns: Sequence[str], rows: Sequence[Row]) -> str:
    r"""One line for the names of the columns and one per row, cells between tabs; every digit is there.

    In text, \\, \t, \n and \r stand for the characters of these names. What is no text is as in JSON; NULL is empty.

    >>> as_tsv(["share", "said", "lost"], [(0.1 + 0.2, "two\nlines", None)])
    'share\tsaid\tlost\n0.30000000000000004\ttwo\\nlines\t'
    """
    return "\n".join("\t".join(map(_cell, row)) for row in [columns, *rows])


def _cell(value: Any) -> str:
    if value is None:
        return ""
    said = _json(plain(value))
    return (json.loads(said) if said.startswith('"') else said).translate(ESCAPES)


def as_json(columns: Sequence[str], rows: Sequence[Row]) -> str:
    """A list of objects, one per line. Times are ISO 8601, numbers that are not finite are strings, as in the log.

    >>> as_json(["round", "kl"], [(3, float("nan"))])
    '[\\n{"round":3,"kl":"NaN"}\\n]'
    """
    names = [name if name not in columns[:at] else f"{name}_{at}" for at, name in enumerate(columns)]
    return "[\n" + ",\n".join(_json(dict(zip(names, plain(row), strict=True))) for row in rows) + "\n]"


def _json(value: Any) -> str:
    return ENCODER.encode(value).decode()


def _views() -> str:
    return f"Views: {', '.join(VIEWS)}, and one of each event's name."


def _explained(error: Exception) -> str:
    """What the database says, with our names instead of its guesses."""
    message = str(error).strip()
    if "pytz" in message:
        return "times with a zone cannot be shown; write ::TIMESTAMP behind them, all times are UTC"
    unknown = re.match(r"Catalog Error: Table with name (\S+) does not exist", message)
    if unknown:
        return f"there is no view '{unknown[1]}'; {nearest(unknown[1], [*VIEWS, *EVENT_VIEWS])} {_views()}"
    return f"{message}\n{_views()}"
