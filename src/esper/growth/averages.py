"""Averages of a model's weights, such as `torch.optim.swa_utils.AveragedModel` keeps, across births and removals."""

from collections.abc import Sequence

from torch import nn

from esper.contracts import EsperError
from esper.growth.attachment import Attached, detach
from esper.growth.slot import Slot


class NotAnAverage(EsperError):
    """What was given holds no copy of the model with its slots."""


class Average:
    """A copy of the model, in which seeds come and go as they do in the model.

    Weights are paired by their order, so that an average without a newborn would mix up all that come after it.
    """

    def __init__(self, averaged: nn.Module, slots: Sequence[Slot]) -> None:
        self._averaged = averaged
        self._twins = {part.id: part for part in averaged.modules() if isinstance(part, Slot)}
        if any(slot.id not in self._twins for slot in slots):
            raise NotAnAverage(
                "the average has no copy of the slots; make it of the model after `graft` or the gardener"
            )
        if any(slot is self._twins[slot.id] for slot in slots):
            raise NotAnAverage("this is the model itself; give an average of it, such as AveragedModel(model)")
        for slot in slots:
            self.follow(slot)

    def follow(self, slot: Slot) -> None:
        """Let the copy of `slot` be as it is: a newborn is copied, a seed that was there keeps its averaged weights."""
        self._twins[slot.id].mirror(slot)

    def ungraft(self) -> None:
        """Take the slots out of the copy."""
        for part in list(self._averaged.modules()):
            if isinstance(part, Attached):
                detach(part)
