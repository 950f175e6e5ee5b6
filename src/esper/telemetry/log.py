"""The log of a run: one event per line, only ever appended to, readable after any interruption and while it grows.

    {"schema":3,"time":1767225600.25,"round":3,"episode":17,"event":"RolledBack","data":{"epoch":4,"reason":"..."}}

A line that was cut off by a crash is lost alone. Readers leave damaged and unknown lines out and count them. JSON has
no NaN and no infinities, and null means None, so these floats are the strings "NaN", "Infinity" and "-Infinity", which
SQL takes as numbers too.
"""

import errno
import math
import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self

import msgspec
import numpy as np

from esper.contracts import EsperError, Event, cure_for
from esper.telemetry.events import EVENTS, RunResumed, RunStarted

SCHEMA = 3
"""Of the lines. Changing, adding or removing a field of any event makes another one. Older lines are still read."""
MAX_LINE_BYTES = 4_000_000
"""A longer line is damaged; no more of it than this is ever held."""
END_OF_TIME = 253_402_300_800.0
"""Unix seconds of the year 10000, which calendars do not reach."""
MAX_NAMES = 5
NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}

Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""What SQL can hold as BIGINT."""


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
            raise self._unwritable(error) from error

    def write(self, event: Event, round: int, episode: int | None = None) -> None:
        """Append one event."""
        self.write_all((event,), round, episode)

    def write_all(self, events: Iterable[Event], round: int, episode: int | None = None) -> None:
        """Append events of one episode or round in one go; they get the same time."""
        now = time.time()
        self.append(Record(now, round, episode, event) for event in events)

    def append(self, records: Iterable[Record]) -> None:
        """Append events that have their times already."""
        lines = b"".join(map(line_of, records))
        if lines:
            self._append(lines)

    @property
    def size(self) -> int:
        """Bytes in the file, with what others have written."""
        return os.fstat(self._opened()).st_size

    def sync(self) -> None:
        """Wait until everything is on the disk, safe from a loss of power."""
        try:
            os.fsync(self._opened())
        except OSError as error:
            if error.errno != errno.EINVAL:  # what is no file, such as os.devnull, has nothing to wait for
                raise self._unwritable(error) from error

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
            raise self._unwritable(error) from error
        self._torn = False

    def _opened(self) -> int:
        if self._file is None:
            raise LogUnwritable(f"{self.path} cannot be written: the log is closed; open it again")
        return self._file

    def _unwritable(self, error: OSError) -> LogUnwritable:
        return LogUnwritable(
            f"{self.path} cannot be written ({error.strerror}); {cure_for(error)}, then resume the run"
        )


class _Version(msgspec.Struct):
    schema: Integer


class _Line(_Version):
    """All but the event, which is read only if it is wanted."""

    time: Annotated[float, msgspec.Meta(ge=0.0, lt=END_OF_TIME)]
    round: Integer
    episode: Integer | None
    event: str
    data: msgspec.Raw


_VERSION, _LINE = msgspec.json.Decoder(_Version), msgspec.json.Decoder(_Line)
_HEAD = re.compile(
    rb'\{"schema":(\d{1,9}),"time":\d[\d.e+]*,"round":-?\d+,"episode":(?:null|-?\d+),"event":"(\w+)","data":\{'
)
"""How this program begins a line: enough to pass over an event that nobody wants."""
# Not strict, so that the names of floats that are not finite are taken as such.
_EVENTS = {name: msgspec.json.Decoder(kind, strict=False) for name, kind in EVENTS.items()}


def line_of(record: Record) -> bytes:
    """The line that says it, with its end."""
    name = type(record.event).__name__
    if name not in EVENTS:
        raise TypeError(f"{name} is not a known event; define it in esper.telemetry.events")
    line = {
        "schema": SCHEMA,
        "time": round(record.time, 3),
        "round": record.round,
        "episode": record.episode,
        "event": name,
        "data": plain(record.event),
    }
    return msgspec.json.encode(line) + b"\n"


def record_of(line: bytes) -> Record:
    """What `line_of` has made a line of; a `ValueError` if it is none."""
    parsed = _LINE.decode(line)
    if parsed.schema != SCHEMA or parsed.event not in EVENTS:
        raise ValueError(f"the line is of schema {parsed.schema} and tells of {parsed.event!r}")
    return Record(parsed.time, parsed.round, parsed.episode, _event(parsed))


def plain(value: Any) -> Any:
    """The value as JSON can say it: floats that are not finite by name, and no halves of characters.

    >>> plain((1.5, math.inf, None))
    [1.5, 'Infinity', None]
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else NOT_FINITE[str(value)]
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {str(plain(key)): plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    return plain(vars(value)) if is_dataclass(value) else value


def read_log(path: Path, report: LogReport | None = None, only: tuple[type[Event], ...] = (Event,)) -> Iterator[Record]:
    """The events of a log in their order. A last line without end is still being written, and left for later.

    A file that is not there holds nothing. What was left out is counted in `report`. With `only`, events of other types
    are passed over unread, except `RunResumed`, from which `effective` knows what is void.
    """
    report = LogReport() if report is None else report
    wanted = {name for name, kind in EVENTS.items() if issubclass(kind, (*only, RunResumed))}
    others = {name.encode() for name in EVENTS.keys() - wanted}
    for line in whole_lines(path, report):
        head = _HEAD.match(line)
        if head and head[2] in others and int(head[1]) <= SCHEMA and line.endswith(b"}}\n"):
            report.older += int(head[1]) < SCHEMA
            continue
        record = _read(line, path, report, wanted)
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
        raise LogUnreadable(f"{path} cannot be read ({error.strerror}); {cure_for(error)}") from error


def refuse_newer(schema: int, path: Path) -> None:
    """Raise if this version cannot know what the lines mean."""
    if schema > SCHEMA:
        raise NewerLog(
            f"{path} holds events of schema {schema}, and this version reads up to {SCHEMA}; update esper to read it"
        )


def _read(line: bytes, path: Path, report: LogReport, wanted: set[str]) -> Record | None:
    try:
        schema = _VERSION.decode(line).schema
    except (ValueError, RecursionError):
        report.damaged += 1
        return None
    refuse_newer(schema, path)
    report.older += schema < SCHEMA
    try:
        parsed = _LINE.decode(line)
        if parsed.event in wanted:
            return Record(parsed.time, parsed.round, parsed.episode, _event(parsed))
    except (ValueError, RecursionError, OverflowError):
        report.damaged += schema == SCHEMA  # an older line may have other fields, and is counted as such
        return None
    if parsed.event not in EVENTS:
        report.unknown += 1
        if len(report.unknown_names) < MAX_NAMES and (shown := repr(parsed.event[:40])) not in report.unknown_names:
            report.unknown_names.append(shown)
    return None


def _event(parsed: _Line) -> Event:
    event = _EVENTS[parsed.event].decode(parsed.data)
    msgspec.msgpack.encode(event)  # refuses integers of more than 64 bits, which no column and no float can hold
    return event


def effective(records: Iterable[Record]) -> list[Record]:
    """The records that count: where a run was resumed, what it had written of rounds that it played again is void.

    No more is held than what is returned, so that `only` of `read_log` bounds the memory that a long log takes.
    """
    kept: list[Record] = []
    for record in records:
        if isinstance(record.event, RunResumed):
            kept = [each for each in kept if each.round < record.round or isinstance(each.event, RunStarted)]
        kept.append(record)
    return kept
