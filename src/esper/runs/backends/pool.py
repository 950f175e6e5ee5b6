"""A round that completes though workers are lost. Knows nothing of processes or clusters."""

import pickle
import time
from abc import abstractmethod
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Any
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

    def __init__(self, reason: str, *, had_started: bool = True, had_job: bool = True) -> None:
        super().__init__(reason)
        self.had_started, self.had_job = had_started, had_job


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
        self._losses[place] += lost.had_job
        if self._losses[place] == ATTEMPTS:
            raise EpisodeLost(
                f"the episode of task '{job.task}' with seed {job.seed} lost {ATTEMPTS} workers; "
                f"the last one {lost}; play it alone with backend 'serial' to see why, "
                "take fewer workers if memory is short, or a longer timeout if episodes are long"
            )


class Pool(Backend):
    """At most `workers` jobs at a time. A worker that dies or gives no answer within `timeout` seconds is replaced.

    A task is whatever `_submit` returns: a job in the hands of a worker.
    """

    cure: str
    """What to do when workers cannot be started."""
    start_limit: float
    """Seconds in which the first worker must have started."""

    def __init__(self, game: Game, workers: int, timeout: float, player: MakePlayer) -> None:
        self.workers, self.timeout = workers, timeout
        self._game, self._player = game, player
        self._name, self._rounds = uuid4().hex, count(1)
        self._answered, self._never_started = False, 0

    def map(self, weights: Weights | None, jobs: Sequence[Job], done: Done, replaced: Replaced) -> list[Played]:
        """See `Backend`."""
        check_weights(weights, jobs)
        this = Round(jobs, done, replaced)
        parcel = self._pack(self._parcel(weights))
        running: dict[Any, tuple[int, float]] = {}
        try:
            while this.unfinished:
                while this.waiting and len(running) < self.workers:
                    place = this.waiting.popleft()
                    running[self._submit(parcel, jobs[place])] = place, time.monotonic()
                self._collect(this, running)
        except BaseException:
            self._stop(running)  # what they play belongs to no round any more
            raise
        return this.results()

    @abstractmethod
    def _pack(self, parcel: Parcel) -> Any:
        """Once per round: the parcel in the form in which workers take it."""

    @abstractmethod
    def _submit(self, parcel: Any, job: Job) -> Any:
        """A task; its worker need not have started yet."""

    @abstractmethod
    def _wait(self, tasks: Sequence[Any], seconds: float) -> Iterable[Any]:
        """The tasks that have come to an end; perhaps none, at the latest when the time is over."""

    @abstractmethod
    def _answer(self, task: Any) -> Answer:
        """Of a task that has come to an end. May raise `WorkerLost`."""

    @abstractmethod
    def _stop(self, tasks: Iterable[Any]) -> None:
        """End their workers, whatever they do."""

    @abstractmethod
    def _worker(self, task: Any) -> str:
        """The worker's name, as far as it is known."""

    def _parcel(self, weights: Weights | None) -> Parcel:
        # Main memory, because no worker has the caller's device; plain pickle, because torch's own way between
        # processes keeps a file descriptor open per tensor.
        kept = None if weights is None else {name: value.detach().cpu() for name, value in weights.items()}
        shipped = None if kept is None else pickle.dumps(kept)
        return Parcel(self._player, self._game, str(Path.cwd()), self._name, next(self._rounds), shipped)

    def _collect(self, this: Round, running: dict[Any, tuple[int, float]]) -> None:
        """Wait for something to happen, and see to it."""
        limit = self.timeout + (0 if self._answered else self.start_limit)
        soonest = min(since for _, since in running.values()) + limit
        for task in self._wait(list(running), max(0.0, soonest - time.monotonic())):
            self._take(this, task, running.pop(task)[0])
        late = time.monotonic() - limit
        for task in [task for task, (_, since) in running.items() if since <= late]:
            silent = WorkerLost(f"gave no answer within {limit:g} s", had_started=self._answered)
            self._replace(this, task, running.pop(task)[0], silent)

    def _take(self, this: Round, task: Any, place: int) -> None:
        try:
            answer = self._answer(task)
        except WorkerLost as lost:
            self._replace(this, task, place, lost)
            return
        self._answered, self._never_started = True, 0
        if isinstance(answer, Failure):
            raise answer.raised()
        this.finish(place, answer)

    def _replace(self, this: Round, task: Any, place: int, lost: WorkerLost) -> None:
        self._stop([task])
        this.play_again(place, self._worker(task), lost)
        self._never_started += not lost.had_started
        if self._never_started == ATTEMPTS:
            self._never_started = 0
            raise NoWorkers(f"{ATTEMPTS} workers were lost before they started; the last one {lost}; {self.cure}")
