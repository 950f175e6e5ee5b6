"""A survey as one Parquet file: a row for every network; beside the host alone, what it showed."""

import os
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import numpy as np

from esper.contracts import EsperError, ObservationFields
from esper.runs.directory import Unwritable
from esper.runs.survey.table import HostCourse, SurveyRow, SurveyTable

SCHEMA = 1
MAX_BYTES = 256_000_000
COLUMNS = {
    "task": "VARCHAR",
    "seed": "BIGINT",
    "structure": "VARCHAR",
    "rent": "DOUBLE",
    "evaluation_quality": "DOUBLE",
    "quality": "DOUBLE",
    "host_parameters": "BIGINT",
    "parameters": "BIGINT",
}
SHOWN = {"host": "FLOAT[]", "slot_features": "FLOAT[]", "offers": "FLOAT[]", "qualities": "FLOAT[]"}
NAMES = {"slots": "VARCHAR[]", "blueprints": "VARCHAR[]", "traits": "VARCHAR"}


class BadSurvey(EsperError):
    """A file that is no survey, or not one of this version."""


def write_survey(table: SurveyTable, path: Path) -> None:
    """The old file or the new one."""
    courses = {(course.task, course.seed): course for course in table.courses}
    columns: dict[str, list[Any]] = {name: [getattr(row, name) for row in table.rows] for name in COLUMNS}
    shown = [None if row.structure else courses.get((row.task, row.seed)) for row in table.rows]
    columns |= {name: [each and getattr(each, name).ravel().tolist() for each in shown] for name in SHOWN}
    columns |= {name: [each and list(getattr(each, name)) for each in shown] for name in ("slots", "blueprints")}
    columns["traits"] = [each and msgspec.json.encode(each.traits).decode() for each in shown]
    kinds = {**COLUMNS, **SHOWN, **NAMES}
    cast = [f"unnest(${at}::{kinds[name]}[]) AS {name}" for at, name in enumerate(columns, start=1)]
    meta = msgspec.json.encode({"schema": SCHEMA, **vars(table.fields)}).decode().replace("'", "''")
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with duckdb.connect(":memory:") as database:
            database.execute(f"CREATE TABLE survey AS SELECT {', '.join(cast)}", list(columns.values()))
            database.execute(
                f"COPY survey TO '{str(part).replace(chr(39), chr(39) * 2)}' "
                f"(FORMAT parquet, COMPRESSION zstd, KV_METADATA {{esper: '{meta}'}})"
            )
        part.replace(path)
    except (OSError, duckdb.Error) as error:
        raise Unwritable(f"{path} cannot be written ({error}); make room, or give another --out") from error
    finally:
        part.unlink(missing_ok=True)


def read_survey(path: Path) -> SurveyTable:
    """The survey in a file; anything else is refused."""
    if not path.is_file() or path.stat().st_size > MAX_BYTES:
        raise BadSurvey(f"{path} is no file of a survey of up to {MAX_BYTES:,} bytes; give what 'esper survey' wrote")
    try:
        with duckdb.connect(":memory:") as database:
            name = str(path)
            meta = database.execute("SELECT value FROM parquet_kv_metadata($1) WHERE key = 'esper'", [name]).fetchone()
            fields = _fields(path, meta)
            found = database.execute("SELECT * FROM read_parquet($1)", [name])
            header = [column[0] for column in found.description or ()]
            if header != [*COLUMNS, *SHOWN, *NAMES]:
                raise BadSurvey(f"{path} has other columns than a survey; give what 'esper survey' wrote")
            records = [dict(zip(header, values, strict=True)) for values in found.fetchall()]
        rows = tuple(msgspec.convert({name: each[name] for name in COLUMNS}, SurveyRow) for each in records)
        courses = tuple(_course(each, fields) for each in records if each["host"] is not None)
        table = SurveyTable(fields, rows, courses)
        _ = table.tasks  # rows that make no tasks are refused here, not where they are used
    except (duckdb.Error, msgspec.ValidationError, ValueError, TypeError, KeyError, ArithmeticError) as error:
        raise BadSurvey(f"{path} cannot be read as a survey ({error}); give what 'esper survey' wrote") from error
    return table


def _fields(path: Path, meta: Any) -> ObservationFields:
    said = msgspec.json.decode(meta[0]) if meta else {}
    if not isinstance(said, dict) or said.pop("schema", None) != SCHEMA:
        raise BadSurvey(f"{path} is no survey of version {SCHEMA}; give what this 'esper survey' wrote")
    return ObservationFields(**{name: tuple(names) for name, names in said.items()})


def _course(record: dict[str, Any], fields: ObservationFields) -> HostCourse:
    slots, blueprints = tuple(record["slots"]), tuple(record["blueprints"])
    shapes = {
        "host": (-1, len(fields.host)),
        "slot_features": (-1, len(slots), len(fields.slots)),
        "offers": (-1, len(slots), len(blueprints), len(fields.blueprints)),
        "qualities": (-1,),
    }
    arrays = {name: np.array(record[name], dtype=np.float64).reshape(shape) for name, shape in shapes.items()}
    traits = msgspec.json.decode(record["traits"], type=dict[str, str])
    return HostCourse(record["task"], record["seed"], slots, blueprints, traits, **arrays)
