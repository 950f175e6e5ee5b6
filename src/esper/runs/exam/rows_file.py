"""The rows of an exam as files: CSV, which is read back strictly, and Parquet."""

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, fields
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import duckdb

from esper.checked import shown_value
from esper.contracts import EsperError
from esper.runs.exam.row import ExamRow

FIELDS: dict[str, type] = {field.name: field.type for field in fields(ExamRow) if isinstance(field.type, type)}
COLUMNS = (*FIELDS, "growth", "score")
SQL_TYPES = {str: "VARCHAR", int: "BIGINT", float: "DOUBLE"}
PATTERNS = {int: re.compile(r"-?[0-9]{1,19}"), float: re.compile(r"-?[0-9]{1,400}(\.[0-9]{1,400})?(e[+-]?[0-9]{1,3})?")}
"""How numbers are written: narrower than what Python would take."""
KINDS = {str: "text", int: "an integer", float: "a number"}
TYPES: dict[type, Any] = {str: str, int: Integral, float: Real}
"""What a field takes: the numbers of numpy as well."""

FRACTIONS = {"accuracy", "evaluation_accuracy", "area"}
COUNTS_FROM_ONE = {"host_parameters", "parameters"}
LARGEST = 2**63 - 1
"""What an integer of a Parquet file can hold."""
MAX_NAME = 4_096
"""Characters of the longest path, and so of the longest name."""
MAX_BYTES = 32_000_000
"""About 200,000 rows."""


class BadExam(EsperError):
    """Rows that no exam can have made, or a file that does not hold such rows."""


def check_rows(rows: Sequence[ExamRow]) -> None:
    """Refuse rows that no exam can have made: values out of range, or one policy twice on one seed of a task."""
    if not rows:
        raise BadExam("there are no rows; an exam has one for every policy and seed")
    for row in rows:
        for name, kind in FIELDS.items():
            wrong = _mistake(name, kind, getattr(row, name))
            if wrong:
                raise BadExam(
                    f"'{name}' {wrong} (seed {row.seed!r}, policy {shown_value(row.policy)}, "
                    f"task {shown_value(row.task)})"
                )
    (task, policy, seed), times = Counter((row.task, row.policy, row.seed) for row in rows).most_common(1)[0]
    if times > 1:
        raise BadExam(f"policy '{policy}' has {times} rows for seed {seed} of task '{task}'; there must be one")


def _mistake(name: str, kind: type, value: Any) -> str:
    """What is wrong with the value of a field; empty if nothing is."""
    if isinstance(value, bool) or not isinstance(value, TYPES[kind]):
        return f"must be {KINDS[kind]}, and is {shown_value(value)}"
    if kind is str:
        return "" if name == "kept" and not value else _mistake_of_name(value)
    low = 1 if name in COUNTS_FROM_ONE else 0
    high = 1 if name in FRACTIONS else LARGEST if kind is int else math.inf
    if not low <= value <= high or math.isinf(value):
        allowed = f"from {low} to {high}" if high < math.inf else "finite and at least 0"
        return f"must be {allowed}, and is {shown_value(value)}"
    return ""


def _mistake_of_name(name: str) -> str:
    if not name or len(name) > MAX_NAME:
        return f"must have 1 to {MAX_NAME:,} characters, and has {len(name):,}"
    try:
        name.encode()
    except UnicodeEncodeError:
        return f"must be text that UTF-8 can hold, and is {shown_value(name)}"
    return ""


def csv_text(rows: Sequence[ExamRow], rent: float) -> str:
    """One line per row: all fields, then growth and score. Numbers read back as they were, to the last bit.

    Every name is in quotes: whether one needs them, the writers of Python decide differently from its readers.
    """
    text = io.StringIO(newline="")
    text.write(",".join(COLUMNS) + "\n")
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerows(_cells(row, rent) for row in rows)
    return text.getvalue()


