"""What a policy remembers: an LSTM over rows in which episodes follow each other, or nothing at all."""

from typing import NamedTuple

import torch
from torch import Tensor, nn


class MemoryState(NamedTuple):
    """Hidden and cell state, each (layers, B, size)."""

    hidden: Tensor
    cell: Tensor

    def detached(self) -> "MemoryState":
        return MemoryState(self.hidden.detach(), self.cell.detach())

    def take(self, rows: Tensor) -> "MemoryState":
        """Some of the rows, by index or by mask."""
        return MemoryState(self.hidden[:, rows], self.cell[:, rows])


FIRMLY = 1e4
"""A preactivation at which a gate is 0 or 1 to the last bit, and safe in half precision."""


class Memory(nn.Module):
    """An LSTM that forgets where an episode starts.

    The contract of the state: what is stored with a row is the state *before* its first step, detached. Replaying the
    row rebuilds every later state from it, and sets it to zero wherever `starts` says so, as acting did. There is no
    normalisation behind the LSTM: its output lies in (-1, 1) by construction.
    """

    signals: Tensor

    def __init__(self, inputs: int, size: int, layers: int = 1) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inputs, size, num_layers=layers, batch_first=True)
        for name, parameter in self.lstm.named_parameters():
            if name.startswith("weight"):
                nn.init.orthogonal_(parameter)
            else:
                nn.init.zeros_(parameter)
        for layer in range(layers):
            # The gates lie in the order input, forget, cell, output; only one of the two biases gets the 1.
            bias = getattr(self.lstm, f"bias_ih_l{layer}")
            nn.init.ones_(bias.detach()[size : 2 * size])
        # Weights of two signals: one shuts the input, forget and output gates, one opens the forget gate nevertheless.
        shut = torch.tensor([-FIRMLY, -FIRMLY, 0.0, -FIRMLY])
        hold = torch.tensor([0.0, 2 * FIRMLY, 0.0, 0.0])
        signals = torch.stack([shut, hold], dim=-1).repeat_interleave(size, dim=0)
        self.register_buffer("signals", signals, persistent=False)

    @property
    def size(self) -> int:
        return self.lstm.hidden_size

    def start(self, rows: int) -> MemoryState:
        """The state of `rows` episodes that have not begun."""
        weight = next(self.lstm.parameters())
        zeros = weight.new_zeros(self.lstm.num_layers, rows, self.lstm.hidden_size)
        return MemoryState(zeros, zeros.clone())

    def forward(self, inputs: Tensor, state: MemoryState, starts: Tensor) -> tuple[Tensor, MemoryState]:
        """`inputs` (B, T, D) with `starts` (B, T), or one step: (B, D) with `starts` (B)."""
        if inputs.dim() == 2:
            output, state = self(inputs.unsqueeze(1), state, starts.unsqueeze(1))
            return output.squeeze(1), state
        keep = (~starts[:, 0]).to(inputs.dtype).unsqueeze(-1)
        state = MemoryState(state.hidden * keep, state.cell * keep)
        if starts[:, 1:].any():
            return self._through_starts(inputs, state, starts)
        output, last = self.lstm(inputs, state)
        return output, MemoryState(*last)

    def _through_starts(self, inputs: Tensor, state: MemoryState, starts: Tensor) -> tuple[Tensor, MemoryState]:
        """Still one call of the LSTM, which costs much less than one call between any two starts.

        A step that wipes the memory goes before each start inside a row, and steps that hold it go behind rows with
        fewer starts. Their signals have weights of their own, which drive the gates to exactly 0 or 1: no output and
        no gradient differs from that of separate calls.
        """
        rows, steps, _ = inputs.shape
        before = starts.cumsum(dim=1) - starts[:, :1].long()
        room = steps + int(before[:, -1].max())
        step = torch.arange(room, device=inputs.device)
        place = step[:steps] + before
        index = (place + room * torch.arange(rows, device=inputs.device).unsqueeze(-1)).flatten()
        closed = inputs.new_ones(rows * room, 1).index_fill(0, index, 0.0).view(rows, room, 1)
        held = (step > place[:, -1:]).to(inputs.dtype).unsqueeze(-1)
        output = inputs.new_zeros(rows * room, inputs.shape[-1]).index_copy(0, index, inputs.flatten(0, 1))
        output, hidden, cell = output.view(rows, room, -1), [], []
        for layer, (of_input, *others) in enumerate(self.lstm.all_weights):
            weights = [torch.cat([of_input, self.signals.to(of_input)], dim=1), *others]
            first = (state.hidden[layer : layer + 1], state.cell[layer : layer + 1])
            signalled = torch.cat([output, closed, held], dim=-1)
            output, _, last = torch.lstm(signalled, first, weights, True, 1, 0.0, self.training, False, True)
            hidden.append(output.flatten(0, 1)[index.view(rows, steps)[:, -1]])
            cell.append(last.squeeze(0))
        output = output.flatten(0, 1).index_select(0, index).view(rows, steps, -1)
        return output, MemoryState(torch.stack(hidden), torch.stack(cell))


class NoMemory(nn.Module):
    """The interface of a memory, for policies that see only the present."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.size = inputs

    def start(self, rows: int) -> MemoryState:
        return MemoryState(torch.zeros(0, rows, 0), torch.zeros(0, rows, 0))

    def forward(self, inputs: Tensor, state: MemoryState, starts: Tensor) -> tuple[Tensor, MemoryState]:
        return inputs, state
