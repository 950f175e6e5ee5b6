"""Episodes on a ray cluster, or on ray on this machine. The only file that imports ray, which is an optional extra."""

import os
import signal
import socket
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

import esper
from esper.contracts import EsperError
from esper.runs.backends.backend import MakePlayer, Weights, usable_cores
from esper.runs.backends.pool import Ready, Worker, WorkerLost, WorkerPool
from esper.runs.backends.worker import Answer, Failure, WorkerPlayer, packed_weights
from esper.runs.player import Game, Job, Player

START_LIMIT = 600.0
"""Seconds in which a cluster must have found room for a worker: a machine may have to be rented first."""
FETCH_LIMIT = 60.0
"""Seconds for an answer to come over from the machine that has it."""
REACH_LIMIT = 10.0
"""Seconds in which a cluster must accept a connection. Ray itself would try for seven minutes."""
STORE_BYTES = 256 * 2**20
"""Shared memory for ray on this machine: weights and answers are small."""

QUIET = {
    "RAY_DEDUP_LOGS_SKIP_REGEX": "worker died or was killed|Raylet is terminated|node with node id",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}
"""Settings that ray reads when it is imported, unless the user has others: lost workers are reported by us and not on
the standard output as well, nothing is sent to ray's makers, and the working directory is not uploaded."""


class MissingRay(EsperError):
    """Ray is not installed."""


class NoCluster(EsperError):
    """No ray cluster can be reached or started."""


class DifferentVersions(EsperError):
    """A machine of the cluster would not play the same episodes."""


@dataclass(frozen=True)
class Origin:
    """Who a worker is, and what it plays with."""

    name: str
    versions: dict[str, str]
    instructions: str
    """Of the processor, as far as torch makes use of them."""

    @classmethod
    def here(cls, name: str) -> "Origin":
        versions = {"esper": esper.__version__, "torch": str(torch.__version__)}
        return cls(name, versions, torch.backends.cpu.get_cpu_capability())


class RayDesk:
    """A desk in a process of ray's."""

    def __init__(self, player: MakePlayer, game: Game, folder: str) -> None:
        self._desk = WorkerPlayer(player, game, folder)

    def origin(self) -> Origin:
        """Asked for first of all: the answer comes once there is room for this worker on some machine."""
        context = import_module("ray").get_runtime_context()
        return Origin.here(f"pid {os.getpid()} on node {context.get_node_id()[:8]}")

    def play(self, weights: list[Any], job: Job) -> Answer:
        """`weights` is empty, or holds the reference to the packed ones."""
        return self._desk.play(import_module("ray").get(weights[0]) if weights else None, job)


class RayBackend(WorkerPool):
    """Actors with one core and one torch thread each. Weights go to every machine once per round.

    Joins the ray that is already running in this process, the cluster at `address` (or at RAY_ADDRESS, as ray itself
    does), or starts ray here; and at the end stops only what it started.
    """

    cure = "look at 'ray status'; every machine needs this package, and a free core per worker"

    def __init__(
        self, game: Game, workers: int | None, timeout: float, address: str | None = None, player: MakePlayer = Player
    ) -> None:
        self._ray = _import_ray()
        self._ours = not self._ray.is_initialized()
        if address is not None and not self._ours:
            present = self._ray.get_runtime_context().gcs_address
            raise NoCluster(f"this process has joined ray at {present} already; give no address to use it")
        if self._ours:
            _connect(self._ray, workers or usable_cores(), address or os.environ.get("RAY_ADDRESS"))
        cores = int(self._ray.cluster_resources().get("CPU", 1))
        super().__init__(workers or max(1, cores), timeout)
        # Ray must not start or play anything again by itself: we do, and say so.
        options = {"num_cpus": 1, "max_restarts": 0, "max_task_retries": 0}
        self._desk = self._ray.remote(**options)(RayDesk)
        self._game, self._player = game, player

    def close(self) -> None:
        super().close()
        if self._ours:
            self._ray.shutdown()

    def _hire(self) -> Worker:
        return RayWorker(self._ray, self._desk.remote(self._player, self._game, str(Path.cwd())))

    def _pack(self, weights: Weights) -> Any:
        return self._ray.put(packed_weights(weights))

    def _wait(self, workers: Sequence[Worker], seconds: float) -> None:
        pending = [worker.owed for worker in workers if isinstance(worker, RayWorker) and worker.owed is not None]
        if pending:
            self._ray.wait(pending, timeout=seconds)


