"""Copies of parts of a host: without what may grow in them, or without values."""

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

from esper.growth.attachment import CHILD, Attached, detach

Part = TypeVar("Part", bound=nn.Module)


def bare(part: Part) -> Part:
    """A copy without slots, and so without seeds."""
    slots = [each._modules[CHILD] for each in part.modules() if isinstance(each, Attached)]
    twin = copy.deepcopy(part, {id(slot): slot for slot in slots})
    for each in list(twin.modules()):
        if isinstance(each, Attached):
            detach(each)
    return twin


def hollow(part: Part) -> Part:
    """A copy whose tensors have shapes and no values."""
    tensors = [*part.parameters(), *part.buffers()]
    return copy.deepcopy(part, {id(each): _hollow(each) for each in tensors})


def _hollow(tensor: Tensor) -> Tensor:
    empty = torch.empty_like(tensor, device="meta")
    return nn.Parameter(empty, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else empty
