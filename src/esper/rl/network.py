"""What a learner asks of a network, the parts all networks share, and a network for plain vectors.

A decision has several heads. They are drawn in levels: a level sees the choices of the levels before it. Which heads
shape the action is decided by the first one, through the table `uses`; a head that is not used has a single legal
choice, number 0. So its log-probability and entropy are 0 and it gets no gradient, without a special case anywhere.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from esper.rl.errors import RLError
from esper.rl.memory import Memory, MemoryState
from esper.rl.memory_kinds import make_memory, require_kind

Observation = dict[str, Tensor]


class Encoded(NamedTuple):
    """What a network made of an observation: features for the heads, V(s) in units of return, and the next state."""

    features: tuple[Tensor, ...]
    values: Tensor
    state: MemoryState


class Network(nn.Module, ABC):
    """What a learner needs. Leading axes are (B, T) throughout: rows, and steps within a row."""

    heads: tuple[str, ...]
    levels: tuple[slice, ...]
    """The heads of each level, in order."""
    memory: Memory
    critic: "Critic"

    @abstractmethod
    def encode(self, observation: Observation, state: MemoryState, starts: Tensor) -> Encoded:
        """Features, values and the next state."""

    @abstractmethod
    def logits(self, encoded: Encoded, observation: Observation, level: int, choices: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and mask of a level's heads, each (B, T, heads, choices); reads the choices of earlier levels."""

    @abstractmethod
    def head_gradients(self) -> Sequence[Sequence[Tensor | None]]:
        """The gradients of the parameters that belong to each head alone."""

    @abstractmethod
    def schema(self) -> dict[str, object]:
        """Everything that must agree for weights to fit: sizes, and the names of heads and features."""


class Critic(nn.Module):
    """V(s) in units of return, learned at a scale of its own.

    The last layer predicts returns that were shifted and scaled to mean 0 and deviation 1. When the scale changes, the
    layer is changed along, so that no prediction moves; only the first scale, before anything was learned, just holds.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = orthogonal(nn.Linear(inputs, hidden), 2**0.5)
        self.output = orthogonal(nn.Linear(hidden, 1), 1.0)
        self.register_buffer("mean", torch.tensor(0.0))
        self.register_buffer("deviation", torch.tensor(1.0))

    def forward(self, features: Tensor) -> Tensor:
        scaled: Tensor = self.output(torch.tanh(self.hidden(features))).squeeze(-1)
        return scaled * self.deviation + self.mean

    @torch.no_grad()
    def rescale(self, mean: float, deviation: float, keep: bool) -> None:
        """Take over another scale; `keep` corrects the last layer so that no prediction moves."""
        if keep:
            self.output.weight.mul_(self.deviation / deviation)
            self.output.bias.mul_(self.deviation).add_(self.mean - mean).div_(deviation)
        self.mean.fill_(mean)
        self.deviation.fill_(deviation)


def orthogonal(layer: nn.Linear, gain: float) -> nn.Linear:
    """Orthogonal weights of the given gain, and no bias."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def pin(mask: Tensor, used: Tensor) -> Tensor:
    """The mask (..., heads, choices) with only choice 0 left to heads that are not used (..., heads)."""
    pinned = mask & used.unsqueeze(-1)
    pinned[..., 0] |= ~used
    return pinned


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "relu": torch.relu}


@dataclass(frozen=True)
class VectorConfig:
    """Sizes of a network for vectors. `memory` 0 makes it memoryless."""

    hidden: int = 64
    memory: int = 64
    critic: int = 64
    activation: str = "tanh"
    memory_kind: str = "linear"
    """One of the kinds in `memory_kinds`: linear, lstm or gru."""

    def __post_init__(self) -> None:
        for name in ("hidden", "critic"):
            if getattr(self, name) < 1:
                raise RLError(f"{name} = {getattr(self, name)}; give at least 1")
        if self.memory < 0:
            raise RLError(f"memory = {self.memory}; give 0 for none, or the number of its features")
        if self.activation not in ACTIVATIONS:
            raise RLError(f"activation = '{self.activation}'; choose one of {', '.join(ACTIVATIONS)}")
        require_kind(self.memory_kind)


class VectorNetwork(Network):
    """For observations `vector` (B, T, D) and `mask` (B, T, K, heads, choices).

    K is 1, or the number of choices of the first head: then row k of the mask holds for the other heads when the first
    one chose k. All heads have room for as many choices as the largest one; the rest is masked.
    """

    uses: Tensor

    def __init__(
        self, inputs: int, sizes: Mapping[str, int], uses: Tensor | None = None, config: VectorConfig | None = None
    ) -> None:
        super().__init__()
        config = config or VectorConfig()
        self.config = config
        self.heads, self.sizes = tuple(sizes), tuple(sizes.values())
        count, room = len(self.heads), max(self.sizes)
        self.shape = (count, room)
        self.levels = (slice(0, 1), slice(1, count)) if count > 1 else (slice(0, 1),)
        self.activation = ACTIVATIONS[config.activation]
        self.encoder = orthogonal(nn.Linear(inputs, config.hidden), 2**0.5)
        self.memory = make_memory(config.memory_kind, config.hidden, config.memory)
        self.critic = Critic(self.memory.size, config.critic)
        self.actor = orthogonal(nn.Linear(self.memory.size, count * room), 0.01)
        # What the first head's choice adds to the logits of the others.
        self.given_first = nn.Parameter(torch.zeros(self.sizes[0], count - 1, room))
        everything = torch.ones(self.sizes[0], count, dtype=torch.bool)
        self.register_buffer("uses", everything if uses is None else uses)

    def encode(self, observation: Observation, state: MemoryState, starts: Tensor) -> Encoded:
        inputs = self.activation(self.encoder(observation["vector"]))
        features, state = self.memory(inputs, state, starts)
        return Encoded((self.actor(features).unflatten(-1, self.shape),), self.critic(features), state)

    def logits(self, encoded: Encoded, observation: Observation, level: int, choices: Tensor) -> tuple[Tensor, Tensor]:
        (scores,), masks = encoded.features, observation["mask"]
        if level == 0:
            return scores[..., :1, :], masks[..., 0, :1, :]
        first = choices[..., 0]
        logits = scores[..., 1:, :] + self.given_first[first]
        mask = masks.squeeze(-3)
        if masks.shape[-3] > 1:
            mask = masks.gather(-3, first[..., None, None, None].expand(*first.shape, 1, *self.shape)).squeeze(-3)
        return logits, pin(mask[..., 1:, :], self.uses[first][..., 1:])

    def head_gradients(self) -> list[list[Tensor | None]]:
        actor, given = (self.actor.weight.grad, self.actor.bias.grad), self.given_first.grad
        room = self.shape[1]
        own: list[list[Tensor | None]] = [
            [None if gradient is None else gradient.narrow(0, head * room, room) for gradient in actor]
            for head in range(len(self.heads))
        ]
        for place, parts in enumerate(own[1:]):
            parts.append(None if given is None else given[:, place])
        return own

    def schema(self) -> dict[str, object]:
        kind = self.config.memory_kind
        return {
            "network": "vector",
            "inputs": self.encoder.in_features,
            "heads": dict(zip(self.heads, self.sizes, strict=True)),
            "uses": self.uses.tolist(),
            "hidden": self.config.hidden,
            "memory": self.config.memory,
            "critic": self.config.critic,
            "activation": self.config.activation,
            # Files that name no kind have an LSTM.
            **({} if kind == "lstm" else {"memory_kind": kind}),
        }
