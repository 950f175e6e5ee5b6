"""Episodes in worker processes of this machine."""

import multiprocessing
import os
import signal
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

from esper.runs.backends.backend import MakePlayer, NoWorkers, Weights
from esper.runs.backends.pool import Ready, Worker, WorkerLost, WorkerPool
from esper.runs.backends.worker import Answer, WorkerPlayer, packed, packed_weights, unpacked
from esper.runs.player import Game, Job, Player

START_LIMIT = 300.0
"""Seconds in which a new process must have said that it is ready. Torch from a cold disk is slow."""
PRELOADED = (__name__, "torch._dynamo")
"""What the fork server imports once for all workers; the second is what the first optimiser would import."""
STALL_LIMIT = 10
"""Seconds without a byte, in the middle of a message, after which the other side is taken for stopped."""


class ProcessBackend(WorkerPool):
    """Worker processes with one torch thread each; a round outlives any of them."""

    cure = (
        "its message is above; a script that trains must start from 'if __name__ == \"__main__\":', "
        "and backend 'serial' needs no workers"
    )

    def __init__(self, game: Game, workers: int, timeout: float, player: MakePlayer = Player) -> None:
        super().__init__(workers, timeout)
        self._game, self._player = game, player
        with _told_as_no_workers():
            self._context = _context()

    def _hire(self) -> Worker:
        with _told_as_no_workers():
            return ProcessWorker(self._context, self._player, self._game)

    def _pack(self, weights: Weights) -> bytes:
        return packed_weights(weights)

    def _wait(self, workers: Sequence[Worker], seconds: float) -> None:
        ours = [worker for worker in workers if isinstance(worker, ProcessWorker)]
        sources = [source for worker in ours for source in (worker.connection, worker.process.sentinel)]
        wait(sources, seconds)


class ProcessWorker(Worker):
    """The parent's view of one process."""

    def __init__(self, context: Any, player: MakePlayer, game: Game) -> None:
        self.connection, theirs = context.Pipe()
        _limit_stalls(self.connection)
        self.process = context.Process(target=serve, args=(theirs, player, game, str(Path.cwd())), daemon=True)
        try:
            self.process.start()
        except BaseException:
            self.connection.close()
            raise
        finally:
            theirs.close()
        super().__init__(f"pid {self.process.pid}", START_LIMIT)

    def call(self) -> None:
        """Its pipe tells at once when it is dead."""

    def give(self, weights: bytes | None, job: Job) -> None:
        try:
            self.connection.send_bytes(packed((weights, job)))
        except OSError as error:
            raise WorkerLost(self._fate(error)) from error

    def answer(self) -> Answer | Ready | None:
        try:
            if self.connection.poll():
                return unpacked(self.connection.recv_bytes())  # type: ignore[no-any-return]
        except (EOFError, OSError) as error:
            raise WorkerLost(self._fate(error)) from error
        if not self.process.is_alive():
            raise WorkerLost(self._fate(None))
        return None

    def kill(self) -> None:
        self.process.kill()

    def release(self) -> None:
        self.connection.close()
        self.process.join(STALL_LIMIT)
        if self.process.exitcode is not None:
            self.process.close()

    def _fate(self, error: Exception | None) -> str:
        if isinstance(error, BlockingIOError):
            return f"stopped in the middle of a message for {STALL_LIMIT} s"
        self.process.join(1.0)
        code = self.process.exitcode
        if code is None:
            return "closed its pipe"
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def serve(connection: Connection, player: MakePlayer, game: Game, folder: str) -> None:
    """The life of a worker process: jobs come in, answers go out, until the pipe is closed or the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    desk = WorkerPlayer(player, game, folder)
    try:
        connection.send_bytes(packed(Ready()))
        while True:
            weights, job = unpacked(connection.recv_bytes())
            connection.send_bytes(packed(desk.play(weights, job)))
    except (EOFError, OSError):
        return


def _die_with_parent() -> None:
    """A long episode notices nothing by itself, and would keep a core busy for nobody."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


@contextmanager
def _told_as_no_workers() -> Iterator[None]:
    """The system's reasons for not starting a process, in words that say what to do."""
    try:
        yield
    except (OSError, EOFError) as error:
        raise NoWorkers(f"no process can be started ({error}); take fewer workers, or backend 'serial'") from error


def _context() -> BaseContext:
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


def _limit_stalls(connection: Connection) -> None:
    """A process that is stopped while we read from it or write to it must not stop us as well."""
    if os.name != "posix":
        return
    limit = struct.pack("ll", STALL_LIMIT, 0)
    with socket.socket(fileno=os.dup(connection.fileno())) as ours:
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            ours.setsockopt(socket.SOL_SOCKET, option, limit)
