"""An exam as a directory, held by one process at a time. Reading it needs no lock.

exam.json       what decides the results; another exam is refused
exam.lock       held by the process that plays
rows.jsonl      every episode, written as it ends
status.json     how far it is, and how it ended
recording/      the episodes of all that grew, if that was asked for
exam.*          the report
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock
import msgspec

from esper.contracts import EsperError
from esper.runs.directory import Unwritable, write_whole
from esper.runs.exam.identity import FORMAT, ExamIdentity

MARK = "exam.json"
OR_ELSEWHERE = ", or give another --out"
LEFT_OVER = ".*.part"
"""What a write leaves that was killed."""


class OtherExam(EsperError):
    """The directory holds another exam, or something else."""


class ExamBusy(EsperError):
    """Another process holds this exam."""


@contextmanager
def claimed(directory: Path, identity: ExamIdentity) -> Iterator[None]:
    """The directory for this process alone, and marked as this exam's; refused if it is another's."""
    lock = filelock.FileLock(directory / "exam.lock")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _refuse_strangers(directory)
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise ExamBusy(f"{directory} is written by another 'esper exam'; wait for it, or give another --out") from None
    except OSError as error:
        raise Unwritable.because(directory, error, OR_ELSEWHERE) from None
    try:
        _mark(directory, identity)
        yield
    finally:
        lock.release()


def _refuse_strangers(directory: Path) -> None:
    """What is there must be an exam, or the beginning of one."""
    begun = {"exam.lock", *(path.name for path in directory.glob(LEFT_OVER))}
    if not (directory / MARK).exists() and any(path.name not in begun for path in directory.iterdir()):
        raise OtherExam(f"{directory} is not empty and holds no exam; give an --out that is new or empty")


def _mark(directory: Path, now: ExamIdentity) -> None:
    """Write down what decides the results, if it does not contradict what was written before."""
    mark = directory / MARK
    try:
        for path in directory.glob(LEFT_OVER):
            path.unlink(missing_ok=True)
        known = _read(mark) if mark.exists() else now
        changes = " and ".join(known.changes(now))
        if changes:
            raise OtherExam(f"{directory} {changes}; give another --out, or go on as it was held")
        write_whole(mark, msgspec.json.format(msgspec.json.encode(known.joined(now)), indent=1))
    except OSError as error:
        raise Unwritable.because(directory, error, OR_ELSEWHERE) from None


def _read(mark: Path) -> ExamIdentity:
    try:
        known = msgspec.json.decode(mark.read_bytes(), type=ExamIdentity)
        if known.format == FORMAT:
            return known
    except msgspec.DecodeError:
        pass
    raise OtherExam(
        f"{mark} does not say on which device, data and versions its exam was held: it is of another esper, or "
        "damaged; give another --out to hold the exam anew"
    )
