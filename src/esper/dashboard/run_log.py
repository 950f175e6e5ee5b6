"""What a page keeps of a log, however long that is: a row per round, a line per episode, the last troubles.

A log is read on from where it was left. The epochs of an episode are not kept but found again in the file, where they
stand together in front of the line that ends it; what follows the last such line is an episode that is still going on.
"""

from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any

from esper.contracts import EpisodeEvent, Event, RansomwareSuspected, RewardHackingSuspected
from esper.dashboard.series import Row, Series, row_of
from esper.telemetry import (
    AnomalyRaised,
    EpisodeFinished,
    EvaluationMade,
    LogReport,
    NewerLog,
    Record,
    RolledBack,
    RoundFinished,
    RunResumed,
    RunStarted,
    SinkFailed,
    UpdateMade,
    WorkerReplaced,
    read_log,
)
from esper.telemetry.views import END_WORDS

TROUBLES = (AnomalyRaised, RolledBack, RewardHackingSuspected, RansomwareSuspected, WorkerReplaced, SinkFailed)
ENDS = {kind: word for kind, word in END_WORDS.items() if kind not in (RunStarted, RunResumed)}
READ = (RunStarted, RunResumed, *ENDS, EpisodeFinished, RoundFinished, UpdateMade, EvaluationMade, *TROUBLES)
MOST_EPISODES, MOST_TROUBLES, MOST_TIMES = 50_000, 500, 64
MOST_BLOCK_BYTES = 8_000_000
"""Of one episode in the log; more is not shown."""
MOST_BYTES_AT_ONCE = 64_000_000
"""Of the log, between two looks at the clock of whoever waits for the page."""

SeedKey = tuple[str, str]
"""Blueprint and slot."""


