"""What the page says of an exam: how far it is, what every policy is worth so far, and the two planes."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from esper.contracts import UNITS, EsperError
from esper.telemetry import (
    BadExam,
    ExamRow,
    ExamStatus,
    LogReport,
    RunState,
    interval,
    mean,
    read_rows,
    read_status,
    rows_so_far,
    state_now,
)

Part = dict[str, Any]

CONTROL = "none"
MOST_ROWS, SHOWN_DOTS = 200_000, 60
ROUNDED = 5


class ExamFeed:
    """An exam, live or finished, by its directory alone."""

    kind = "exam"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.version = 0
        self._rows: dict[tuple[str, str, int], ExamRow] = {}
        self._report = LogReport()
        self._parts: dict[str, Part] = {}
        self._versions: dict[str, int] = {}
        self._refused: str | None = None

    def refresh(self) -> None:
        """Take in what is new in the directory."""
        known = len(self._rows)
        try:
            self._read()
            self._refused = None
        except EsperError as error:
            self._refused = str(error)
        parts = {"state": self._state()}
        if len(self._rows) > known or "table" not in self._parts:
            parts["table"] = {"groups": [_group(title, rows) for title, rows in self._groups().items()]}
        for name, part in parts.items():
            if self._parts.get(name) != part:
                self.version += 1
                self._parts[name], self._versions[name] = part, self.version

    @property
    def cursor(self) -> str:
        """Where a page is that has everything."""
        return f"exam-{self.version}"

    def news(self, cursor: str = "") -> Part:
        """The parts that changed after the cursor."""
        version = cursor.removeprefix("exam-")
        known = int(version) if version.isdecimal() else -1
        return {name: part for name, part in self._parts.items() if self._versions[name] > known}

    def _read(self) -> None:
        """Rows as they come, or those of a report of which nothing else is left."""
        lines = self.path / "rows.jsonl"
        table = self.path / "exam.csv"
        if lines.is_file():
            for row in rows_so_far(lines, self._report):
                if len(self._rows) < MOST_ROWS:
                    self._rows[row.task, row.policy, row.seed] = row
        elif table.is_file() and not self._rows:
            try:
                self._rows = {(row.task, row.policy, row.seed): row for row in read_rows(table)[:MOST_ROWS]}
            except (OSError, BadExam) as error:
                raise BadExam(str(error)) from None

    def _state(self) -> Part:
        status = read_status(self.path / "status.json", ExamStatus)
        state = state_now(self.path / "status.json", ExamStatus)
        if state is RunState.UNKNOWN and (self.path / "exam.md").is_file():
            state = RunState.FINISHED
        return {
            "state": state.value,
            "refused": self._refused,
            "stage": status.stage if status else None,
            "done": status.done if status else None,
            "total": status.total if status else None,
            "last_event": status.updated if status else None,
            "reason": status.reason if status else None,
            "command": status.command if status else None,
            "rows": len(self._rows),
        }

    def _groups(self) -> dict[str, list[ExamRow]]:
        """The rows of every task, and those of the tasks of a family together."""
        groups: dict[str, list[ExamRow]] = {}
        for row in self._rows.values():
            title = row.task.partition("/")[0] if row.task.startswith("family:") else row.task
            groups.setdefault(title, []).append(row)
        return groups


def _group(title: str, rows: Sequence[ExamRow]) -> Part:
    policies = dict.fromkeys(row.policy for row in rows)
    control = {(row.task, row.seed): row for row in rows if row.policy == CONTROL}
    lines = [_policy(name, [row for row in rows if row.policy == name], control) for name in policies]
    metric = rows[0].judged_by
    return {"title": title, "metric": metric, "is_loss": metric in UNITS, "policies": lines}


def _policy(name: str, rows: Sequence[ExamRow], control: dict[tuple[str, int], ExamRow]) -> Part:
    """Means with 95 % intervals, over tasks where there are several, else over seeds; some dots for the planes."""
    paired = [(row, control[row.task, row.seed]) for row in rows if (row.task, row.seed) in control]
    gains = _by_task([(row.task, row.score - other.score) for row, other in paired]) if name != CONTROL else []
    step = max(1, len(rows) // SHOWN_DOTS)
    return {
        "policy": name,
        "rows": len(rows),
        "quality": _estimate(_by_task([(row.task, row.quality) for row in rows]), most=1.0),
        "told": _estimate(_by_task([(row.task, row.told) for row in rows])),
        "score": _estimate(_by_task([(row.task, row.score) for row in rows])),
        "gain": _estimate(gains) if gains else None,
        "growth": mean([row.growth for row in rows]),
        "parameters": mean([row.parameters for row in rows]),
        "flops": mean([row.training_flops for row in rows]),
        "rollbacks": sum(row.rollbacks for row in rows),
        "dots": [[row.parameters, row.training_flops, round(row.quality, ROUNDED)] for row in rows[::step]],
    }


def _by_task(numbers: Sequence[tuple[str, float]]) -> list[float]:
    """The mean of every task, if there are several; else the numbers."""
    tasks: dict[str, list[float]] = {}
    for task, number in numbers:
        tasks.setdefault(task, []).append(number)
    return [mean(each) for each in tasks.values()] if len(tasks) > 1 else [number for _, number in numbers]


def _estimate(numbers: Sequence[float], most: float = math.inf) -> Part:
    low, high = interval(numbers)
    return {"value": mean(numbers), "low": low, "high": min(high, most), "count": len(numbers)}
