"""LSTM and GRU that forget where an episode starts.

Both run whole rows in one call of torch's own kernels, which costs much less than one call between any two starts. A
step that wipes the memory goes before each start inside a row, and steps that hold it go behind rows with fewer starts.
Their signals have weights of their own, which drive the gates to exactly 0 or 1: no output and no gradient differs from
that of separate calls.

There is no normalisation behind either: their output lies in (-1, 1) by construction.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from esper.rl.memory import Memory, MemoryState

FIRMLY = 1e4
"""A preactivation at which a gate is 0 or 1 to the last bit, and safe in half precision."""


class Spaced(NamedTuple):
    """Rows with room for the steps that wipe and hold."""

    inputs: Tensor
    """(B, room, D); zeros in the steps that were put in."""
    signals: Tensor
    """(B, room, 2): shut, in all steps that were put in, and hold, in those behind a row."""
    places: Tensor
    """(B, T): where the steps of all rows are, when rows and room are one axis."""

    def gathered(self, output: Tensor) -> Tensor:
        """The steps that are the row's own, (B, T, size)."""
        return output.flatten(0, 1).index_select(0, self.places.flatten()).view(*self.places.shape, -1)


def spaced(inputs: Tensor, starts: Tensor) -> Spaced:
    """Make room before each start inside a row. A start at the first step needs none: its state is zeroed outside."""
    rows, steps, _ = inputs.shape
    before = starts.cumsum(dim=1) - starts[:, :1].long()
    room = steps + int(before[:, -1].max())
    step = torch.arange(room, device=inputs.device)
    place = step[:steps] + before
    index = place + room * torch.arange(rows, device=inputs.device).unsqueeze(-1)
    shut = inputs.new_ones(rows * room).index_fill(0, index.flatten(), 0.0).view(rows, room)
    hold = (step > place[:, -1:]).to(inputs.dtype)
    wide = inputs.new_zeros(rows * room, inputs.shape[-1]).index_copy(0, index.flatten(), inputs.flatten(0, 1))
    return Spaced(wide.view(rows, room, -1), torch.stack([shut, hold], dim=-1), index)


def initialise(network: nn.LSTM | nn.GRU) -> None:
    """Orthogonal weights of each gate, from the state; of fitting size, from the inputs; and no biases."""
    for name, parameter in network.named_parameters():
        for gate in parameter.detach().split(network.hidden_size):
            if name.startswith("weight_hh"):
                nn.init.orthogonal_(gate)
            elif name.startswith("weight_ih"):
                nn.init.xavier_uniform_(gate)
            else:
                nn.init.zeros_(gate)


class LSTMMemory(Memory):
    """The state is what an LSTM calls hidden and cell state; features are the hidden states."""

    signals: Tensor

    def __init__(self, inputs: int, size: int, layers: int = 1) -> None:
        super().__init__()
        self.size = size
        self.lstm = nn.LSTM(inputs, size, num_layers=layers, batch_first=True)
        initialise(self.lstm)
        for layer in range(layers):
            # The gates lie in the order input, forget, cell, output; only one of the two biases gets the 1.
            bias = getattr(self.lstm, f"bias_ih_l{layer}")
            nn.init.ones_(bias.detach()[size : 2 * size])
        # Shut closes the input, forget and output gates, hold opens the forget gate nevertheless.
        shut = torch.tensor([-FIRMLY, -FIRMLY, 0.0, -FIRMLY])
        hold = torch.tensor([0.0, 2 * FIRMLY, 0.0, 0.0])
        signals = torch.stack([shut, hold], dim=-1).repeat_interleave(size, dim=0)
        self.register_buffer("signals", signals, persistent=False)

    def start(self, rows: int) -> MemoryState:
        weight = next(self.lstm.parameters())
        zeros = weight.new_zeros(self.lstm.num_layers, rows, self.lstm.hidden_size)
        return MemoryState(zeros, zeros.clone())

    def replay(self, inputs: Tensor, state: MemoryState, starts: Tensor) -> tuple[Tensor, MemoryState]:
        keep = (~starts[:, 0]).to(inputs.dtype).unsqueeze(-1)
        state = MemoryState(state.hidden * keep, state.cell * keep)
        if starts[:, 1:].any():
            return self._through_starts(inputs, state, starts)
        output, last = self.lstm(inputs, state)
        return output, MemoryState(*last)

    def _through_starts(self, inputs: Tensor, state: MemoryState, starts: Tensor) -> tuple[Tensor, MemoryState]:
        rows = spaced(inputs, starts)
        output, hidden, cell = rows.inputs, [], []
        for layer, (of_input, *others) in enumerate(self.lstm.all_weights):
            weights = [torch.cat([of_input, self.signals.to(of_input)], dim=1), *others]
            first = (state.hidden[layer : layer + 1], state.cell[layer : layer + 1])
            signalled = torch.cat([output, rows.signals], dim=-1)
            output, _, last = torch.lstm(signalled, first, weights, True, 1, 0.0, self.training, False, True)
            hidden.append(output.flatten(0, 1)[rows.places[:, -1]])
            cell.append(last.squeeze(0))
        return rows.gathered(output), MemoryState(torch.stack(hidden), torch.stack(cell))


class GRUMemory(Memory):
    """The state is the hidden state alone, and the other part of it is empty; features are the hidden states."""

    def __init__(self, inputs: int, size: int, layers: int = 1) -> None:
        super().__init__()
        self.size = size
        self.gru = nn.GRU(inputs, size, num_layers=layers, batch_first=True)
        initialise(self.gru)

    def start(self, rows: int) -> MemoryState:
        weight, layers = next(self.gru.parameters()), self.gru.num_layers
        return MemoryState(weight.new_zeros(layers, rows, self.size), weight.new_zeros(layers, rows, 0))

    def replay(self, inputs: Tensor, state: MemoryState, starts: Tensor) -> tuple[Tensor, MemoryState]:
        hidden = state.hidden * (~starts[:, 0]).to(inputs.dtype).unsqueeze(-1)
        if starts[:, 1:].any():
            output, hidden = self._through_starts(inputs, hidden, starts)
        else:
            output, hidden = self.gru(inputs, hidden)
        return output, MemoryState(hidden, state.cell)

    def _through_starts(self, inputs: Tensor, hidden: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
        rows = spaced(inputs, starts)
        output, lasts = rows.inputs, []
        for layer, (of_input, of_state, bias, bias_of_state) in enumerate(self.gru.all_weights):
            weights = [torch.cat([of_input, self._signals(bias)], dim=1), of_state, bias, bias_of_state]
            signalled = torch.cat([output, rows.signals], dim=-1)
            output, _ = torch.gru(
                signalled, hidden[layer : layer + 1], weights, True, 1, 0.0, self.training, False, True
            )
            lasts.append(output.flatten(0, 1)[rows.places[:, -1]])
        return rows.gathered(output), torch.stack(lasts)

    def _signals(self, bias: Tensor) -> Tensor:
        """Shut closes both gates and takes the bias back, so that the new state is 0; hold keeps the old one.

        The gates lie in the order reset, update, new; an open update gate keeps the old state.
        """
        firmly, none = bias.new_full((self.size,), FIRMLY), bias.new_zeros(self.size)
        shut = torch.cat([-firmly, -firmly, -bias[2 * self.size :]])
        return torch.stack([shut, torch.cat([none, 2 * firmly, none])], dim=-1)
