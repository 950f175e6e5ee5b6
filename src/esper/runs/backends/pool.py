"""A round that completes though workers are lost. Knows nothing of processes or clusters."""

import pickle
import time
from abc import abstractmethod
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Generic, TypeVar
from uuid import uuid4

from esper.runs.backends.backend import (
    Backend,
    Done,
    EpisodeLost,
    MakePlayer,
    NoWorkers,
    Replaced,
    Weights,
    check_weights,
)
from esper.runs.backends.worker import Answer, Failure, Parcel
from esper.runs.player import Game, Job, Played
from esper.telemetry import WorkerReplaced

ATTEMPTS = 3
"""How many workers one episode may cost, and how many may be lost in a row before they have started."""


class WorkerLost(Exception):
    """A worker will not answer any more. The message says what it did: "was killed by SIGKILL"."""

    def __init__(self, reason: str, *, while_playing: bool = True) -> None:
        super().__init__(reason)
        self.while_playing = while_playing


class Assignment:
    """A job in the hands of a worker, which may still have to start."""

    def __init__(self) -> None:
        self.worker = "a worker that had not started"
        self.asked = time.monotonic()
        self.began: float | None = None

    def begin(self, worker: str) -> None:
        """The worker is there, and plays from now on."""
        self.worker, self.began = worker, time.monotonic()


Given = TypeVar("Given", bound=Assignment)


class Round:
    """Which jobs are still to be played, and what came of the others."""

    def __init__(self, jobs: Sequence[Job], done: Done, replaced: Replaced) -> None:
        self.jobs = jobs
        self.waiting = deque(range(len(jobs)))
        self._played: dict[int, Played] = {}
        self._losses: Counter[int] = Counter()
        self._done, self._replaced = done, replaced

    @property
    def unfinished(self) -> bool:
        return len(self._played) < len(self.jobs)

    def results(self) -> list[Played]:
        return [self._played[place] for place in range(len(self.jobs))]

    def finish(self, place: int, played: Played) -> None:
        self._played[place] = played
        self._done(played)

    def play_again(self, place: int, worker: str, lost: WorkerLost) -> None:
        """Before all others, unless it has cost too many workers."""
        job = self.jobs[place]
        self.waiting.appendleft(place)
        self._replaced(WorkerReplaced(worker, str(lost), job.seed))
        self._losses[place] += lost.while_playing
        if self._losses[place] == ATTEMPTS:
            raise EpisodeLost(
                f"the episode of task '{job.task}' with seed {job.seed} lost {ATTEMPTS} workers; "
                f"the last one {lost}; play it alone with backend 'serial' to see why, "
                "take fewer workers if memory is short, or a longer timeout if episodes are long"
            )


class Pool(Backend, Generic[Given]):
    """At most `workers` jobs at a time. A worker that dies or gives no answer within `timeout` seconds is replaced."""

    cure: str
    """What to do when workers cannot be started."""
    start_limit: float
    """Seconds in which a worker must have started."""

    def __init__(self, game: Game, workers: int, timeout: float, player: MakePlayer) -> None:
        self.workers, self.timeout = workers, timeout
        self._game, self._player = game, player
        self._name, self._rounds = uuid4().hex, count(1)
        self._never_started = 0

    def map(self, weights: Weights | None, jobs: Sequence[Job], done: Done, replaced: Replaced) -> list[Played]:
        """See `Backend`."""
        check_weights(weights, jobs)
        this = Round(jobs, done, replaced)
        parcel = self._pack(self._parcel(weights))
        running: dict[Given, int] = {}
        try:
            while this.unfinished:
                while this.waiting and len(running) < self.workers:
                    place = this.waiting.popleft()
                    running[self._submit(parcel, jobs[place])] = place
                self._collect(this, running)
        except BaseException:
            self._stop(running)  # what they play belongs to no round any more
            raise
        return this.results()

    @abstractmethod
    def _pack(self, parcel: Parcel) -> Any:
        """Once per round: the parcel in the form in which workers take it."""

    @abstractmethod
    def _submit(self, parcel: Any, job: Job) -> Given:
        """Hand the job to a worker."""

    @abstractmethod
    def _wait(self, tasks: Sequence[Given], seconds: float) -> Iterable[Given]:
        """The tasks that have come to an end; perhaps none, at the latest when the time is over."""

    @abstractmethod
    def _answer(self, task: Given) -> Answer:
        """Of a task that has come to an end. May raise `WorkerLost`."""

    @abstractmethod
    def _stop(self, tasks: Iterable[Given]) -> None:
        """End their workers, whatever they do."""

    def _parcel(self, weights: Weights | None) -> Parcel:
        # Main memory, because no worker has the caller's device; plain pickle, because torch's own way between
        # processes keeps a file descriptor open per tensor.
        kept = None if weights is None else {name: value.detach().cpu() for name, value in weights.items()}
        shipped = None if kept is None else pickle.dumps(kept)
        return Parcel(self._player, self._game, str(Path.cwd()), self._name, next(self._rounds), shipped)

    def _collect(self, this: Round, running: dict[Given, int]) -> None:
        """Wait for something to happen, and see to it."""
        soonest = min(self._deadline(task) for task in running)
        for task in self._wait(list(running), max(0.0, soonest - time.monotonic())):
            self._take(this, task, running.pop(task))
        now = time.monotonic()
        for task in [task for task in running if self._deadline(task) <= now]:
            limit, omission = self._limit(task)
            silent = WorkerLost(f"{omission} within {limit:g} s", while_playing=task.began is not None)
            self._replace(this, task, running.pop(task), silent)

    def _limit(self, task: Given) -> tuple[float, str]:
        return (self.start_limit, "did not start") if task.began is None else (self.timeout, "gave no answer")

    def _deadline(self, task: Given) -> float:
        return (task.began or task.asked) + self._limit(task)[0]

    def _take(self, this: Round, task: Given, place: int) -> None:
        try:
            answer = self._answer(task)
        except WorkerLost as lost:
            self._replace(this, task, place, lost)
            return
        self._never_started = 0
        if isinstance(answer, Failure):
            raise answer.raised()
        this.finish(place, answer)

    def _replace(self, this: Round, task: Given, place: int, lost: WorkerLost) -> None:
        self._stop([task])
        this.play_again(place, task.worker, lost)
        self._never_started += task.began is None
        if self._never_started == ATTEMPTS:
            self._never_started = 0
            raise NoWorkers(f"{ATTEMPTS} workers were lost before they started; the last one {lost}; {self.cure}")
