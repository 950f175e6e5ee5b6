"""The rows of an exam as files: line by line as they come, and CSV, which is read back strictly."""

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import get_type_hints

import msgspec

from esper.checked import shown_value
from esper.contracts import EsperError
from esper.telemetry.exam_row import ExamRow
from esper.telemetry.log import LogReport, whole_lines

FIELDS: dict[str, type] = get_type_hints(ExamRow)
ALL_COLUMNS: dict[str, type] = {**FIELDS, "growth": float, "score": float}
COLUMNS = [name for name in ALL_COLUMNS if name != "token_size"]
"""The usual ones; the other is left out of files where every token counts as one."""
MAX_BYTES = 32_000_000
"""About 200,000 rows."""


class BadExam(EsperError):
    """Rows that no exam can have made, or a file that does not hold such rows."""


class ReadRow(msgspec.Struct):
    """A line of `rows.jsonl` that has a row; what else it has is not read here."""

    row: ExamRow


_LINE = msgspec.json.Decoder(ReadRow)


def rows_so_far(path: Path, report: LogReport) -> Iterator[ExamRow]:
    """The rows of `rows.jsonl` beyond those that `report` has; lines that hold none are passed over."""
    for line in whole_lines(path, report):
        with suppress(msgspec.DecodeError, RecursionError):
            yield _LINE.decode(line).row


def check_rows(rows: Sequence[ExamRow]) -> None:
    """Refuse rows that no exam can have made: values out of range, or one policy twice on one seed of a task."""
    if not rows:
        raise BadExam("there are no rows; an exam has one for every policy and seed")
    for number, row in enumerate(rows, start=1):
        try:
            msgspec.convert(asdict(row), ExamRow)
        except msgspec.ValidationError as error:
            raise BadExam(f"row {number} cannot be of an exam: {error}") from None
    (task, policy, seed), times = Counter((row.task, row.policy, row.seed) for row in rows).most_common(1)[0]
    if times > 1:
        raise BadExam(f"policy '{policy}' has {times} rows for seed {seed} of task '{task}'; there must be one")


def csv_text(rows: Sequence[ExamRow]) -> str:
    """One line per row: all fields, then growth and score. Numbers read back as they were, to the last bit.

    Every name is in quotes: whether one needs them, the writers of Python decide differently from its readers.
    """
    text = io.StringIO(newline="")
    columns = columns_of(rows)
    text.write(",".join(columns) + "\n")
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerows(values_of(row, columns) for row in rows)
    return text.getvalue()


def columns_of(rows: Sequence[ExamRow]) -> list[str]:
    """Those that a file of these rows has."""
    return COLUMNS if all(row.token_size == 1.0 for row in rows) else list(ALL_COLUMNS)


def values_of(row: ExamRow, columns: Sequence[str]) -> list[str | int | float]:
    """In these columns; whole numbers in a field for fractions become fractions, so that all look alike."""
    return [ALL_COLUMNS[name](getattr(row, name)) for name in columns]


def read_rows(path: Path) -> list[ExamRow]:
    """The rows of an `exam.csv`, exactly as they were written; anything else in the file is refused."""
    try:
        text = read_bounded(path, MAX_BYTES).decode()
    except UnicodeDecodeError:
        raise BadExam(f"{path} is not UTF-8 text; give the exam.csv of an exam") from None
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = next(reader, [])
        if header not in (COLUMNS, list(ALL_COLUMNS)):
            raise BadExam(f"the columns are {shown_value(','.join(header))}; they must be {','.join(COLUMNS)}")
        rows = [_row(cells, header) for cells in reader]
    except (ValueError, csv.Error, BadExam) as error:
        raise BadExam(f"{path}, line {reader.line_num}: {error}; give the exam.csv of an exam") from None
    try:
        check_rows(rows)
    except BadExam as error:
        raise BadExam(f"{path}: {error}") from None
    return rows


def read_bounded(path: Path, limit: int) -> bytes:
    """The whole file, if it has no more than so many bytes."""
    if not path.is_file():
        raise BadExam(f"{path}: there is no such file; give the exam.csv of an exam")
    if path.stat().st_size > limit:
        raise BadExam(f"{path} is larger than {limit:,} bytes, more than any exam writes; move it away")
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadExam(f"{path} cannot be read ({error.strerror}); give one that you may read") from None


def _row(cells: list[str], columns: list[str]) -> ExamRow:
    """The row, if writing it again would give the same cells."""
    if len(cells) != len(columns):
        raise BadExam(f"there are {len(cells)} values for {len(columns)} columns")
    given = dict(zip(columns, cells, strict=True))
    row = msgspec.convert({name: given[name] for name in FIELDS if name in given}, ExamRow, strict=False)
    for (name, cell), value in zip(given.items(), values_of(row, columns), strict=True):
        if cell != str(value):
            raise BadExam(f"'{name}' must be {value}, and is {shown_value(cell)}")
    return row
