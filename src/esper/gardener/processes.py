"""Several processes that train one model: the first one decides, and all have the same weights."""

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor, distributed, nn

Value = TypeVar("Value")


def processes() -> int:
    """How many train together."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def is_first() -> bool:
    """Whether this is the process that decides and writes."""
    return processes() == 1 or distributed.get_rank() == 0


def of_the_first(value: Value) -> Value:
    """What the first process has, in all of them."""
    if processes() == 1:
        return value
    shared = [value]
    distributed.broadcast_object_list(shared, src=0)
    return shared[0]


def average_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """Give the parameters the mean of their gradients over the processes; those without a gradient count as 0.

    Gradients that are the same everywhere, because a wrapper has averaged them already, stay what they are.
    """
    if not parameters:
        return
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    flat = torch.cat([parameter.grad.flatten() for parameter in parameters if parameter.grad is not None])
    distributed.all_reduce(flat)
    sizes = [parameter.numel() for parameter in parameters]
    for parameter, mean in zip(parameters, (flat / processes()).split(sizes), strict=True):
        parameter.grad = mean.view_as(parameter).to(parameter.dtype)


def share_buffers(buffers: Sequence[Tensor]) -> None:
    """Give the buffers what they are in the first process."""
    if processes() > 1:
        for buffer in buffers:
            distributed.broadcast(buffer, src=0)
