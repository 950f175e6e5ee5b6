"""Episodes in worker processes of this machine."""

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import connection, forkserver, resource_tracker
from typing import Any

from pebble import ProcessExpired, ProcessPool

from esper.runs.backends.backend import MakePlayer, NoWorkers
from esper.runs.backends.pool import Pool, Task, WorkerLost
from esper.runs.backends.worker import HERE, Answer, Failure, Parcel
from esper.runs.player import Game, Job, Player

PRELOADED = (__name__, "torch._dynamo")
"""What the fork server imports once for all workers; the second is what the first optimiser would import."""
PULSE = 0.5
"""Seconds between looks at whether the workers are alive; pebble does not tell of one that ends with exit code 0."""


class ProcessWorker(Task):
    """One process in a pool of its own: in a shared one, a process that dies can take the others' lock with it."""

    def __init__(self, context: Any) -> None:
        super().__init__()
        self.pid: int | None = None
        """None until it has started."""
        self.answer: Future[bytes] | None = None
        """Of its job; None while it is idle."""
        self.pool = ProcessPool(1, initializer=die_with_parent, context=context)
        self.pool.schedule(os.getpid).add_done_callback(self._greet)

    def _greet(self, pid: Future[int]) -> None:
        if pid.exception() is None:
            self.pid = pid.result()
            self.begin(f"pid {self.pid}")

    def ask(self, parcel: bytes, job: Job) -> None:
        """From now on it owes an answer."""
        if self.pid is not None:
            self.begin(self.worker)
        try:
            self.answer = self.pool.schedule(play, args=(parcel, pickle.dumps(job)))
        except RuntimeError as error:  # it died while it was idle
            self.answer = Future()
            self.answer.set_exception(BrokenProcessPool(str(error)))


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
        worker = next((worker for worker in self._workers if worker.answer is None), None)
        if worker is None:
            with _told_as_no_workers():
                worker = ProcessWorker(self._context)
            self._workers.append(worker)
        worker.ask(parcel, job)
        return worker

    def _wait(self, tasks: Sequence[ProcessWorker], seconds: float) -> Iterable[ProcessWorker]:
        owed = {worker.answer: worker for worker in tasks if worker.answer is not None}
        finished = wait(owed, min(seconds, PULSE), FIRST_COMPLETED).done
        if finished:
            return [owed[answer] for answer in finished]
        alive = {None, *(child.pid for child in multiprocessing.active_children())}
        return [worker for worker in tasks if worker.pid not in alive]

    def _answer(self, task: ProcessWorker) -> Answer:
        answer, task.answer = task.answer, None
        assert answer is not None
        try:
            return pickle.loads(answer.result(PULSE))  # type: ignore[no-any-return]
        except ProcessExpired as error:
            raise WorkerLost(_fate(error.exitcode)) from error
        except TimeoutError as error:
            raise WorkerLost(_fate(0)) from error
        except BrokenProcessPool as error:
            raise WorkerLost("ended before it played", while_playing=False) from error

    def _stop(self, tasks: Iterable[ProcessWorker]) -> None:
        ending = list(tasks)
        pids = {worker.pid for worker in ending}
        for child in multiprocessing.active_children():
            if child.pid in pids:
                child.kill()  # pebble would ask first, and wait for an answer
        for worker in ending:
            worker.pool.stop()  # type: ignore[no-untyped-call]
        for worker in ending:
            worker.pool.join()
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


def _fate(code: int) -> str:
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
