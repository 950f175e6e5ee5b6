"""What an exam has measured so far, line by line as it comes: the same exam, started again, goes on from there."""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import dacite

from esper.contracts import Style, Topology
from esper.growth import Fossil
from esper.runs.directory import Unwritable
from esper.runs.exam.row import ExamRow
from esper.runs.exam.rows_file import BadExam, check_rows

MAX_BYTES = 256_000_000
ENUMS: dict[Any, Any] = {Style: lambda name: Style[name], Topology: Topology}
"""How values of enumerations are read."""


class ExamResults:
    """The lines of `rows.jsonl`. Rows are kept with the architecture that the episode left; trials with their worth."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rows: dict[tuple[str, str, int], tuple[ExamRow, tuple[Fossil, ...]]] = {}
        self.trials: dict[tuple[str, str, int], float] = {}
        for number, line in enumerate(_whole_lines(path), start=1):
            self._take(number, line)

    def add_row(self, row: ExamRow, fossils: tuple[Fossil, ...]) -> None:
        """Keep a row."""
        self._append({"row": asdict(row), "fossils": [_plain(fossil) for fossil in fossils]})
        self.rows[row.task, row.policy, row.seed] = row, fossils

    def add_trial(self, task: str, policy: str, seed: int, worth: float) -> None:
        """Keep what a schedule was worth on a seed."""
        self._append({"trial": [task, policy, seed], "worth": worth})
        self.trials[task, policy, seed] = worth

    def _append(self, record: dict[str, Any]) -> None:
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        except OSError as error:
            raise Unwritable(f"{self._path} cannot be written ({error.strerror}); make room and start again") from error

    def _take(self, number: int, line: str) -> None:
        try:
            record = json.loads(line)
            if "trial" in record:
                task, policy, seed = record["trial"]
                worth = float(record["worth"])
                if not math.isfinite(worth):
                    raise ValueError(f"a trial is worth {worth}")
                self.trials[str(task), str(policy), int(seed)] = worth
                return
            row = dacite.from_dict(ExamRow, record["row"], dacite.Config(strict=True))
            check_rows([row])
            config = dacite.Config(type_hooks=ENUMS, strict=True)
            fossils = tuple(dacite.from_dict(Fossil, each, config) for each in record["fossils"])
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError, dacite.DaciteError, BadExam) as error:
            raise BadExam(f"{self._path}, line {number}: {error}; remove the file to start anew") from None
        self.rows[row.task, row.policy, row.seed] = row, fossils


def _whole_lines(path: Path) -> Iterator[str]:
    """All lines; a last one that was cut short by a crash is cut off the file as well."""
    if not path.exists():
        return
    if path.stat().st_size > MAX_BYTES:
        raise BadExam(f"{path} has more than {MAX_BYTES:,} bytes, which no exam writes; remove it to start anew")
    text = path.read_bytes()
    whole = text.rfind(b"\n") + 1
    if whole < len(text):
        with path.open("r+b") as file:
            file.truncate(whole)
    try:
        yield from text[:whole].decode().splitlines()
    except UnicodeDecodeError:
        raise BadExam(f"{path} is not text; remove it to start anew") from None


def _plain(fossil: Fossil) -> dict[str, Any]:
    return {**asdict(fossil), "style": fossil.style.name, "topology": fossil.topology.value}
