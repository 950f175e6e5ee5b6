"""Random numbers of an episode: one stream per purpose, all derived from the episode's seed, never the global one."""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from threading import RLock

import torch

TURN = RLock()
"""Held by an episode at work: all threads of a process share torch's global generator, so they take turns."""


def derive(seed: int, *purpose: str | int) -> int:
    """A number for one purpose; other purposes and seeds get unrelated ones.

    >>> derive(7, "weights") == derive(7, "weights"), derive(7, "weights") == derive(7, "order")
    (True, False)
    """
    text = "/".join(map(str, (seed, *purpose)))
    return int.from_bytes(blake2b(text.encode(), digest_size=7).digest())


def stream(seed: int, *purpose: str | int) -> torch.Generator:
    """A generator of its own for one purpose."""
    return torch.Generator().manual_seed(derive(seed, *purpose))


@contextmanager
def global_draws_from(seed: int, *purpose: str | int) -> Iterator[None]:
    """For code that can only draw from the global CPU generator: lend it a stream, then put the old state back."""
    with TURN, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive(seed, *purpose))
        yield
