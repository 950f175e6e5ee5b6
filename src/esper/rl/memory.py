"""What a policy remembers: the interface of a memory over rows in which episodes follow each other, or nothing at all.

The contract of the state: what is stored with a row is the state *before* its first step, detached. Replaying the row
rebuilds every later state from it, and sets it to zero wherever `starts` says so, as acting did.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn


class MemoryState(NamedTuple):
    """Two parts, each (layers, B, size); what they mean is up to the kind of memory."""

    hidden: Tensor
    cell: Tensor

    def detached(self) -> "MemoryState":
        return MemoryState(self.hidden.detach(), self.cell.detach())

    def take(self, rows: Tensor) -> "MemoryState":
        """Some of the rows, by index or by mask."""
        return MemoryState(self.hidden[:, rows], self.cell[:, rows])


class Memory(nn.Module, ABC):
    """Turns inputs into features that depend on everything seen since an episode started."""

    size: int
    """Width of the features."""

    def schema(self) -> dict[str, object]:
        """What must agree for weights to fit, beside its kind and size."""
        return {}

    def take_in(self, inputs: Tensor, valid: Tensor) -> None:
        """Let a first rollout of inputs (B, T, D) say what is usual, before anything was learned."""

    @abstractmethod
    def start(self, rows: int) -> MemoryState:
        """The state of `rows` episodes that have not begun: zeros."""

    @abstractmethod
    def replay(self, inputs: Tensor, state: MemoryState, starts: Tensor) -> tuple[Tensor, MemoryState]:
        """Features (B, T, size) and the state behind the last step; inputs (B, T, D), starts (B, T)."""

    def forward(self, inputs: Tensor, state: MemoryState, starts: Tensor) -> tuple[Tensor, MemoryState]:
        """`inputs` (B, T, D) with `starts` (B, T), or one step: (B, D) with `starts` (B)."""
        if inputs.dim() == 3:
            return self.replay(inputs, state, starts)
        features, state = self.replay(inputs.unsqueeze(1), state, starts.unsqueeze(1))
        return features.squeeze(1), state


class NoMemory(Memory):
    """For policies that see only the present: features are the inputs, and the state is empty."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.size = inputs

    def start(self, rows: int) -> MemoryState:
        return MemoryState(torch.zeros(0, rows, 0), torch.zeros(0, rows, 0))

    def replay(self, inputs: Tensor, state: MemoryState, starts: Tensor) -> tuple[Tensor, MemoryState]:
        return inputs, state
