"""The log of a run: one event per line, only ever appended to, readable after any interruption and while it grows.

    {"schema":2,"time":1767225600.25,"round":3,"episode":17,"event":"RolledBack","data":{"epoch":4,"reason":"..."}}

A line that was cut off by a crash is lost alone. Readers leave damaged and unknown lines out and count them.
"""

import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from esper.contracts import EsperError, Event
from esper.telemetry.codec import LEAVES, Codec, codec_of
from esper.telemetry.events import EVENTS, RunResumed, RunStarted

SCHEMA = 2
"""Of the lines. Changing, adding or removing a field of any event makes another one."""
MAX_LINE_BYTES = 4_000_000
"""A longer line is damaged; no more of it than this is ever held."""
END_OF_TIME = 253_402_300_800.0
"""Unix seconds of the year 10000, which calendars do not reach."""
MAX_NAMES = 5


class LogUnwritable(EsperError):
    """The log cannot be written."""


class LogUnreadable(EsperError):
    """The log cannot be read."""


class NewerLog(EsperError):
    """The log was written by a newer version of this program."""


@dataclass(frozen=True)
class Record:
    """An event with its time and place."""

    time: float
    """When it was written, in Unix seconds."""
    round: int
    episode: int | None
    """The seed of the episode; None for what belongs to no episode."""
    event: Event


@dataclass
class LogReport:
    """What a reader met. Give it to `read_log` again to read on from where it stopped."""

    lines: int = 0
    damaged: int = 0
    unknown: int = 0
    """Events of types that this version does not know."""
    unknown_names: list[str] = field(default_factory=list)
    """The first few of these."""
    older: int = 0
    """Lines of an older schema."""
    offset: int = 0
    """Bytes of the file that were read: whole lines."""

    def warnings(self) -> tuple[str, ...]:
        """What a user should know, in sentences."""
        names = ", ".join(self.unknown_names) + (", ..." if len(self.unknown_names) == MAX_NAMES else "")
        told = {
            f"{self.damaged} of {self.lines} lines are damaged and were left out": self.damaged,
            f"{self.unknown} of {self.lines} events are of unknown types ({names}) and were left out": self.unknown,
            f"{self.older} of {self.lines} lines were written by an older version, with another schema": self.older,
        }
        return tuple(text for text, count in told.items() if count)


