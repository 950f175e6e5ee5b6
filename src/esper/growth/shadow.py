"""The shadow pass: train isolated seeds on the loss that they would cause if they were blended in."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from esper.growth.chain import chain_of
from esper.growth.slot import Isolation, Slot


def shadow_pass(
    host: nn.Module, slots: Sequence[Slot], loss_of: Callable[[Any], Tensor], *args: Any, **kwargs: Any
) -> None:
    """Add to each isolated seed the gradient of `loss_of(output)` with this seed alone blended in at its target.

    Call it after the ordinary pass of the same batch and its `backward()`. Nothing but these seeds' `.grad`
    changes: not the host's gradients, not its buffers, not the random state. Seeds that are trained straight
    through are left alone.
    """
    isolated = [slot for slot in slots if slot.isolated and slot.isolation is Isolation.SHADOW]
    if not isolated:
        return
    chain = chain_of(host, slots)
    seen = [slot.isolated_input for slot in isolated]  # before a pass of one slot changes what another sees
    for slot, features in zip(isolated, seen, strict=True):
        start = chain.index_of(slot) if chain is not None else None
        with _untouched(host, but=slot), torch.random.fork_rng(), slot.set(shadowed=True):
            if chain is None or start is None or features is None:
                loss = loss_of(host(*args, **kwargs))
            else:
                with chain.in_hand():
                    loss = loss_of(chain.run(features, start))
            _accumulate(loss, slot.seed_parameters)
    for slot in isolated:
        slot.isolated_input = None


def _accumulate(loss: Tensor, parameters: Sequence[nn.Parameter]) -> None:
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is not None:
            gradient = gradient.contiguous()  # autograd may hand out one number expanded to many
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient


@contextmanager
def _untouched(host: nn.Module, but: Slot) -> Iterator[None]:
    """Running statistics outside of the slot are as before afterwards; a backward pass that needs them comes first."""
    own = {id(buffer) for buffer in but.buffers()}
    before = [(buffer, buffer.clone()) for buffer in host.buffers() if id(buffer) not in own]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in before:
                buffer.copy_(value)
