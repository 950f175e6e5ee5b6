"""Backends by name."""

from esper.contracts import EsperError, nearest
from esper.runs.backends.backend import Backend, BadWorkers, MakePlayer, usable_cores
from esper.runs.backends.process import ProcessBackend
from esper.runs.backends.ray import RayBackend
from esper.runs.backends.serial import SerialBackend
from esper.runs.player import Game, Player

DEFAULT_TIMEOUT = 600.0
BACKENDS = ("serial", "process", "ray")


class UnknownBackend(EsperError):
    """No backend has that name."""


def make_backend(
    name: str,
    game: Game,
    workers: int | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    ray_address: str | None = None,
    player: MakePlayer = Player,
    gpus_per_worker: float = 0.0,
) -> Backend:
    """The backend of that name. Without `workers`, or with 0, it has one per core of the machine or cluster.

    A worker that does not answer within `timeout` seconds is replaced. Without `ray_address`, ray runs on this machine.
    `player` is what a worker plays with. On device 'cuda' each worker of ray has a GPU of its own, or this share.
    """
    if name not in BACKENDS:
        raise UnknownBackend(f"no backend '{name}'; {nearest(name, BACKENDS)}")
    if workers is not None and workers < 0:
        raise BadWorkers(f"{workers} workers cannot play; give at least 1, or 0 for one per core")
    if name == "serial":
        if workers and workers > 1:
            raise BadWorkers(
                f"backend 'serial' has one worker, not {workers}; take backend 'process', or leave workers out"
            )
        return SerialBackend(game, player)
    if name == "ray":
        return RayBackend(game, workers or None, timeout, ray_address or None, player, gpus_per_worker)
    return ProcessBackend(game, workers or usable_cores(), timeout, player)
