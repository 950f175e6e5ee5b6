"""Episodes in worker processes of this machine."""

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import connection, forkserver, resource_tracker
from typing import Any

from esper.runs.backends.backend import MakePlayer, NoWorkers
from esper.runs.backends.pool import Assignment, Pool, WorkerLost
from esper.runs.backends.worker import HERE, Answer, Failure, Parcel
from esper.runs.player import Game, Job, Player

PRELOADED = (__name__, "torch._dynamo")
"""What the fork server imports once for all workers; the second is what the first optimiser would import."""
PULSE = 0.5
"""Seconds between looks at the deadlines: that of a worker changes when it has started."""
PATIENCE = 5.0
"""Seconds for a process that was killed to be gone."""


class ProcessWorker(Assignment):
    """One process in an executor of its own: in a shared one, a process that dies takes the others' jobs with it."""

    def __init__(self, context: Any) -> None:
        super().__init__()
        self.answer: Future[bytes] | None = None
        """Of its job; None while it is idle."""
        before = set(multiprocessing.active_children())
        self.executor = ProcessPoolExecutor(1, mp_context=context, initializer=die_with_parent)
        self.executor.submit(os.getpid).add_done_callback(self._greet)
        (self.process,) = set(multiprocessing.active_children()) - before

    def _greet(self, pid: "Future[int]") -> None:
        if pid.exception() is None:
            self.begin(f"pid {pid.result()}")

    def ask(self, parcel: bytes, job: Job) -> None:
        """From now on it owes an answer."""
        if self.began is not None:
            self.begin(self.worker)
        try:
            self.answer = self.executor.submit(play, parcel, pickle.dumps(job))
        except BrokenProcessPool as error:  # it has just died, and not of this job
            self.began, self.answer = None, Future()
            self.answer.set_exception(error)

    def end(self) -> None:
        """Whatever it does, and also if it is stopped."""
        self.process.kill()
        self.process.join(PATIENCE)
        self.executor.shutdown(cancel_futures=True)


class ProcessBackend(Pool[ProcessWorker]):
    """Worker processes with one torch thread each, as many as are needed and allowed."""

    start_limit = 300.0  # torch from a cold disk is slow
    cure = (
        "its message is above; a script that trains must start from 'if __name__ == \"__main__\":', "
        "and backend 'serial' needs no workers"
    )

    def __init__(self, game: Game, workers: int, timeout: float, player: MakePlayer = Player) -> None:
        super().__init__(game, workers, timeout, player)
        self._workers: list[ProcessWorker] = []
        with _told_as_no_workers():
            self._context = _context()

    def close(self) -> None:
        """Idle workers and busy ones alike end at once."""
        self._stop(list(self._workers))

    def _pack(self, parcel: Parcel) -> bytes:
        return pickle.dumps(parcel)

    def _submit(self, parcel: bytes, job: Job) -> ProcessWorker:
        idle = [worker for worker in self._workers if worker.answer is None]
        self._stop(worker for worker in idle if not worker.process.is_alive())
        worker = next((worker for worker in idle if worker in self._workers), None)
        if worker is None:
            with _told_as_no_workers():
                worker = ProcessWorker(self._context)
            self._workers.append(worker)
        worker.ask(parcel, job)
        return worker

    def _wait(self, tasks: Sequence[ProcessWorker], seconds: float) -> Iterable[ProcessWorker]:
        owed = {worker.answer: worker for worker in tasks if worker.answer is not None}
        return [owed[answer] for answer in wait(owed, min(seconds, PULSE), FIRST_COMPLETED).done]

    def _answer(self, task: ProcessWorker) -> Answer:
        answer, task.answer = task.answer, None
        assert answer is not None
        # Not raised and caught: answer and error would hold on to each other, and to the worker's open files.
        if answer.exception() is None:
            return pickle.loads(answer.result())  # type: ignore[no-any-return]
        task.process.join(PATIENCE)
        raise WorkerLost(_fate(task.process.exitcode), while_playing=task.began is not None)

    def _stop(self, tasks: Iterable[ProcessWorker]) -> None:
        for worker in list(tasks):
            worker.end()
            self._workers.remove(worker)


def die_with_parent() -> None:
    """In a worker: a long episode would not notice, and keep a core busy for nobody."""
    threading.Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def play(parcel: bytes, job: bytes) -> bytes:
    """In a worker: the pickled answer."""
    try:
        return pickle.dumps(HERE.play(pickle.loads(parcel), pickle.loads(job)))
    except Exception as error:
        return pickle.dumps(Failure.of(error))


def _fate(code: int | None) -> str:
    if code is None:
        return "closed its pipe"
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


@contextmanager
def _told_as_no_workers() -> Iterator[None]:
    """The system's reasons for not starting a process, in words that say what to do."""
    try:
        yield
    except (OSError, EOFError, BrokenProcessPool) as error:
        raise NoWorkers(
            f"no process can be started ({error.__cause__ or error}); take fewer workers, raise the limit with "
            "'ulimit -n' or 'ulimit -u', or take backend 'serial'"
        ) from error


def _context() -> Any:
    """A server that has imported everything and forks a worker in no time; a fresh interpreter where there is none.

    The server is started now, to import while the caller does other things, and with Ctrl-C blocked for itself and
    its workers: the parent hears it and ends them. The resource tracker, which is started first, would lift the block.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return context
