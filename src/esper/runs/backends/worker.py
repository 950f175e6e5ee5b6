"""Where a job is played, in whatever process: a player at one torch thread, and what came of each job."""

import os
import pickle
import traceback
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from esper.contracts import EsperError
from esper.runs.backends.backend import EpisodeFailed, MakePlayer, Weights
from esper.runs.player import Game, Job, Played, Player


@dataclass(frozen=True)
class Failure:
    """An error on its way to another process. `error` is None for one that the user cannot mend."""

    error: EsperError | None
    traceback: str

    @classmethod
    def of(cls, error: Exception) -> "Failure":
        kept = error if isinstance(error, EsperError) and _survives(error) else None
        return cls(kept, "".join(traceback.format_exception(error)))

    def raised(self) -> Exception:
        """What to raise on the other side."""
        return self.error or EpisodeFailed(f"a worker failed:\n{self.traceback}")


Answer = Played | Failure


def packed(thing: object) -> bytes:
    """Plain pickled bytes: torch's own way between processes keeps a file descriptor open per tensor."""
    return pickle.dumps(thing, protocol=pickle.HIGHEST_PROTOCOL)


def unpacked(data: bytes) -> Any:
    """What was packed by this same program."""
    return pickle.loads(data)


def packed_weights(weights: Weights) -> bytes:
    """Copies in main memory, so that no worker needs the caller's device."""
    return packed({name: value.detach().cpu() for name, value in weights.items()})


def quiet_player(make: MakePlayer, game: Game) -> Player:
    """A player whose first weights, which are never played, leave the global random numbers as they were."""
    with torch.random.fork_rng(devices=[]):
        return make(game)


class WorkerPlayer:
    """One worker's place. The player is made for the first job, so that an error in making it is an answer as well.

    `folder` is the caller's working directory: tasks and data may be named by relative paths.
    """

    def __init__(self, make: MakePlayer, game: Game, folder: str) -> None:
        self._make, self._game = make, game
        self._player: Player | None = None
        torch.set_num_threads(1)
        with suppress(OSError):  # another machine may not have it
            os.chdir(folder)

    def play(self, weights: bytes | None, job: Job) -> Answer:
        """Play under these weights, or under the last ones."""
        try:
            if self._player is None:
                self._player = quiet_player(self._make, self._game)
            if weights is not None:
                self._player.load(unpacked(weights))
            return self._player.play(job)
        except Exception as error:
            return Failure.of(error)


def _survives(error: EsperError) -> bool:
    """Whether it can be pickled and made again; an error with a constructor of its own often cannot."""
    try:
        return type(unpacked(packed(error))) is type(error)
    except Exception:
        return False
