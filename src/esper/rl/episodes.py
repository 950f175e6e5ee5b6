"""Recorded episodes, as learners ask for them: a file, or rows in memory."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from esper.rl.errors import NoSteps
from esper.rl.gae import advantages
from esper.rl.network import Network
from esper.rl.normalise import Moments
from esper.rl.sequences import Sequences


class Episodes(Protocol):
    """Whole episodes, a row each, that can be gone through again and again."""

    def batches(self, episodes_per_batch: int, generator: torch.Generator) -> Iterator[Sequences]:
        """All of them once, in an order drawn from the generator, so many at a time."""
        ...


class EpisodesInMemory:
    """Rows that are there already."""

    def __init__(self, rows: Sequences) -> None:
        self.rows = rows

    def batches(self, episodes_per_batch: int, generator: torch.Generator) -> Iterator[Sequences]:
        for some in torch.randperm(self.rows.rows, generator=generator).split(episodes_per_batch):
            yield trimmed(self.rows.take(some))

    def split(self, held_out: float, generator: torch.Generator) -> tuple["EpisodesInMemory", "EpisodesInMemory"]:
        """To learn from, and a share to be judged on; at least one episode each."""
        if self.rows.rows < 2:
            raise NoSteps("there is one episode; give at least two, so that one can be held out")
        order = torch.randperm(self.rows.rows, generator=generator)
        count = min(max(1, round(held_out * len(order))), len(order) - 1)
        return EpisodesInMemory(self.rows.take(order[count:])), EpisodesInMemory(self.rows.take(order[:count]))


def begun(rows: Sequences, network: Network) -> Sequences:
    """The rows with the memory of this network before their first steps: each begins with its episode."""
    return rows._replace(state=network.memory.start(rows.rows))


def trimmed(rows: Sequences) -> Sequences:
    """Without the steps behind the longest row's last one."""
    steps = int(rows.valid.any(dim=0).nonzero().max()) + 1 if bool(rows.valid.any()) else 0
    return rows.mapped(lambda part: part[:, :steps], rows.state)


def returns_to_go(rows: Sequences, discount: float) -> Tensor:
    """What came after each step, (B, T)."""
    nothing = torch.zeros_like(rows.rewards)
    return advantages(rows.rewards, nothing, rows.bootstrap, rows.ends, rows.valid, discount, smoothing=1.0)


class Contents(NamedTuple):
    """What is in the episodes, found in one pass."""

    episodes: int
    steps: int
    returns: Moments
    """Of what came after each step."""
    chosen: Tensor
    """How often the first head chose each of its choices where it had several."""

    @classmethod
    def of(cls, episodes: Episodes, heads: int, discount: float, batch: int) -> "Contents":
        """Refuses what cannot be learned from."""
        found = cls(0, 0, Moments(), torch.zeros(0))
        for rows in episodes.batches(batch, torch.Generator().manual_seed(0)):
            rows.check(heads)
            free = rows.free[..., 0] & rows.valid
            chosen = torch.zeros(0) if rows.choices.is_floating_point() else torch.bincount(rows.choices[..., 0][free])
            room = max(len(chosen), len(found.chosen))
            chosen, before = (torch.nn.functional.pad(each, (0, room - len(each))) for each in (chosen, found.chosen))
            found = cls(
                found.episodes + rows.rows,
                found.steps + int(rows.valid.sum()),
                found.returns.updated(returns_to_go(rows, discount)[rows.valid]),
                before + chosen,
            )
        if not found.episodes:
            raise NoSteps("there are no episodes to learn from; record some first")
        return found
