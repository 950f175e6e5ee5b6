"""What every backend can do, and what can go wrong in all of them."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from torch import Tensor

from esper.contracts import EsperError
from esper.runs.player import LEARNED, Game, Job, Played, Player
from esper.telemetry import WorkerReplaced

Weights = Mapping[str, Tensor]
MakePlayer = Callable[[Game], Player]
Done = Callable[[Played], None]
Replaced = Callable[[WorkerReplaced], object]


class BadWorkers(EsperError):
    """A number of workers that the backend cannot have."""


class NoWeights(EsperError):
    """A learned policy was asked for, and no weights were given."""


class NoWorkers(EsperError):
    """Workers cannot be started."""


class EpisodeLost(EsperError):
    """An episode took its worker with it every time it was played."""


class EpisodeFailed(RuntimeError):
    """An episode raised an error that no user can mend; the message is the worker's traceback."""


class Backend(ABC):
    """Plays jobs, `workers` of them at a time. Leaving its context closes it."""

    workers: int

    @abstractmethod
    def map(self, weights: Weights | None, jobs: Sequence[Job], done: Done, replaced: Replaced) -> list[Played]:
        """Play all jobs under these weights; the results are in the order of the jobs.

        `done` and `replaced` are called in the calling thread, as episodes complete and as workers are lost. The first
        error of an episode ends the round.
        """

    def close(self) -> None:  # noqa: B027  # a backend without workers has nothing to do
        """Let all workers go."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def usable_cores() -> int:
    """Those that this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_weights(weights: Weights | None, jobs: Sequence[Job]) -> None:
    """Without weights every worker would play a network of its own making."""
    learned = next((job.policy for job in jobs if job.policy in LEARNED), None)
    if weights is None and learned is not None:
        raise NoWeights(
            f"policy '{learned}' needs the weights of a network; give them, or play a control such as 'none'"
        )
