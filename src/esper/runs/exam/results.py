"""What an exam has measured so far, line by line as it comes: the same exam, started again, goes on from there."""

from pathlib import Path
from typing import Any

import msgspec

from esper.checked import BadValue, checked
from esper.growth import Fossil
from esper.runs.directory import Unwritable
from esper.telemetry.exam_row import ExamRow
from esper.telemetry.exam_rows import read_bounded

MAX_BYTES = 256_000_000


class RowLine(msgspec.Struct):
    """A row, and the architecture that the episode left."""

    row: ExamRow
    fossils: list[dict[str, Any]]


class TrialLine(msgspec.Struct):
    """What a schedule was worth on a seed of a task."""

    trial: tuple[str, str, int]
    worth: float


class ExamResults:
    """The lines of `rows.jsonl`. Rows are kept with the architecture that the episode left; trials with their worth."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rows: dict[tuple[str, str, int], tuple[ExamRow, tuple[Fossil, ...]]] = {}
        self.trials: dict[tuple[str, str, int], float] = {}
        self.left_out = 0
        """Lines that cannot be read, the last one perhaps because a crash cut it short."""
        text = read_bounded(path, MAX_BYTES) if path.exists() else b""
        self._is_torn = bool(text) and not text.endswith(b"\n")
        for line in text.splitlines():
            try:
                self._take(line)
            except (msgspec.DecodeError, BadValue, TypeError, RecursionError):
                self.left_out += 1

    def add_row(self, row: ExamRow, fossils: tuple[Fossil, ...]) -> None:
        """Keep a row."""
        plain = [{**vars(each), "style": each.style.name} for each in fossils]
        self._append(RowLine(row, plain))
        self.rows[row.task, row.policy, row.seed] = row, fossils

    def add_trial(self, task: str, policy: str, seed: int, worth: float) -> None:
        """Keep what a schedule was worth on a seed."""
        self._append(TrialLine((task, policy, seed), worth))
        self.trials[task, policy, seed] = worth

    def _take(self, line: bytes) -> None:
        record = msgspec.json.decode(line)
        if "trial" in record:
            trial = msgspec.convert(record, TrialLine)
            self.trials[trial.trial] = trial.worth
            return
        found = msgspec.convert(record, RowLine)
        fossils = tuple(checked(Fossil, each) for each in found.fossils)
        self.rows[found.row.task, found.row.policy, found.row.seed] = found.row, fossils

    def _append(self, line: RowLine | TrialLine) -> None:
        try:
            with self._path.open("ab") as file:
                file.write((b"\n" if self._is_torn else b"") + msgspec.json.encode(line) + b"\n")
            self._is_torn = False
        except OSError as error:
            raise Unwritable.because(self._path, error, "; the same command goes on") from error
