"""Episodes one after the other, in this process."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from esper.runs.backends.backend import Backend, Done, MakePlayer, Replaced, Weights, check_weights
from esper.runs.backends.worker import quiet_player
from esper.runs.player import Game, Job, Played, Player


@contextmanager
def one_thread() -> Iterator[None]:
    """One torch thread, and then as many as there were."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class SerialBackend(Backend):
    """Needs nothing, shows errors where they happen, and has no worker to lose."""

    def __init__(self, game: Game, player: MakePlayer = Player) -> None:
        self.workers = 1
        self._player = quiet_player(player, game)

    def map(self, weights: Weights | None, jobs: Sequence[Job], done: Done, replaced: Replaced) -> list[Played]:
        """See `Backend`."""
        check_weights(weights, jobs)
        results = []
        if weights is not None:
            self._player.load(weights)
        for job in jobs:
            with one_thread():
                results.append(self._player.play(job))
            done(results[-1])
        return results
