"""What a worker does with a job, in whatever process: play it at one torch thread, and say what came of it."""

import os
import pickle
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import torch

from esper.contracts import EsperError
from esper.environment import Splits
from esper.runs.backends.backend import EpisodeFailed, MakePlayer
from esper.runs.player import Game, Job, Played, Player


@dataclass(frozen=True)
class Parcel:
    """What all jobs of a round have in common."""

    player: MakePlayer
    game: Game
    folder: str
    """The caller's working directory: tasks and data may be named by relative paths."""
    backend: str
    """A worker makes a player for each."""
    round: int
    weights: bytes | None
    """Pickled; a worker loads them once a round."""


@dataclass(frozen=True)
class Failure:
    """An error on its way to another process. `error` is None for one that the user cannot mend."""

    error: EsperError | None
    traceback: str

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        kept = error if isinstance(error, EsperError) and _survives(error) else None
        return cls(kept, "".join(traceback.format_exception(error)))

    def raised(self) -> Exception:
        """What to raise on the other side."""
        return self.error or EpisodeFailed(f"a worker failed:\n{self.traceback}")


Answer = Played | Failure


def quiet_player(make: MakePlayer, game: Game) -> Player:
    """A player whose first weights, which are never played, leave the global random numbers as they were."""
    with torch.random.fork_rng(devices=[]):
        return make(game)


class WorkerPlayer:
    """The player of this process, if it is a worker."""

    def __init__(self) -> None:
        self._player: Player | None = None
        self._backend, self._round = "", 0

    def play(self, parcel: Parcel, job: Job, data: Callable[[], Splits] | None = None) -> Answer:
        """What came of the job. `data` gives that of its task, where it need not be loaded."""
        try:
            player = self._prepared(parcel)
            if data is not None and job.task not in player.data:
                player.data[job.task] = data()
            return player.play(job)
        except BaseException as error:  # also SystemExit, which would end the worker without a word
            return Failure.of(error)

    def _prepared(self, parcel: Parcel) -> Player:
        if self._player is None or self._backend != parcel.backend:
            torch.set_num_threads(1)
            with suppress(OSError):  # another machine may not have it
                os.chdir(parcel.folder)
            self._player = quiet_player(parcel.player, parcel.game)
            self._backend, self._round = parcel.backend, 0
        if self._round != parcel.round and parcel.weights is not None:
            self._player.load(pickle.loads(parcel.weights))
        self._round = parcel.round
        return self._player


HERE = WorkerPlayer()


def _survives(error: EsperError) -> bool:
    """Whether it can be pickled and made again; an error with a constructor of its own often cannot."""
    try:
        return type(pickle.loads(pickle.dumps(error))) is type(error)
    except Exception:
        return False
