"""The network that an agent needs for what it is shown and what it may do."""

import operator
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from esper.rl.errors import RLError, WrongShape
from esper.rl.gaussian_network import GaussianNetwork
from esper.rl.inputs import inputs_for
from esper.rl.network import VectorConfig, VectorNetwork
from esper.rl.rows import Interface

Heads = Mapping[str, Sequence[int]]
"""The heads in order, each with the choices of the first one under which it is used."""


def plain_heads(heads: Heads | None) -> dict[str, tuple[int, ...]] | None:
    """As numbers, for a file; refused if it is no table."""
    try:
        return None if heads is None else {name: tuple(map(operator.index, under)) for name, under in heads.items()}
    except (AttributeError, TypeError):
        raise RLError(
            f"heads = {heads!r}; give the name of each head with the choices of the first one under which it is used, "
            "as in {'op': [], 'door': [1]}"
        ) from None


def network_for(
    interface: Interface, heads: Heads | None, sizes: VectorConfig, seed: int
) -> VectorNetwork | GaussianNetwork:
    """Newborn, from a seed of its own, on the device of the interface."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return _made(interface, heads, sizes).to(interface.device)


def _made(interface: Interface, heads: Heads | None, sizes: VectorConfig) -> VectorNetwork | GaussianNetwork:
    observations, actions, _ = interface
    inputs = inputs_for(observations, sizes.normalise, sizes.encoder)
    names, uses = _uses(actions.sizes, heads)
    if actions.continuous:
        if heads is not None and any(heads.values()):
            raise RLError("heads says under which choices heads are used; actions are real numbers, which are all used")
        low, high = torch.from_numpy(actions.low), torch.from_numpy(actions.high)
        return GaussianNetwork(inputs, names, low, high, sizes)
    return VectorNetwork(inputs, dict(zip(names, actions.sizes, strict=True)), uses, sizes)


def _uses(sizes: Sequence[int], heads: Heads | None) -> tuple[tuple[str, ...], Tensor | None]:
    """Names of the heads, and which of them are used under each choice of the first."""
    if heads is None:
        return tuple(f"head{place}" for place in range(len(sizes))), None
    if len(heads) != len(sizes):
        raise WrongShape(f"heads names {len(heads)} heads; the action space has {len(sizes)}")
    uses = torch.zeros(sizes[0], len(sizes), dtype=torch.bool)
    uses[:, 0] = True
    for place, (name, under) in enumerate(heads.items()):
        if place and any(not 0 <= choice < sizes[0] for choice in under):
            raise RLError(f"head '{name}' is used under {list(under)}; the first head has choices 0 to {sizes[0] - 1}")
        if place:
            uses[list(under), place] = True
    return tuple(heads), uses
