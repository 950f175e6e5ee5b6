"""Workers that may be lost, and the round that completes nevertheless. Knows nothing of processes or clusters."""

import math
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from esper.runs.backends.backend import Closing, Done, EpisodeLost, NoWorkers, Replaced, Weights, check_weights
from esper.runs.backends.worker import Answer, Failure
from esper.runs.player import Job, Played
from esper.telemetry import WorkerReplaced

ATTEMPTS = 3
"""How many workers one episode may cost, and how many may be lost unused while no other is at work."""


class WorkerLost(Exception):
    """A worker will not answer any more. The message says what it did: "was killed by SIGKILL"."""


class Ready:
    """A worker's first word."""


class Worker(ABC):
    """One that plays one job at a time, somewhere."""

    def __init__(self, name: str, start_limit: float) -> None:
        self.name = name
        self.ready = False
        self.proven = False
        """It has answered a job."""
        self.informed = False
        """It has the weights of this round."""
        self.place: int | None = None
        """Of the job that it plays, among those of the round."""
        self.limit = start_limit
        self.asked = time.monotonic()

    @property
    def idle(self) -> bool:
        return self.ready and self.place is None

    @property
    def deadline(self) -> float:
        """When it must have answered."""
        return math.inf if self.idle else self.asked + self.limit

    def ask(self, place: int, limit: float) -> None:
        """From now on it owes an answer."""
        self.place, self.limit, self.asked = place, limit, time.monotonic()

    @abstractmethod
    def call(self) -> None:
        """If its death would go unnoticed while it is idle, it must say again that it is ready."""

    @abstractmethod
    def give(self, weights: Any, job: Job) -> None:
        """Hand over a job, and the packed weights unless they are None. May raise `WorkerLost`."""

    @abstractmethod
    def answer(self) -> Answer | Ready | None:
        """What it has to say by now, if anything. May raise `WorkerLost`."""

    @abstractmethod
    def kill(self) -> None:
        """Let it end at once, whatever it does."""

    @abstractmethod
    def release(self) -> None:
        """Give back what it holds in this process, after it was killed."""


class Round:
    """Which jobs are still to be played, and what came of the others."""

    def __init__(self, jobs: Sequence[Job], done: Done, replaced: Replaced) -> None:
        self.jobs = jobs
        self.waiting = deque(range(len(jobs)))
        self._played: dict[int, Played] = {}
        self._losses: Counter[int] = Counter()
        self._done, self._replaced = done, replaced

    @property
    def unfinished(self) -> int:
        return len(self.jobs) - len(self._played)

    def results(self) -> list[Played]:
        return [self._played[place] for place in range(len(self.jobs))]

    def finish(self, place: int, played: Played) -> None:
        self._played[place] = played
        self._done(played)

    def report(self, worker: Worker, reason: str, place: int) -> None:
        self._replaced(WorkerReplaced(worker.name, reason, self.jobs[place].seed))

    def lose(self, worker: Worker, reason: str, place: int) -> None:
        """The job is played again before all others, unless it has cost too many workers."""
        self.waiting.appendleft(place)
        self._losses[place] += 1
        self.report(worker, reason, place)
        if self._losses[place] == ATTEMPTS:
            job = self.jobs[place]
            raise EpisodeLost(
                f"the episode of task '{job.task}' with seed {job.seed} lost {ATTEMPTS} workers; "
                f"the last one {reason}; play it alone with backend 'serial' to see why, "
                "take fewer workers if memory is short, or a longer timeout if episodes are long"
            )


class WorkerPool(Closing, ABC):
    """As many workers as are needed and allowed. One that dies or stays silent is replaced."""

    cure = ""
    """What to do when workers cannot be started."""

    def __init__(self, workers: int, timeout: float) -> None:
        self.workers, self.timeout = workers, timeout
        self._crew: list[Worker] = []
        self._useless = 0

    def map(self, weights: Weights | None, jobs: Sequence[Job], done: Done, replaced: Replaced) -> list[Played]:
        """See `Backend`."""
        check_weights(weights, jobs)
        book = Round(jobs, done, replaced)
        parcel = None if weights is None else self._pack(weights)
        for worker in self._crew:
            worker.informed = False
        self._call_idle()
        try:
            while book.unfinished:
                self._fill_up(book)
                self._hand_out(book, parcel)
                soonest = min((worker.deadline for worker in self._crew), default=0.0)
                self._wait(self._crew, max(0.0, soonest - time.monotonic()))
                self._listen(book)
        except BaseException:
            # What the busy ones play belongs to no round any more.
            for worker in [worker for worker in self._crew if not worker.idle]:
                self._dismiss(worker)
            raise
        return book.results()

    def close(self) -> None:
        """Idle workers and busy ones alike end at once."""
        for worker in self._crew:
            worker.kill()
        while self._crew:
            self._crew.pop().release()

    @abstractmethod
    def _hire(self) -> Worker:
        """Start a worker; it need not be ready yet."""

    @abstractmethod
    def _pack(self, weights: Weights) -> Any:
        """Once per round: the weights in the form in which workers take them."""

    @abstractmethod
    def _wait(self, workers: Sequence[Worker], seconds: float) -> None:
        """Until one of them may have something to say, or the time is over."""

    def _fill_up(self, book: Round) -> None:
        while len(self._crew) < min(self.workers, book.unfinished):
            self._crew.append(self._hire())

    def _hand_out(self, book: Round, parcel: Any) -> None:
        for worker in [worker for worker in self._crew if worker.idle]:
            if not book.waiting:
                return
            place = book.waiting.popleft()
            worker.ask(place, self.timeout)
            try:
                worker.give(None if worker.informed else parcel, book.jobs[place])
            except WorkerLost as lost:
                book.waiting.appendleft(place)
                worker.place = None
                self._replace(book, worker, str(lost))
            worker.informed = True

    def _listen(self, book: Round) -> None:
        for worker in list(self._crew):
            try:
                answer = worker.answer()
                if answer is None and time.monotonic() >= worker.deadline:
                    omission = "gave no answer" if worker.ready else "did not start"
                    raise WorkerLost(f"{omission} within {worker.limit:g} s")
            except WorkerLost as lost:
                self._replace(book, worker, str(lost))
                continue
            if isinstance(answer, Ready):
                worker.ready = True
            elif answer is not None:
                self._take(book, worker, answer)

    def _take(self, book: Round, worker: Worker, answer: Answer) -> None:
        place, worker.place = worker.place, None
        worker.proven, self._useless = True, 0
        assert place is not None
        if isinstance(answer, Failure):
            raise answer.raised()
        book.finish(place, answer)

    def _replace(self, book: Round, worker: Worker, reason: str) -> None:
        """A worker that was lost without a job is not that job's fault; the next one takes its place."""
        self._dismiss(worker)
        self._call_idle()
        if worker.place is not None:
            book.lose(worker, reason, worker.place)
            return
        if book.waiting:
            book.report(worker, reason, book.waiting[0])
        self._useless += not worker.proven
        if self._useless >= ATTEMPTS and not any(other.ready or other.proven for other in self._crew):
            self._useless = 0
            raise NoWorkers(
                f"{ATTEMPTS} workers were lost before they played anything; the last one {reason}; {self.cure}"
            )

    def _call_idle(self) -> None:
        """So that no episode is handed from one dead worker to the next, and blamed for all of them."""
        for worker in self._crew:
            if worker.idle:
                worker.call()

    def _dismiss(self, worker: Worker) -> None:
        # An interruption from here on must not find it again.
        self._crew.remove(worker)
        worker.kill()
        worker.release()
