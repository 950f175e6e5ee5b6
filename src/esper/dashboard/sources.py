"""What there is to look at in a directory: runs, exams, and trainings with a body that grows."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from esper.contracts import EsperError
from esper.dashboard.exam_feed import ExamFeed
from esper.dashboard.run_feed import RunFeed
from esper.telemetry import ExamStatus, RunStatus, read_status, state_now

MOST_SOURCES, MOST_OPEN = 1_000, 6

Answer = TypeVar("Answer")


class NothingToSee(EsperError):
    """The directory holds neither a run nor an exam."""


class UnknownSource(EsperError):
    """No run or exam of that name was found."""


@dataclass(frozen=True)
class DashboardSource:
    """A run, an exam or a training, by the name that a page knows it by."""

    name: str
    kind: str
    path: Path

    def figures(self) -> dict[str, Any]:
        """A line of the list."""
        kind = ExamStatus if self.kind == "exam" else RunStatus
        status = read_status(self.path / "status.json", kind)
        told: dict[str, Any] = {
            "name": self.name,
            "kind": self.kind,
            "state": state_now(self.path / "status.json", kind).value,
        }
        if isinstance(status, RunStatus):
            told |= {"round": status.round, "rounds": status.rounds, "best": status.best, "updated": status.updated}
        elif isinstance(status, ExamStatus):
            told |= {"done": status.done, "total": status.total, "updated": status.updated}
        return told


def kind_of(path: Path) -> str | None:
    """What a directory holds; None if it is nothing that can be shown."""
    if (path / "config.toml").is_file():
        return "run"
    if any((path / name).is_file() for name in ("exam.json", "exam.csv")):
        return "exam"
    return "training" if (path / "events.jsonl").is_file() else None


def find_sources(root: Path) -> list[DashboardSource]:
    """The directory itself, or what lies directly below it and truly inside; the latest first."""
    kind = kind_of(root)
    if kind is not None:
        return [DashboardSource(root.resolve().name, kind, root)]
    if not root.is_dir():
        raise NothingToSee(f"there is no directory {root}; give that of a run or an exam, or one with several of them")
    inside = root.resolve()
    below = [path for path in list(root.iterdir())[:MOST_SOURCES] if path.is_dir()]
    paths = [path for path in below if path.resolve().is_relative_to(inside)]
    found = [DashboardSource(path.name, kind, path) for path in paths if (kind := kind_of(path)) is not None]
    return sorted(found, key=lambda source: source.path.stat().st_mtime, reverse=True)


def require_sources(paths: Iterable[Path]) -> list[DashboardSource]:
    """What these directories hold; refused if that is nothing. Namesakes get numbers."""
    found: list[DashboardSource] = []
    for path in paths:
        own = find_sources(path)
        if not own:
            raise NothingToSee(f"{path} holds neither a run nor an exam; 'esper train' and 'esper exam' make them")
        found += own
    names: list[str] = []
    for source in found:
        names.append(source.name)
    return [
        source if names.count(source.name) == 1 else DashboardSource(f"{source.name} ({at})", source.kind, source.path)
        for at, source in enumerate(found, start=1)
    ]


class Sources:
    """Everything that a server shows. A few feeds are kept open; one that is looked at again is read on."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._known: dict[str, DashboardSource] = {}
        self._open: OrderedDict[str, RunFeed | ExamFeed] = OrderedDict()
        self._lock = threading.Lock()
        self._doctor = threading.Thread()
        """Looks at one run at a time, while the page is drawn without him."""

    def listed(self) -> list[dict[str, Any]]:
        """What there is now."""
        with self._lock:
            return [source.figures() for source in self._look()]

    def refreshed(self, name: str) -> RunFeed | ExamFeed:
        """The feed of that name, with what is new in its directory."""
        with self._lock:
            feed = self._feed(name)
            feed.refresh()
            return feed

    def news(self, name: str, cursor: str) -> tuple[str, dict[str, Any]]:
        """What is new after the cursor, and the cursor after that."""
        with self._lock:
            feed = self._feed(name)
            feed.refresh()
            if isinstance(feed, RunFeed) and feed.wants_doctor and not self._doctor.is_alive():
                self._doctor = threading.Thread(target=feed.examine, name="doctor", daemon=True)
                self._doctor.start()
            return feed.cursor, feed.news(cursor)

    def ask(self, names: Sequence[str], question: Callable[..., Answer]) -> Answer:
        """What the feeds of these runs answer; nobody reads on meanwhile."""
        with self._lock:
            return question(*map(self._run, names))

    def _run(self, name: str) -> RunFeed:
        feed = self._feed(name)
        if not isinstance(feed, RunFeed):
            raise UnknownSource(f"'{name[:80]}' is an exam, and has no episodes")
        if not feed.log.report.lines:
            feed.refresh()
        return feed

    def _look(self) -> list[DashboardSource]:
        found = find_sources(self.root)
        self._known = {source.name: source for source in found}
        return found

    def _feed(self, name: str) -> RunFeed | ExamFeed:
        if name not in self._known:
            self._look()
        if name not in self._known:
            raise UnknownSource(f"there is no '{name[:80]}' in {self.root}")
        if name not in self._open:
            self._open[name] = feed_of(self._known[name])
            while len(self._open) > MOST_OPEN:
                self._open.popitem(last=False)
        self._open.move_to_end(name)
        return self._open[name]


def feed_of(source: DashboardSource) -> RunFeed | ExamFeed:
    """What reads it."""
    return ExamFeed(source.path) if source.kind == "exam" else RunFeed(source.path)
