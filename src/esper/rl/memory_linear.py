"""A linear recurrence: what is remembered turns and fades at rates of its own, and what is seen sets the pace.

Each of N cells holds a complex number h. At every step

    h <- exp(d (i w - r)) h + d u

where u, a complex number, and d, from 0 to 2, are read from the input, and the frequency w and the rate of decay r > 0
are learned. Most cells turn at first, at different frequencies: they hold what was seen k steps ago for all k at once,
as a Fourier series does, so recalling it is a matter of the layer that reads them, not of learning to pass it on k
times. Rates are spread from 1/4 to 1/1000 per step, so that some cells still hold at the end of a long episode what was
seen at its start, with or without a gradient that reaches back so far. A pace d of 0 holds everything as it is.

What is read from the input alone cannot tell the first step of an episode from another that looks like it, so the pace
also depends on whether it is the first. An eighth of the cells begins still, with a high pace there and hardly any ever
after: they hold what the episode began with, which is often what it is about, to be read by the same weights whether it
was 50 steps ago or 70. Still cells that go on adding are another matter: they cost tasks that need no memory dearly.

By how much the input has changed since the step before is read beside the cells. They hold that, too, as small
differences of large numbers, which are learned too slowly: of a thing that moves, its position was learned from and its
velocity was not.

The recurrence has no nonlinearity, so that its gradient is the same recurrence backwards, and both can be taken apart
and put together again, whatever the episodes do.
"""

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from esper.rl.dense import Dense
from esper.rl.memory import Memory, MemoryState

SHORTEST, LONGEST = 4.0, 1000.0
"""Steps after which a cell has faded to 1/e, at the beginning of training."""
STILL_SHORTEST = 64.0
"""The same of cells that begin still: what was seen a few steps ago is a matter of those that turn."""
OPENING = 5.0
"""By how much the logit of the pace is above 0 in the first step of an episode, and below it in all others, at the
beginning of training, in cells that begin still."""


def accumulate(factors: Tensor, states: Tensor, backwards: bool = False) -> None:
    """Add to each of the states (T, ...) its factor times the one before it, or `backwards` behind it, in place.

    Blocks of √T steps are accumulated side by side, from nothing, and then one after the other told what they began
    with: 3 √T operations instead of T, because operations cost more than arithmetic.
    """
    if len(states) == 1:
        return
    steps, length = len(states), math.isqrt(len(states))
    blocks, way = steps // length, -1 if backwards else 1
    begin = steps % length if backwards else 0
    blocked = slice(begin, begin + blocks * length)
    factor, state = (part[blocked].unflatten(0, (blocks, length)) for part in (factors, states))
    reach = factor.clone()
    in_turn = zip(*(part.unbind(1)[::way] for part in (factor, state, reach)), strict=True)
    for (_, before, reached), (own, now, reaching) in pairwise(in_turn):
        now.addcmul_(own, before)
        reaching.mul_(reached)
    ends = state[:, 0 if backwards else -1].unbind()[::way]
    for end, now, reaching in zip(ends, state.unbind()[::way][1:], reach.unbind()[::way][1:], strict=False):
        now.addcmul_(reaching, end)
    for step in range(begin - 1, -1, -1) if backwards else range(blocked.stop, steps):
        states[step].addcmul_(factors[step], states[step - way])


class LinearRecurrence(torch.autograd.Function):
    """The recurrence over (T, B, N), from a first state (B, N); its gradient is written out, because complex numbers
    cost torch's own several times as much, and works in as little memory as it can, because new pages cost more than
    arithmetic.

    `pace` is d, `written` is u, `rates` and `frequencies` are r and w of each cell, `keep` (T, B, 1) is 0 at starts.
    """

    @staticmethod
    def forward(ctx: Any, *given: Tensor) -> Tensor:
        pace, written, rates, frequencies, keep, first = given
        decay, angle = (pace * -rates).exp_().mul_(keep), pace * frequencies
        factors = torch.complex(angle.cos().mul_(decay), angle.sin_().mul_(decay))
        states = pace * written
        states[0].addcmul_(factors[0], first)
        accumulate(factors, states)
        ctx.save_for_backward(pace, written, rates, frequencies, factors, states)
        return states

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, None, Tensor]:
        pace, written, rates, frequencies, factors, states = ctx.saved_tensors
        total, back = gradients[0].clone(), factors.roll(-1, dims=0).conj_physical_()
        accumulate(back, total, backwards=True)
        of_first = back[-1] * total[0]
        # What a state kept of the one before it, times its gradient: decay moves along it, and turning across it.
        kept = torch.sub(states, torch.mul(pace, written, out=back), out=back)
        along = (total.real * kept.real).addcmul_(total.imag, kept.imag)
        across = (total.imag * kept.real).addcmul_(total.real, kept.imag, value=-1)
        of_pace = (total.real * written.real).addcmul_(total.imag, written.imag)
        of_pace.addcmul_(across, frequencies).addcmul_(along, rates, value=-1)
        of_rates, of_frequencies = -along.mul_(pace).sum(dim=(0, 1)), across.mul_(pace).sum(dim=(0, 1))
        return of_pace, total.mul_(pace), of_rates, of_frequencies, None, of_first


