"""How far a position sees: how much of an image the middle of a slot's features depends on.

Measured, not computed from kernels, so that it holds for any host: one forward and one backward pass on noise.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from esper.contracts import SlotId
from esper.growth.proof import EVALUATION_WITH_GRADIENTS, Example, witnessed

SAMPLES = 4
"""For each slot; a pooling passes on only one position of each sample."""
MOST_VALUES = 2**18
"""In all samples together. Of large images, which come with many channels, one for each slot is enough."""
NEGLIGIBLE = 0.1
"""Of the largest influence. A norm over the whole sample lets every position see all others, a little."""
SEED = 0


@dataclass(frozen=True)
class Reach:
    """`positions` of the input that a feature depends on, and the `share` of all that they are."""

    positions: int
    share: float


def reaches(model: nn.Module, names: Sequence[SlotId], example: Example) -> dict[SlotId, Reach]:
    """Of the slots whose features are images, if the host takes an image; empty if it cannot be run on noise."""
    leaves, structure = pytree.tree_flatten(example)
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    if len(places) != 1 or not _is_image(leaves[places[0]]):
        return {}
    noise = _noise(leaves[places[0]], len(names))
    leaves[places[0]] = noise.clone()  # a first layer may work in place
    try:
        seen = witnessed(model, names, pytree.tree_unflatten(leaves, structure), EVALUATION_WITH_GRADIENTS)
    except Exception:  # a host may ask more of its input than a shape
        return {}
    # Samples do not see each other, so every slot has its own and one pass back serves all.
    own = dict(zip(names, torch.arange(len(noise)).chunk(len(names)), strict=True))
    middles = {name: _middle(seen[name][0], own[name]) for name in names}
    asked = {name: middle for name, middle in middles.items() if middle is not None and middle.requires_grad}
    if not asked:
        return {}
    (gradient,) = torch.autograd.grad(torch.stack(list(asked.values())).sum(), noise)
    found = {name: _reach(gradient[own[name]].abs().sum(dim=(0, 1))) for name in asked}
    return {name: reach for name, reach in found.items() if reach is not None}


def _is_image(value: Tensor) -> bool:
    return value.ndim == 4 and value.is_floating_point() and not value.is_meta


def _noise(like: Tensor, slots: int) -> Tensor:
    samples = max(1, min(SAMPLES, MOST_VALUES // (slots * like[0].numel())))
    draw = torch.Generator().manual_seed(SEED)
    return torch.randn(slots * samples, *like.shape[1:], generator=draw).to(like).requires_grad_()


def _middle(features: Tensor, rows: Tensor) -> Tensor | None:
    """How strong the features in the middle of these samples are."""
    if not _is_image(features) or len(features) <= int(rows[-1]):
        return None
    height, width = features.shape[2:]
    return features[rows, :, height // 2, width // 2].abs().sum()


def _reach(influence: Tensor) -> Reach | None:
    largest = influence.max()
    if not 0.0 < largest < math.inf:
        return None
    positions = int((influence > NEGLIGIBLE * largest).sum())
    return Reach(positions, positions / influence.numel())
