"""Episodes on a ray cluster, or on ray on this machine. The only file that imports ray, which is an optional extra."""

import os
import signal
import socket
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import esper
from esper.contracts import EsperError, Token
from esper.environment import Split, Splits, is_drawn
from esper.runs.backends.backend import MakePlayer, usable_cores
from esper.runs.backends.pool import Assignment, Pool, WorkerLost
from esper.runs.backends.worker import HERE, Answer, Failure, Parcel
from esper.runs.player import Game, Job, Player

FETCH_LIMIT = 60.0
"""Seconds for an answer to come over from the machine that has it."""
REACH_LIMIT = 10.0
"""Seconds in which a cluster must accept a connection. Ray itself would try for seven minutes."""

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


class BadGpus(EsperError):
    """A share of a GPU that no worker can have."""


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


class RayTask(Assignment):
    """A task of ray's: its worker says who it is, then what came of the job."""

    def __init__(self, words: Any) -> None:
        super().__init__()
        self.words = words
        self.answer: Answer | WorkerLost | None = None


class RayBackend(Pool[RayTask]):
    """Tasks with one core and one torch thread each. Weights go to every machine once per round, data once.

    Joins the ray that is already running in this process, the cluster at `address` (or at RAY_ADDRESS, as ray itself
    does), or starts ray here; and at the end stops only what it started.
    """

    start_limit = 600.0  # a machine may have to be rented first
    cure = "look at 'ray status'; every machine needs this package, and a free core per worker"

    def __init__(
        self,
        game: Game,
        workers: int | None,
        timeout: float,
        address: str | None = None,
        player: MakePlayer = Player,
        gpus_per_worker: float = 0.0,
    ) -> None:
        needs = resources(game.compute.device, gpus_per_worker)
        self._ray = _import_ray()
        self._ours = not self._ray.is_initialized()
        if address is not None and not self._ours:
            present = self._ray.get_runtime_context().gcs_address
            raise NoCluster(f"this process has joined ray at {present} already; give no address to use it")
        if self._ours:
            _connect(self._ray, workers or usable_cores(), address or os.environ.get("RAY_ADDRESS"))
        super().__init__(game, workers or room(self._ray.cluster_resources(), needs), timeout, player)
        # Ray must not play anything again by itself: we do, and say so.
        self._play = self._ray.remote(max_retries=0, num_returns="streaming", **needs)(play)
        self._data: dict[str, Any] = {}
        self._stored: dict[Splits, Any] = {}

    def close(self) -> None:
        """Stop ray, if it was started here; tasks do not outlive their round."""
        self._data, self._stored = {}, {}
        if self._ours:
            self._ray.shutdown()

    def _pack(self, parcel: Parcel) -> Any:
        return self._ray.put(parcel)

    def _submit(self, parcel: Any, job: Job) -> RayTask:
        return RayTask(self._play.remote(parcel, job, self._references(job.task)))

    def _references(self, task: str) -> list[Any]:
        """Of the task's data. What families draw is made where it is played, and then forgotten."""
        if is_drawn(task):
            return []
        if task not in self._data:
            self._data[task] = self._store(self._game.load_data(task))
        return [self._data[task]]

    def _store(self, splits: Splits) -> Any:
        """The reference to data that all workers of a machine share. Tasks with the same data share it as well."""
        if splits not in self._stored:
            self._stored[splits] = self._ray.put(arrays(splits))
        return self._stored[splits]

    def _wait(self, tasks: Sequence[RayTask], seconds: float) -> Iterable[RayTask]:
        speakers = {task.words: task for task in tasks}
        ready, _ = self._ray.wait(list(speakers), timeout=seconds)
        for words in ready:
            self._listen(speakers[words])
        return [task for task in tasks if task.answer is not None]

    def _listen(self, task: RayTask) -> None:
        errors = self._ray.exceptions
        try:
            said = self._ray.get(next(task.words), timeout=FETCH_LIMIT)
        except errors.RayTaskError as error:
            # Nothing that is played raises, so this is what the task was given, or could not give back.
            task.answer = Failure.of(error)
        except errors.RayError as error:
            task.answer = WorkerLost(f"was lost ({type(error).__name__})", while_playing=task.began is not None)
        else:
            if isinstance(said, Origin):
                check_origin(said)
                task.begin(said.name)
            else:
                task.answer = said

    def _answer(self, task: RayTask) -> Answer:
        assert task.answer is not None
        if isinstance(task.answer, WorkerLost):
            raise task.answer
        return task.answer

    def _stop(self, tasks: Iterable[RayTask]) -> None:
        for task in tasks:
            self._ray.cancel(task.words, force=True)


def play(parcel: Parcel, job: Job, data: Sequence[Any]) -> Iterator[Origin | Answer]:
    """In a worker: who it is, then what came of the job. `data` may hold the reference to that of the job's task."""
    ray = import_module("ray")
    yield Origin.here(f"pid {os.getpid()} on node {ray.get_runtime_context().get_node_id()[:8]}")
    yield HERE.play(parcel, job, (lambda: splits_of(ray.get(data[0]))) if data else None)


def arrays(splits: Splits) -> list[NDArray[Any]]:
    """In the form in which processes of one machine share them."""
    parts = (splits.train, splits.evaluation, splits.test)
    sizes = np.array([astuple(split.token) for split in parts])
    return [*(part.numpy() for split in parts for part in (split.x, split.y)), sizes]


def splits_of(given: Sequence[NDArray[Any]]) -> Splits:
    """The same data, not copied."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable")  # nobody writes to a split
        *parts, sizes = map(torch.from_numpy, given)
    tokens = [Token(*size) for size in sizes.tolist()]
    train, evaluation, test = (Split(parts[2 * at], parts[2 * at + 1], token) for at, token in enumerate(tokens))
    return Splits(train, evaluation, test)


def resources(device: str, gpus_per_worker: float) -> dict[str, float]:
    """What a task asks ray for. On a GPU that is one of its own, or the share `gpus_per_worker` of one."""
    if not 0 <= gpus_per_worker <= 1:
        raise BadGpus(
            f"gpus_per_worker is {gpus_per_worker:g}; an episode plays on one GPU: give 1, or a fraction to share it"
        )
    on_gpu = device.startswith("cuda")
    return {"num_cpus": 1, "num_gpus": gpus_per_worker or 1} if on_gpu else {"num_cpus": 1}


def room(cluster: Mapping[str, float], needs: Mapping[str, float]) -> int:
    """How many workers the cluster has room for; at least one, because a cluster may grow."""
    names = {"num_cpus": "CPU", "num_gpus": "GPU"}
    return max(1, min(int(cluster.get(names[need], 0) / amount) for need, amount in needs.items()))


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
    where = {"address": "local", "num_cpus": workers, "include_dashboard": False}
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