LEAST_CHANGE = 0.01
"""Changes of the input that are usually smaller are taken for as large as this."""


class LinearMemory(Memory):
    """The state is the real part of all cells with the last input behind it, and the imaginary part.

    Features read the cells that begin still and those that begin turning, each part on a common scale (divided by its
    root mean square, because slow cells hold much more than fast ones, those that only add much more than those that
    turn, and a lone cue long ago much less than all), beside them the present input and its change since the step
    before, and lie in (-1, 1).
    """

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__()
        self.size, self.inputs = size, inputs
        self.still = size // 8
        log_times = torch.empty(size).uniform_(math.log(SHORTEST), math.log(LONGEST))
        frequencies = torch.empty(size).uniform_(0.0, math.pi)
        log_times[: self.still] = torch.linspace(math.log(STILL_SHORTEST), math.log(LONGEST), self.still)
        frequencies[: self.still] = 0.0
        self.log_rates, self.frequencies = nn.Parameter(-log_times), nn.Parameter(frequencies)
        self.write = Dense(inputs, 2 * size, bias=False)
        self.pace = Dense(inputs, size)
        self.opening = nn.Parameter(torch.zeros(size))
        self.read = Dense(2 * size, size)
        self.present = Dense(inputs, size, bias=False)
        self.change = Dense(inputs, size, bias=False)
        nn.init.normal_(self.write.weight, std=inputs**-0.5)
        nn.init.normal_(self.pace.weight, std=0.5 * inputs**-0.5)
        for layer in (self.read, self.present, self.change):
            nn.init.orthogonal_(layer.weight)
        for bias in (self.pace.bias, self.read.bias):
            nn.init.zeros_(bias)
        with torch.no_grad():
            self.pace.bias[: self.still] = -OPENING
            self.opening[: self.still] = 2 * OPENING

    def schema(self) -> dict[str, object]:
        return {"still": self.still, "changes": True}

    def start(self, rows: int) -> MemoryState:
        zeros = self.log_rates.new_zeros(1, rows, self.size + self.inputs)
        return MemoryState(zeros, zeros[..., : self.size].clone())

    @torch.no_grad()
    def take_in(self, inputs: Tensor, valid: Tensor) -> None:
        """The first weights of the change are divided by its root mean square, so that it is read on a scale of 1."""
        changes = inputs.diff(dim=1)[valid[:, 1:] & valid[:, :-1]]
        if changes.any():
            self.change.weight.div_(changes.square().mean().sqrt().clamp(min=LEAST_CHANGE))

    def replay(self, inputs: Tensor, state: MemoryState, starts: Tensor) -> tuple[Tensor, MemoryState]:
        inputs = inputs.transpose(0, 1).contiguous()
        begun = starts.t().unsqueeze(-1)
        pace = 2 * torch.sigmoid(self.pace(inputs) + self.opening * begun)
        written = torch.view_as_complex(self.write(inputs).unflatten(-1, (self.size, 2)))
        hidden, before = state.hidden[0].split([self.size, self.inputs], dim=-1)
        change = (inputs - torch.cat([before.unsqueeze(0), inputs[:-1]])).masked_fill_(begun, 0.0)
        first = torch.complex(hidden, state.cell[0])
        states: Tensor = LinearRecurrence.apply(  # type: ignore[no-untyped-call]
            pace, written, self.log_rates.exp(), self.frequencies, ~begun, first
        )
        cells = torch.view_as_real(states).flatten(-2)
        parts = cells.split([2 * self.still, 2 * (self.size - self.still)], dim=-1)
        scaled = [part * torch.rsqrt(part.square().mean(dim=-1, keepdim=True) + 1e-3) for part in parts]
        features = torch.tanh(self.read(torch.cat(scaled, dim=-1)) + self.present(inputs) + self.change(change))
        last = states[-1:]
        after = MemoryState(torch.cat([last.real, inputs[-1:]], dim=-1), last.imag.contiguous())
        return features.transpose(0, 1), after