class RayWorker(Worker):
    """The driver's view of one actor."""

    def __init__(self, ray: Any, actor: Any) -> None:
        super().__init__("a worker that had not started", START_LIMIT)
        self._ray, self._actor = ray, actor
        self.owed = actor.origin.remote()
        """The reference to its next answer; None if it owes none."""

    def call(self) -> None:
        self.ready, self.limit, self.asked = False, START_LIMIT, time.monotonic()
        self.owed = self._actor.origin.remote()

    def give(self, weights: Any, job: Job) -> None:
        self.owed = self._actor.play.remote([] if weights is None else [weights], job)

    def answer(self) -> Answer | Ready | None:
        if self.owed is None or not self._ray.wait([self.owed], timeout=0)[0]:
            return None
        found = self._fetch(self.owed)
        self.owed = None
        if isinstance(found, Origin):
            self.name = found.name
            check_origin(found)
            return Ready()
        return found  # type: ignore[no-any-return]

    def kill(self) -> None:
        self._ray.kill(self._actor)

    def release(self) -> None:
        self.owed = None

    def _fetch(self, answer: Any) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(answer, timeout=FETCH_LIMIT)
        except errors.RayTaskError as error:
            # Nothing inside a desk raises, so this is what it was given, or could not give back.
            return Failure.of(error)
        except errors.RayError as error:
            raise WorkerLost(f"was lost ({_short(error)})") from error


def _import_ray() -> Any:
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        return import_module("ray")
    except ImportError as error:
        raise MissingRay(
            "backend 'ray' needs the library 'ray'; install it with: pip install 'esper-growth[ray]'"
        ) from error


def _connect(ray: Any, workers: int, address: str | None) -> None:
    where = {"address": "local", "num_cpus": workers, "object_store_memory": STORE_BYTES, "include_dashboard": False}
    if address is not None:
        _check_reach(address)
        where = {"address": address}
    try:
        with _same_sigterm():
            ray.init(**where, log_to_driver=False, logging_level="ERROR")
    except (OSError, RuntimeError, ValueError) as error:
        place = "can be started on this machine" if address is None else f"can be joined at '{address}'"
        raise NoCluster(f"no ray cluster {place} ({error}); backend 'process' needs none") from error


def _check_reach(address: str) -> None:
    """For addresses with a port; others, such as 'auto', ray looks up by itself."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_LIMIT).close()
    except (OSError, OverflowError) as error:
        raise NoCluster(f"nothing answers at '{address}' ({error}); start a cluster with 'ray start --head'") from error


@contextmanager
def _same_sigterm() -> Iterator[None]:
    """Ray puts its own handler of SIGTERM in place, which would end a run in the middle of a write."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def check_origin(worker: Origin) -> None:
    """The same programs, or results would differ without a word."""
    here = Origin.here("here")
    if worker.versions != here.versions:
        there, ours = (
            " and ".join(f"{name} {version}" for name, version in each.versions.items()) for each in (worker, here)
        )
        raise DifferentVersions(f"{worker.name} has {there}, this machine {ours}; install the same on all machines")
    if worker.instructions != here.instructions:
        warnings.warn(
            f"{worker.name} computes with {worker.instructions}, this machine with {here.instructions}: "
            "episodes depend in the last digits on where they are played",
            stacklevel=2,
        )


def _short(error: Exception) -> str:
    """Of ray's long stories the last line tells most, and of that the first sentence."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1].partition('. ')[0]}" if lines else type(error).__name__
