"""Which topology features have. Their axes tell most; whether a host looks ahead is found out by running it."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from esper.contracts import LAYOUTS, SlotId, Topology
from esper.growth.proof import EVALUATION, Example, run, witnessed


def topology_of(shape: Sequence[int], tokens: int | None) -> Topology | None:
    """Of features of that shape, in a host that is causal in so many `tokens`, or not at all.

    >>> topology_of((2, 8, 16), tokens=8), topology_of((2, 8, 16), tokens=None), topology_of((2,), tokens=None)
    (<Topology.TRANSFORMER: 'transformer'>, <Topology.DENSE: 'dense'>, None)
    """
    in_order = tokens is not None and len(shape) == 3 and shape[1] == tokens
    fitting = (
        kind for kind, layout in LAYOUTS.items() if len(shape) in layout.ranks and (in_order or not layout.causal)
    )
    return next(fitting, None)


def causal_tokens(model: nn.Module, names: Sequence[SlotId], example: Example) -> int | None:
    """How many tokens of the example are in a row, if the host is causal: what comes later changes nothing before it.

    The named submodules and the host's outputs are looked at, while the later half of all rows is exchanged. `None` if
    something does change, or if that cannot be told.
    """
    leaves, structure = pytree.tree_flatten(example)
    lengths = {leaf.shape[1] for leaf in leaves if _is_row_of_tokens(leaf)}
    if len(lengths) != 1 or (tokens := lengths.pop()) < 2:
        return None
    first = tokens // 2
    other = pytree.tree_unflatten([_with_other_end(leaf, first) for leaf in leaves], structure)
    before = _features(model, names, example, tokens)
    try:
        after = _features(model, names, other, tokens)
    except Exception:  # a host may ask more of its input than a shape
        return None
    pairs = list(zip(before, after, strict=True))
    same_start = all(torch.equal(one[:, :first], two[:, :first]) for one, two in pairs)
    other_end = any(not torch.equal(one[:, first:], two[:, first:]) for one, two in pairs)
    return tokens if same_start and other_end else None


def _is_row_of_tokens(value: object) -> bool:
    """By number (batch, tokens), or as features (batch, tokens, channels)."""
    return isinstance(value, Tensor) and not value.is_meta and value.ndim == (3 if value.is_floating_point() else 2)


def _with_other_end(value: object, first: int) -> object:
    """Other tokens from `first` on, such as every vocabulary has."""
    if not isinstance(value, Tensor) or not _is_row_of_tokens(value):
        return value
    end = value[:, first:]
    other = 1.0 - end if value.is_floating_point() else (end == 0).to(end.dtype)
    return torch.cat([value[:, :first], other], dim=1)


def _features(model: nn.Module, names: Sequence[SlotId], example: Example, tokens: int) -> list[Tensor]:
    """What the named submodules and the host put out for every token."""
    seen = witnessed(model, names, example, EVALUATION)
    everything = [*run(model, example, EVALUATION), *(each for found in seen.values() for each in found)]
    return [each for each in everything if isinstance(each, Tensor) and each.ndim == 3 and each.shape[1] == tokens]