@dataclass(frozen=True, slots=True)
class EpisodeLine:
    """An episode that is over, and where its events stand in the file."""

    number: int
    """Counts the episodes of the log."""
    time: float
    round: int
    seed: int | None
    task: str
    policy: str
    purpose: str
    total: float
    quality: float
    twin_quality: float | None
    growth: float
    fossilized: int
    epochs: int
    forced: int
    panic: str | None
    begin: int
    end: int

    @property
    def figures(self) -> dict[str, Any]:
        """All that a page shows; rounds count from 1."""
        hidden = {"begin", "end", "time"}
        told = {name: getattr(self, name) for name in self.__slots__ if name not in hidden}
        return told | {"round": self.round + 1}


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that an operator should look at."""

    kind: str
    round: int
    episode: int | None
    epoch: int | None
    words: str
    time: float

    @classmethod
    def of(cls, record: Record) -> "Trouble":
        event: Any = record.event
        match event:
            case AnomalyRaised():
                kind, words = event.kind, event.message
            case RolledBack():
                kind, words = "rollback", event.reason
            case WorkerReplaced():
                kind, words = "worker replaced", f"{event.worker}: {event.reason}"
            case SinkFailed():
                kind, words = "sink failed", f"{event.sink}: {event.reason}"
            case _:
                kind = "reward hacking" if isinstance(event, RewardHackingSuspected) else "ransomware"
                words = f"{event.slot}: {event.contribution:+.1%} of quality alone, {event.gain:+.1%} with all seeds"
        episode = event.seed if isinstance(event, WorkerReplaced) else record.episode
        return cls(kind, record.round, episode, getattr(event, "epoch", None), words, record.time)


class SeedTally:
    """What became of the seeds of training episodes, by blueprint and slot, in one round."""

    def __init__(self) -> None:
        self.germinated: Counter[SeedKey] = Counter()
        self.kept: Counter[SeedKey] = Counter()
        self.pruned: Counter[SeedKey] = Counter()
        self.epochs: Counter[SeedKey] = Counter()
        """From germination to pruning, of those that were pruned."""

    def add(self, event: EpisodeFinished) -> None:
        """Take in the seeds of an episode."""
        for seed in event.seeds or ():
            key = (seed.blueprint or "unknown", seed.slot)
            self.germinated[key] += 1
            if seed.stage == "FOSSILIZED":
                self.kept[key] += 1
            elif seed.stage == "PRUNED":
                self.pruned[key] += 1
                self.epochs[key] += (seed.ended or seed.germinated) - seed.germinated

    def __iadd__(self, other: "SeedTally") -> "SeedTally":
        for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True):
            mine.update(theirs)
        return self

    def rows(self) -> list[dict[str, Any]]:
        """A row per blueprint and slot, the commonest first."""
        return [
            {
                "blueprint": key[0],
                "slot": key[1],
                "germinated": count,
                "kept": self.kept[key],
                "pruned": self.pruned[key],
                "growing": count - self.kept[key] - self.pruned[key],
                "lifespan": self.epochs[key] / self.pruned[key] if self.pruned[key] else None,
            }
            for key, count in self.germinated.most_common(200)
        ]


class RunLog:
    """A log, read as far as it goes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.version = 0
        """Rises with everything that is taken in."""
        self._begin()

    def _begin(self) -> None:
        self.report = LogReport()
        self.started: RunStarted | None = None
        self.started_at: float | None = None
        self.last_event: float | None = None
        self.end: tuple[str, str | None] | None = None
        """How the run ended by its own word, and why; None if it goes on."""
        self.resumed = 0
        self.rounds, self.evaluations = Series(), Series()
        self.episodes: deque[EpisodeLine] = deque(maxlen=MOST_EPISODES)
        self.count = 0
        """Episodes taken in."""
        self.troubles: deque[Trouble] = deque(maxlen=MOST_TROUBLES)
        self.paces: deque[tuple[float, int]] = deque(maxlen=MOST_TIMES)
        """When rounds were complete, since the run was last resumed."""
        self.finishes: deque[float] = deque(maxlen=MOST_TIMES)
        """When episodes ended, likewise."""
        self.seeds_known = True
        """Whether all episodes say what became of their seeds, which older logs do not."""
        self._tallies: dict[int, SeedTally] = {}
        self._old_seeds = SeedTally()
        """Of rounds so long ago that they cannot be played again."""
        self._totals: list[float] = []
        self._boundary = 0
        """Where the last line stands that belongs to no episode, or ends one."""
        self._tail: list[Record] = []
        self._tail_end = 0
        self._generation = getattr(self, "_generation", -1) + 1

    @property
    def generation(self) -> str:
        """Changes when something that was told is no longer so."""
        return f"{self._generation}.{self.rounds.generation}.{self.evaluations.generation}"

    def read_on(self) -> bool:
        """Take in what is new, up to a limit; whether there was anything."""
        size = self.path.stat().st_size if self.path.is_file() else 0
        if size < self.report.offset:  # it is another file
            self._begin()
            self.version += 1
        before, lines = self.report.offset, self.report.lines
        for record in read_log(self.path, self.report, only=READ):
            self._take(record)
            if self.report.offset - before > MOST_BYTES_AT_ONCE:
                break
        if self.report.lines > lines:
            self.version += 1
        return self.report.lines > lines

    @property
    def has_more(self) -> bool:
        """Whether the file goes on."""
        return self.path.is_file() and self.path.stat().st_size > self.report.offset

    def seeds(self) -> list[dict[str, Any]]:
        """What became of the seeds of all training episodes."""
        total = SeedTally()
        total += self._old_seeds
        for tally in self._tallies.values():
            total += tally
        return total.rows()

    def events_of(self, line: EpisodeLine) -> list[Event]:
        """The events of an episode, found in the file again."""
        found = _block(self.path, line.begin, line.end)
        return [each.event for each in found if each.episode == line.seed and each.round == line.round]

    def going_on(self) -> list[Record]:
        """What follows the last episode that is over, if that is of an episode: the newest part of it."""
        end = self.report.offset
        if end != self._tail_end:
            self._tail_end = end
            begin = max(self._boundary, end - MOST_BLOCK_BYTES)
            found = _block(self.path, begin, end) if end > begin else []
            self._tail = [each for each in found if isinstance(each.event, EpisodeEvent)]
        return self._tail

    def _take(self, record: Record) -> None:
        event = record.event
        self.last_event = record.time if self.last_event is None else max(self.last_event, record.time)
        if isinstance(event, TROUBLES):
            self.troubles.append(Trouble.of(record))
        elif type(event) in ENDS:
            self.end = ENDS[type(event)], getattr(event, "reason", None)
        else:
            self._take_figures(record)
        if not isinstance(event, EpisodeEvent):
            self._boundary = self.report.offset

    def _take_figures(self, record: Record) -> None:
        event = record.event
        match event:
            case RunStarted():
                self.started, self.started_at, self.end = event, record.time, None
                self.paces.append((record.time, record.round))
            case RunResumed():
                self._resume(record)
            case EpisodeFinished():
                self._take_episode(record, event)
            case RoundFinished():
                self._take_round(record, event)
            case UpdateMade() if self.rounds.rows:
                self.rounds.change_last(_update(event), self.version + 1)
            case EvaluationMade():
                figures = {name: value for name, value in vars(event).items() if name != "best"}
                self.evaluations.add(row_of(record.round + 1, figures), self.version + 1)

    def _resume(self, record: Record) -> None:
        """What was told of rounds that are played again is void."""
        self.end, self.resumed = None, self.resumed + 1
        for series in (self.rounds, self.evaluations):
            series.forget_from(record.round + 1)
        self._tallies = {at: tally for at, tally in self._tallies.items() if at < record.round}
        kept = [line for line in self.episodes if line.round < record.round]
        self.episodes = deque(kept, maxlen=MOST_EPISODES)
        self.troubles = deque((each for each in self.troubles if each.round < record.round), maxlen=MOST_TROUBLES)
        self._totals = []
        self._generation += 1
        self.paces.clear()
        self.finishes.clear()
        self.paces.append((record.time, record.round))

    def _take_episode(self, record: Record, event: EpisodeFinished) -> None:
        self.count += 1
        self.finishes.append(record.time)
        own: dict[str, Any] = {name: value for name, value in vars(event).items() if name in EpisodeLine.__slots__}
        own |= {"number": self.count, "time": record.time, "round": record.round, "seed": record.episode}
        self.episodes.append(EpisodeLine(**own, begin=self._boundary, end=self.report.offset))
        if event.purpose == "train":
            self._totals.append(event.total)
            self.seeds_known &= event.seeds is not None
            self._tallies.setdefault(record.round, SeedTally()).add(event)

    def _take_round(self, record: Record, event: RoundFinished) -> None:
        quarters = quantiles(self._totals, n=4) if len(self._totals) > 1 else [None, None, None]
        figures = dict(vars(event)) | {"low": quarters[0], "high": quarters[2], "episodes": len(self._totals)}
        self.rounds.add(row_of(record.round + 1, figures), self.version + 1)
        self.paces.append((record.time, record.round + 1))
        self._totals = []
        if len(self._tallies) > 2_000:
            oldest = next(iter(self._tallies))
            self._old_seeds += self._tallies.pop(oldest)


def _update(event: UpdateMade) -> Row:
    """What of an update belongs to the row of its round."""
    names = (
        "kl", "clipped", "value_error", "return_deviation", "gradient_norm", "explained_variance", "skipped_steps",
    )  # fmt: skip
    heads = event.heads
    return {name: getattr(event, name) for name in names} | {
        "entropy": {name: head.entropy for name, head in heads.items()},
        "choices": {name: head.steps for name, head in heads.items()},
        "head_kl": {name: head.kl for name, head in heads.items()},
    }


def _block(path: Path, begin: int, end: int) -> list[Record]:
    """The events between two places in the file."""
    report, found = LogReport(offset=begin), []
    with suppress(NewerLog):
        for record in read_log(path, report):
            if report.offset > end or report.offset - begin > MOST_BLOCK_BYTES:
                break
            found.append(record)
    return found
