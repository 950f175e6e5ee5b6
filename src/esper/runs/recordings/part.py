"""A part of a recording: some episodes in one Parquet file, a row for each. The old file or the new one."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from esper.runs.directory import Unwritable
from esper.runs.recordings.row import facts_of, numbers_of, trajectory_of
from esper.runs.recordings.schema import COLUMNS, FACTS, NUMBERS, BadRecording, RecordingSchema
from esper.runs.trajectory import Trajectory

EPISODES_PER_PART = 128
NUMBERS_PER_PART = 20_000_000
"""Episodes of large bodies make smaller parts."""
MOST_EPISODES = 4_096
MOST_BYTES = 256_000_000
"""Of a file."""
MOST_NUMBERS = 100_000_000
"""In a file, which can be far smaller than what it unpacks to."""
MEMORY: dict[str, str | bool | int | float | list[str]] = {"memory_limit": "1GB", "threads": 1, "temp_directory": ""}
"""One thread, because more of them write the same rows in other bytes."""


def write_part(path: Path, trajectories: Sequence[Trajectory], schema: RecordingSchema) -> None:
    """The same episodes give the same bytes."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    meta = _quoted(schema.to_json())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with duckdb.connect(":memory:", config=MEMORY) as database:
            _fill(database, trajectories)
            joins = " ".join(f"LEFT JOIN {name} USING (row)" for name in NUMBERS)
            database.execute(
                f"COPY (SELECT {', '.join(COLUMNS)} FROM facts {joins} ORDER BY row) TO {_quoted(str(part))} "
                f"(FORMAT parquet, COMPRESSION zstd, KV_METADATA {{esper: {meta}}})"
            )
        part.replace(path)
    except (OSError, duckdb.IOException) as error:
        raise Unwritable(f"{path} cannot be written ({error}); make room, or give another place") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _fill(database: duckdb.DuckDBPyConnection, trajectories: Sequence[Trajectory]) -> None:
    """A table of facts, and one for every column of numbers."""
    facts = [facts_of(each) for each in trajectories]
    shown = [f"unnest(${at}::{kind}[]) AS {name}" for at, (name, kind) in enumerate(FACTS.items(), start=1)]
    columns = [[each[name] for each in facts] for name in FACTS]
    database.execute(f"CREATE TABLE facts AS SELECT {', '.join(shown)}, unnest(range({len(facts)})) AS row", columns)
    rows = [numbers_of(each) for each in trajectories]
    for name, kind in NUMBERS.items():
        arrays = [row.get(name, np.empty(0, kind)) for row in rows]
        place = np.repeat(np.arange(len(arrays)), [len(each) for each in arrays])
        database.register("flat", {"row": place, "number": np.concatenate(arrays)})
        database.execute(f"CREATE TABLE {name} AS SELECT row, list(number) AS {name} FROM flat GROUP BY row")


def read_part(path: Path) -> tuple[RecordingSchema, list[Trajectory]]:
    """What is in a file, all of it. Raises `BadRecording`, which names the file and the row, for anything else."""
    try:
        with duckdb.connect(":memory:", config=MEMORY) as database:
            schema = _opened(database, path)
            found = database.execute("SELECT * FROM read_parquet($1)", [_literal(path)]).fetchnumpy()
    except (duckdb.Error, ArithmeticError, ValueError, OSError) as error:
        said = str(error).splitlines()[0]
        raise BadRecording(f"{path} cannot be read as a recording ({said}); {CURE}") from error
    except BadRecording as error:
        raise BadRecording(f"{path} {error}") from None
    return schema, [_judged(path, number, row, schema) for number, row in enumerate(_rows(found))]


CURE = "remove it, and record it again"


def _opened(database: duckdb.DuckDBPyConnection, path: Path) -> RecordingSchema:
    """What the file says of itself, before anything is unpacked."""
    if not path.is_file() or path.stat().st_size > MOST_BYTES:
        raise BadRecording(f"is no file of up to {MOST_BYTES:,} bytes; give what 'esper record' wrote")
    name = _literal(path)
    meta = database.execute("SELECT value FROM parquet_kv_metadata($1) WHERE key = 'esper'", [name]).fetchone()
    schema = RecordingSchema.from_json(None if meta is None else meta[0])
    columns = {each[0]: each[1] for each in database.execute("DESCRIBE FROM read_parquet($1)", [name]).fetchall()}
    if columns != COLUMNS:
        wrong = sorted(name for name in {**COLUMNS, **columns} if columns.get(name) != COLUMNS.get(name))
        raise BadRecording(f"has other columns than a recording ({', '.join(wrong[:5])}); record it again")
    rows, numbers = database.execute(
        "SELECT (SELECT sum(num_rows) FROM parquet_file_metadata($1)), sum(num_values) FROM parquet_metadata($1)",
        [name],
    ).fetchone() or (0, 0)
    if not 1 <= (rows or 0) <= MOST_EPISODES:
        raise BadRecording(f"has {rows or 0:,} rows; a file of a recording has 1 to {MOST_EPISODES:,} episodes")
    if numbers > MOST_NUMBERS:
        raise BadRecording(f"unpacks to {numbers:,} numbers; a file of a recording has up to {MOST_NUMBERS:,}")
    return schema


def _rows(columns: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Row by row, with None for what is missing."""
    plain = {
        name: column.tolist() if name in FACTS else [None if each is np.ma.masked else each for each in column]
        for name, column in columns.items()
    }
    for values in zip(*plain.values(), strict=True):
        yield dict(zip(plain, values, strict=True))


def _judged(path: Path, number: int, row: dict[str, Any], schema: RecordingSchema) -> Trajectory:
    try:
        return trajectory_of(row, schema)
    except (BadRecording, ValueError, TypeError, ArithmeticError) as error:
        raise BadRecording(f"{path}: row {number}: {error}; {CURE}") from None


def _literal(path: Path) -> str:
    """The path where a pattern could stand."""
    return "".join(f"[{each}]" if each in "*?[" else each for each in str(path))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