def _cells(row: ExamRow, rent: float) -> list[str | int | float]:
    """Whole numbers in a field for fractions count as fractions, so that they are written alike."""
    plain = [kind(value) for kind, value in zip(FIELDS.values(), astuple(row), strict=True)]
    return [*plain, row.growth, row.score(rent)]


def write_parquet(rows: Sequence[ExamRow], rent: float, path: Path) -> None:
    """The columns of the CSV file, typed. Raises `duckdb.Error` where the file cannot be written."""
    kinds = {**FIELDS, "growth": float, "score": float}
    columns = [list(column) for column in zip(*(_cells(row, rent) for row in rows), strict=True)]
    shown = (f"unnest(${at}::{SQL_TYPES[kind]}[]) AS {name}" for at, (name, kind) in enumerate(kinds.items(), start=1))
    with duckdb.connect(":memory:") as database:
        database.execute(f"CREATE TABLE exam AS SELECT {', '.join(shown)}", columns)
        database.table("exam").write_parquet(str(path))


def read_rows(path: Path) -> list[ExamRow]:
    """The rows of an `exam.csv`, exactly as they were written; anything else in the file is refused."""
    reader = csv.reader(io.StringIO(_text(path), newline=""), strict=True)
    rows: list[ExamRow] = []
    try:
        _check_header(next(reader, []), path)
        for cells in reader:
            rows.append(_row(cells, f"{path}, line {reader.line_num}"))
    except csv.Error as error:
        raise BadExam(f"{path}, line {reader.line_num}: this is not CSV: {error}") from error
    try:
        check_rows(rows)
    except BadExam as error:
        raise BadExam(f"{path}: {error}") from error
    return rows


def _text(path: Path) -> str:
    try:
        if not path.is_file():
            raise BadExam(f"{path}: there is no such file; give the exam.csv of an exam")
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise BadExam(f"{path}: the file cannot be read: {error.strerror}") from error
    if len(raw) > MAX_BYTES:
        raise BadExam(f"{path}: the file is larger than {MAX_BYTES:,} bytes, more than any exam writes")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise BadExam(f"{path}: the file is not UTF-8 text; give the exam.csv of an exam") from error


def _check_header(header: list[str], path: Path) -> None:
    if tuple(header) == COLUMNS:
        return
    absent = [name for name in COLUMNS if name not in header]
    odd = [name for name in header if name not in COLUMNS]
    wrong = (["it lacks " + ", ".join(absent)] if absent else []) + (
        [f"it has {shown_value(odd[0])}" + (f" and {len(odd) - 1} more" if odd[1:] else "")] if odd else []
    )
    raise BadExam(
        f"{path}: the columns are not those of an exam: {'; '.join(wrong) or 'they are repeated or in another order'}. "
        f"They must be {', '.join(COLUMNS)}"
    )


def _row(cells: list[str], place: str) -> ExamRow:
    if len(cells) != len(COLUMNS):
        raise BadExam(f"{place}: there are {len(cells)} values for {len(COLUMNS)} columns")
    kinds = [*FIELDS.values(), float, float]
    values: list[Any] = [_value(*each, place) for each in zip(cells, COLUMNS, kinds, strict=True)]
    *own, growth, score = values
    row = ExamRow(*own)
    try:
        is_same = math.isclose(growth, row.growth, rel_tol=1e-9)
    except (ZeroDivisionError, OverflowError):
        is_same = True  # the check of the parameters says it better
    if not is_same:
        raise BadExam(f"{place}: 'growth' must be parameters / host_parameters = {row.growth!r}, and is {growth!r}")
    if not math.isfinite(score):
        raise BadExam(f"{place}: 'score' must be finite, and is {score!r}")
    return row


def _value(cell: str, name: str, kind: type, place: str) -> str | int | float:
    if kind is str:
        return cell
    if not PATTERNS[kind].fullmatch(cell):
        raise BadExam(f"{place}: '{name}' must be {KINDS[kind]}, and is {shown_value(cell)}")
    return int(cell) if kind is int else float(cell)
