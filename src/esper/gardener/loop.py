"""What a user's training loop shows by itself: every step of the optimiser passes by here."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from esper.gardener.processes import average_gradients, processes
from esper.growth import Body

ALL_OF = 16
EVERY = 32
"""Gradients are measured in the first steps of an epoch, then in so many one, so that it takes no time."""
SPACING = 1.25
"""In an epoch of unknown length gains are looked at in steps so far apart, so that the last one is near its end."""


Arguments = tuple[Any, ...]
Keywords = dict[str, Any]


class Loop:
    """Measures gradients before the optimiser's steps, and lets empty slots look at a batch near the end of an epoch.

    In several processes the gradients of seeds are averaged here, since no wrapper knows them.
    """

    def __init__(self, body: Body, optimizer: Optimizer) -> None:
        self._body, self._host = body, body.host_weights()
        self._hook = optimizer.register_step_pre_hook(self._before_step)
        self.steps = 0
        """Of the present epoch."""
        self.steps_before: int | None = None
        """Of the last epoch; None before the second one."""
        self._norms: list[Tensor] = []
        self.begin()

    def begin(self) -> None:
        """An epoch begins."""
        self.steps, self._norms = 0, []
        self._body.watch_gains()
        self._due = [slot for slot in self._body.slots if slot.meter.armed]
        self._arm()

    def end(self) -> float | None:
        """The epoch is over; the mean norm of the host's gradients, if there were any."""
        self.steps_before = self.steps
        norms = torch.stack(self._norms) if self._norms else torch.zeros(0)
        finite = norms[norms.isfinite()]
        return float(finite.mean()) if len(finite) else None

    def leave(self) -> None:
        """Let the optimiser alone from now on."""
        self._hook.remove()

    def _before_step(
        self, optimizer: Optimizer, args: Arguments, kwargs: Keywords
    ) -> tuple[Arguments, Keywords] | None:
        """The gradients are there, unless a closure is given that computes them in the step."""
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if closure is None:
            self._look()
            return None

        def looked_at() -> Any:
            loss = closure()
            self._look()
            return loss

        return args[:1], {**kwargs, "closure": looked_at}

    def _look(self) -> None:
        """This is called in every step of a user's loop, so most of the time it does next to nothing."""
        if processes() > 1:
            average_gradients([each for slot in self._body.living() for each in slot.seed_parameters])
        if self.steps < ALL_OF or self.steps % EVERY == 0:
            self._body.record_gradients()
            norm = _norm(self._host)
            self._norms += [] if norm is None else [norm]
        self.steps += 1
        if self._due:
            self._arm()

    def _arm(self) -> None:
        for slot in self._due:
            slot.meter.armed = slot.seed is None and self._is_to_be_seen(self.steps)

    def _is_to_be_seen(self, step: int) -> bool:
        """Whether the batch of this step may be the one before the last, as the very last may be ragged."""
        if self.steps_before is not None:
            return step >= self.steps_before - 2
        spaced = 1.0
        while spaced < step:
            spaced = max(spaced + 1.0, spaced * SPACING // 1)
        return spaced == step or step == 0


def _norm(parameters: Sequence[nn.Parameter]) -> Tensor | None:
    """Of the gradients, on their device."""
    gradients = [each.grad for each in parameters if each.grad is not None and not each.grad.is_sparse]
    if not gradients:
        return None
    norms = torch._foreach_norm(gradients)
    norm: Tensor = torch.linalg.vector_norm(torch.stack([each.float().to(norms[0].device) for each in norms]))
    return norm
