"""What a policy remembers: an LSTM over rows in which episodes follow each other, or nothing at all."""

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn


class State(NamedTuple):
    """Hidden and cell state, each (layers, B, size)."""

    hidden: Tensor
    cell: Tensor

    def detached(self) -> "State":
        return State(self.hidden.detach(), self.cell.detach())


class Memory(nn.Module):
    """An LSTM that forgets where an episode starts.

    The contract of the state: what is stored with a row is the state *before* its first step, detached. Replaying the
    row rebuilds every later state from it, and sets it to zero wherever `starts` says so, as acting did. There is no
    normalisation behind the LSTM: its output lies in (-1, 1) by construction.
    """

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

    @property
    def size(self) -> int:
        return self.lstm.hidden_size

    def start(self, rows: int) -> State:
        """The state of `rows` episodes that have not begun."""
        weight = next(self.lstm.parameters())
        zeros = weight.new_zeros(self.lstm.num_layers, rows, self.lstm.hidden_size)
        return State(zeros, zeros.clone())

    def forward(self, inputs: Tensor, state: State, starts: Tensor) -> tuple[Tensor, State]:
        """`inputs` (B, T, D) with `starts` (B, T), or one step: (B, D) with `starts` (B).

        One call of the LSTM between the times at which any row starts anew: cheaper than packing single episodes.
        """
        if inputs.dim() == 2:
            output, state = self(inputs.unsqueeze(1), state, starts.unsqueeze(1))
            return output.squeeze(1), state
        marks = starts.any(dim=0)
        marks[0] = True
        bounds = [*marks.nonzero().flatten().tolist(), inputs.shape[1]]
        outputs = []
        for begin, end in pairwise(bounds):
            keep = (~starts[:, begin]).to(inputs.dtype).unsqueeze(-1)
            output, (hidden, cell) = self.lstm(inputs[:, begin:end], (state.hidden * keep, state.cell * keep))
            state = State(hidden, cell)
            outputs.append(output)
        return (outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)), state


class NoMemory(nn.Module):
    """The interface of a memory, for policies that see only the present."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.size = inputs

    def start(self, rows: int) -> State:
        return State(torch.zeros(0, rows, 0), torch.zeros(0, rows, 0))

    def forward(self, inputs: Tensor, state: State, starts: Tensor) -> tuple[Tensor, State]:
        return inputs, state
