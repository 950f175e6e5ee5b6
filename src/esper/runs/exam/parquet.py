"""The rows of an exam as Parquet, for other people's programs."""

import os
from collections.abc import Sequence
from pathlib import Path

import duckdb

from esper.telemetry.exam_row import ExamRow
from esper.telemetry.exam_rows import ALL_COLUMNS, columns_of, values_of

SQL_TYPES = {str: "VARCHAR", int: "BIGINT", float: "DOUBLE"}


def write_parquet(rows: Sequence[ExamRow], path: Path) -> None:
    """The columns of the CSV file, typed; the old file or the new one. Raises `duckdb.Error` if that fails."""
    names = columns_of(rows)
    columns = [list(column) for column in zip(*(values_of(row, names) for row in rows), strict=True)]
    shown = [f"unnest(${at}::{SQL_TYPES[ALL_COLUMNS[name]]}[]) AS {name}" for at, name in enumerate(names, start=1)]
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with duckdb.connect(":memory:") as database:
            database.execute(f"CREATE TABLE exam AS SELECT {', '.join(shown)}", columns)
            database.table("exam").write_parquet(str(part))
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