class EventLog:
    """Appends events to a file. What a call has written, a crash of this process cannot take back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        try:
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            size = os.fstat(self._file).st_size
            self._torn = size > 0 and os.pread(self._file, 1, size - 1) != b"\n"
        except OSError as error:
            self.close()
            raise self._unwritable(error.strerror) from error

    def write(self, event: Event, round: int, episode: int | None = None) -> None:
        """Append one event."""
        self.write_all((event,), round, episode)

    def write_all(self, events: Iterable[Event], round: int, episode: int | None = None) -> None:
        """Append events of one episode or round in one go; they get the same time."""
        now = time.time()
        lines = "".join(line_of(Record(now, round, episode, event)) for event in events)
        if lines:
            self._append(lines.encode(errors="replace"))

    @property
    def size(self) -> int:
        """Bytes in the file, with what others have written."""
        return os.fstat(self._opened()).st_size

    def sync(self) -> None:
        """Wait until everything is on the disk, safe from a loss of power."""
        try:
            os.fsync(self._opened())
        except OSError as error:
            raise self._unwritable(error.strerror) from error

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _append(self, lines: bytes) -> None:
        """One write, and more only if the system takes less. A line that was cut off before is ended first."""
        left = memoryview(b"\n" + lines if self._torn else lines)
        file = self._opened()
        self._torn = True
        try:
            while left:
                left = left[os.write(file, left) :]
        except OSError as error:
            raise self._unwritable(error.strerror) from error
        self._torn = False

    def _opened(self) -> int:
        if self._file is None:
            raise self._unwritable("the log is closed")
        return self._file

    def _unwritable(self, reason: str | None) -> LogUnwritable:
        return LogUnwritable(
            f"{self.path} cannot be written: {reason}; make room or mend its rights, then resume the run"
        )


class NullLog:
    """Takes events and forgets them."""

    size = 0

    def write(self, event: Event, round: int, episode: int | None = None) -> None:
        pass

    def write_all(self, events: Iterable[Event], round: int, episode: int | None = None) -> None:
        pass

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass


_CODECS: dict[type[Event], Codec] = {kind: codec_of(kind) for kind in EVENTS.values()}
_ENCODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")).encode
_ROUND = codec_of(int)
_EPISODE = codec_of(int | None)


def line_of(record: Record) -> str:
    """The line that says it, with its end."""
    kind = type(record.event)
    if kind not in _CODECS:
        raise TypeError(f"{kind.__name__} is not a known event; define it in esper.telemetry.events")
    envelope = {
        "schema": SCHEMA,
        "time": round(record.time, 3),
        "round": _ROUND.write(record.round),
        "episode": _EPISODE.write(record.episode),
        "event": kind.__name__,
        "data": _CODECS[kind].write(record.event),
    }
    return f"{_ENCODE(envelope)}\n"


def read_log(path: Path, report: LogReport | None = None) -> Iterator[Record]:
    """The events of a log in their order. A last line without end is still being written, and left for later.

    A file that is not there holds nothing. What was left out is counted in `report`.
    """
    report = LogReport() if report is None else report
    for line in whole_lines(path, report):
        record = _read(line, path, report)
        if record is not None:
            yield record


def whole_lines(path: Path, report: LogReport) -> Iterator[bytes]:
    """The lines of a file that are complete and not too long, from `report.offset` on."""
    if not path.exists():
        return
    if not path.is_file():
        raise LogUnreadable(f"{path} is not a file; a run keeps its events in a file of that name")
    try:
        with path.open("rb") as file:
            file.seek(report.offset)
            while line := file.readline(MAX_LINE_BYTES):
                length, whole = len(line), line.endswith(b"\n")
                while not whole and (more := file.readline(MAX_LINE_BYTES)):
                    length, whole = length + len(more), more.endswith(b"\n")
                if not whole:
                    return
                report.offset += length
                report.lines += 1
                if length > len(line):
                    report.damaged += 1
                elif length > 1:  # an empty line is what ended a line that was cut off
                    yield line
    except OSError as error:
        raise LogUnreadable(f"{path} cannot be read: {error.strerror}; mend its rights") from error


def refuse_newer(schema: int, path: Path) -> None:
    """Raise if this version cannot know what the lines mean."""
    if schema > SCHEMA:
        raise NewerLog(
            f"{path} holds events of schema {schema}, and this version reads up to {SCHEMA}; update esper to read it"
        )


def _read(line: bytes, path: Path, report: LogReport) -> Record | None:
    try:
        envelope = json.loads(line.decode(), parse_constant=_refuse_constant)
        schema = LEAVES[int].read(envelope["schema"])
    except (ValueError, TypeError, KeyError, RecursionError):
        report.damaged += 1
        return None
    refuse_newer(schema, path)
    report.older += schema < SCHEMA
    try:
        return _record(envelope, report)
    except (ValueError, TypeError, KeyError, OverflowError):
        report.damaged += schema == SCHEMA  # an older line may have other fields, and is counted as such
        return None


def _record(envelope: dict[str, Any], report: LogReport) -> Record | None:
    if len(envelope) != 6:
        raise ValueError("more than an envelope")
    name, data = LEAVES[str].read(envelope["event"]), envelope["data"]
    when = LEAVES[float].read(envelope["time"])
    if not 0.0 <= when < END_OF_TIME:
        raise ValueError("no time")
    place = _ROUND.read(envelope["round"]), _EPISODE.read(envelope["episode"])
    if name not in EVENTS:
        report.unknown += 1
        if len(report.unknown_names) < MAX_NAMES and (shown := repr(name[:40])) not in report.unknown_names:
            report.unknown_names.append(shown)
        return None
    return Record(when, *place, _CODECS[EVENTS[name]].read(data))


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def effective(records: Iterable[Record]) -> list[Record]:
    """The records that count: where a run was resumed, what it had written of rounds that it played again is void."""
    kept: list[Record] = []
    played_again: int | None = None
    for record in reversed(list(records)):
        void = played_again is not None and record.round >= played_again
        if not void or isinstance(record.event, RunStarted):
            kept.append(record)
        if isinstance(record.event, RunResumed):
            played_again = record.round if played_again is None else min(played_again, record.round)
    return kept[::-1]
