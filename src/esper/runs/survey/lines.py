"""What a survey has trained so far, line by line as it comes: the same survey, started again, goes on from there."""

from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import filelock
import msgspec
import numpy as np

from esper.contracts import EsperError
from esper.environment import FAMILY, FIELDS
from esper.runs.directory import Unwritable
from esper.runs.survey.file import read_survey
from esper.runs.survey.surveyor import StructureJob, Surveyed
from esper.runs.survey.table import HostCourse, SurveyRow, SurveyTable

AGAIN = "; the same command goes on"


class SurveyBusy(EsperError):
    """Another process makes this survey."""


class OtherSurvey(EsperError):
    """The lines beside the file are of another survey."""


class SurveyLines:
    """`FILE.lines`, for one process at a time, on top of what the file itself has."""

    def __init__(self, path: Path, family: str) -> None:
        self.rows: list[SurveyRow] = []
        self.courses: list[HostCourse] = []
        self._file, self._path = path, path.with_name(path.name + ".lines")
        self._lock = filelock.FileLock(path.with_name(path.name + ".lock"))
        self._head = {"family": family}
        self._known: set[tuple[str, int, str]] = set()
        self.in_file: set[str] = set()
        """The tasks that the file has already."""

    def __enter__(self) -> Self:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=0)
            with ExitStack() as undone:
                undone.callback(self._lock.release)
                self._read()
                undone.pop_all()
        except filelock.Timeout:
            raise SurveyBusy(f"{self._path} is written by another 'esper survey'; wait for it") from None
        except OSError as error:
            raise Unwritable.because(self._path, error, ", or give another --out") from error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._lock.release()

    def has(self, job: StructureJob) -> bool:
        structure = "" if job.policy == "none" else job.policy
        return (job.task, job.seed, structure) in self._known

    def add(self, played: Surveyed) -> None:
        """Keep what was trained."""
        course = None if played.course is None else {**asdict(played.course)}
        self._append({"row": played.row, "course": course})
        self._keep(played.row, played.course)

    def _keep(self, row: SurveyRow, course: HostCourse | None) -> None:
        if (row.task, row.seed, row.structure) in self._known:  # written to the file just before a crash
            return
        self._known.add((row.task, row.seed, row.structure))
        self.rows.append(row)
        if course is not None:
            self.courses.append(course)

    def table(self, tasks: Collection[str]) -> SurveyTable:
        """What was trained of these tasks."""
        return SurveyTable(
            FIELDS,
            tuple(row for row in self.rows if row.task in tasks),
            tuple(course for course in self.courses if course.task in tasks),
        )

    def discard(self) -> None:
        """All lines are in the file."""
        self._path.unlink(missing_ok=True)

    def _take(self, survey: SurveyTable) -> None:
        """What the file has, if it is of the same family and of today's observations."""
        if survey.fields != FIELDS:
            raise OtherSurvey(f"{self._file} has the observations of another esper; give another --out")
        courses = {(course.task, course.seed): course for course in survey.courses}
        for row in survey.rows:
            if not row.task.startswith(f"{FAMILY}{self._head['family']}/"):
                raise OtherSurvey(f"{self._file} is of another family ({row.task}); give another --out")
            self._keep(row, None if row.structure else courses.get((row.task, row.seed)))
            self.in_file.add(row.task)

    def _read(self) -> None:
        if self._file.exists():
            self._take(read_survey(self._file))
        text = self._path.read_bytes() if self._path.exists() else b""
        head, *lines = text.splitlines() or [b""]
        if not head:
            self._append(self._head)
            return
        if _decoded(head) != self._head:
            raise OtherSurvey(f"{self._path} is of another survey than {self._head}; give another --out, or remove it")
        for line in lines:
            found = _decoded(line)
            if found is not None:  # a crash may have cut the last one short
                course = found["course"]
                self._keep(msgspec.convert(found["row"], SurveyRow), None if course is None else _course(course))

    def _append(self, record: Any) -> None:
        try:
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(record, enc_hook=lambda array: array.tolist()) + b"\n")
        except OSError as error:
            raise Unwritable.because(self._path, error, AGAIN) from error


def _decoded(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except msgspec.DecodeError:
        return None


def _course(plain: dict[str, Any]) -> HostCourse:
    numbers = ("host", "slot_features", "offers", "qualities")
    arrays = {name: np.array(plain[name], dtype=np.float64) for name in numbers}
    names = {"slots": tuple(plain["slots"]), "blueprints": tuple(plain["blueprints"])}
    return HostCourse(**{**plain, **names, **arrays})
