"""What a learner asks of a network, the parts all networks share, and a network with heads of choices.

A decision has several heads. They are drawn in levels: a level sees the choices of the levels before it. Which heads
shape the action is decided by the first one, through the table `uses`; a head that is not used has a single legal
choice, number 0. So its log-probability and entropy are 0 and it gets no gradient, without a special case anywhere.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn.functional import one_hot

from esper.rl.config import whole
from esper.rl.dense import Dense
from esper.rl.errors import RLError
from esper.rl.gaussian import Gaussian
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
    described: int
    """Width of what `describe` gives."""
    continuous: bool = False
    """Whether choices are real numbers: they are drawn from `gaussian`, all heads at once, and not from `logits`."""

    @abstractmethod
    def encode(self, observation: Observation, state: MemoryState, starts: Tensor) -> Encoded:
        """Features, values and the next state."""

    @abstractmethod
    def logits(self, encoded: Encoded, observation: Observation, level: int, choices: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and mask of a level's heads, each (B, T, heads, choices); reads the choices of earlier levels."""

    def gaussian(self, encoded: Encoded) -> Gaussian:
        """What the real numbers of all heads are drawn from, (B, T, heads)."""
        raise NotImplementedError(f"{type(self).__name__} has choices, not real numbers")

    def describe(self, encoded: Encoded, choices: Tensor) -> Tensor:
        """What Q reads, (B, T, described): what is remembered where a decision was made, and what its heads chose.

        Heads that the decision did not use are zeros, whatever is written there.
        """
        raise NotImplementedError(f"{type(self).__name__} does not describe decisions, so nothing can judge them")

    @abstractmethod
    def head_gradients(self) -> Sequence[Sequence[Tensor | None]]:
        """The gradients of the parameters that belong to each head alone."""

    @abstractmethod
    def schema(self) -> dict[str, object]:
        """Everything that must agree for weights to fit: sizes, and the names of heads and features."""


class Inputs(nn.Module, ABC):
    """From an observation (B, T, ...) to one flat tensor (B, T, size), before a network's first layer."""

    size: int

    @abstractmethod
    def take_in(self, observation: Observation, valid: Tensor) -> tuple[Tensor, Tensor] | None:
        """Let the valid steps of a rollout change the statistics by which observations are normalised, if any.

        Gives the shift and the stretch of the first columns that undo the change; None if there is nothing to undo.
        """

    @abstractmethod
    def schema(self) -> dict[str, object]:
        """What must agree for weights to fit."""


class VectorInputs(Inputs):
    """`vector` as it is."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, observation: Observation) -> Tensor:
        return observation["vector"]

    def take_in(self, observation: Observation, valid: Tensor) -> None:
        """There are no statistics."""

    def schema(self) -> dict[str, object]:
        return {"inputs": self.size}


class Critic(nn.Module):
    """V(s) in units of return, learned at a scale of its own.

    The last layer predicts returns that were shifted and scaled to mean 0 and deviation 1. When the scale changes, the
    layer is changed along, so that no prediction moves; only the first scale, before anything was learned, just holds.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = orthogonal(Dense(inputs, hidden), 2**0.5)
        self.output = orthogonal(Dense(hidden, 1), 1.0)
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


MakeEncoder = Callable[[spaces.Space[Any]], nn.Module]


@dataclass(frozen=True)
class VectorConfig:
    """Sizes of a network. `memory` 0 makes it memoryless."""

    hidden: int = 64
    memory: int = 64
    critic: int = 64
    activation: str = "tanh"
    memory_kind: str = "linear"
    """One of the kinds in `memory_kinds`: linear, lstm or gru."""
    normalise: bool = True
    """Whether measured numbers are shifted and scaled by the mean and deviation of what has been seen, and the first
    layer begins with a mean of 0."""
    encoder: MakeEncoder | None = field(default=None, compare=False)
    """Makes a module of one's own for an observation space, which stands before the first layer."""

    def __post_init__(self) -> None:
        for name, least in (("hidden", 1), ("memory", 0), ("critic", 1)):
            whole(name, getattr(self, name), least)
        if self.activation not in ACTIVATIONS:
            raise RLError(f"activation = '{self.activation}'; choose one of {', '.join(ACTIVATIONS)}")
        require_kind(self.memory_kind)
        if self.encoder is not None and (isinstance(self.encoder, nn.Module) or not callable(self.encoder)):
            raise RLError(
                f"network is a {type(self.encoder).__name__}; give a VectorConfig, or a function that makes a module "
                "for an observation space, as in network=lambda space: MyModule()"
            )


class Trunk(Network):
    """Everything but the heads: inputs, one layer, a memory, a critic."""

    def __init__(self, inputs: int | Inputs, config: VectorConfig | None) -> None:
        super().__init__()
        self.config = config or VectorConfig()
        self.activation = ACTIVATIONS[self.config.activation]
        self.inputs = VectorInputs(inputs) if isinstance(inputs, int) else inputs
        hidden = self.config.hidden
        self.encoder = orthogonal(Dense(self.inputs.size, hidden), 2**0.5)
        self.memory = make_memory(self.config.memory_kind, hidden, self.config.memory)
        self.critic = Critic(self.memory.size, self.config.critic)

    def features(self, observation: Observation, state: MemoryState, starts: Tensor) -> tuple[Tensor, MemoryState]:
        """What heads and critic read, (B, T, size), and the next state."""
        inputs = self.activation(self.encoder(self.inputs(observation)))
        features: Tensor
        features, state = self.memory(inputs, state, starts)
        return features, state

    @property
    def newborn(self) -> bool:
        """Whether the first rollout is still to say what is usually seen: the first layer has no bias before."""
        return self.config.normalise and not bool(self.encoder.bias.any())

    @torch.no_grad()
    def take_in(self, observation: Observation, valid: Tensor) -> None:
        """Let a rollout change the statistics of observations, and the first layer along, so that no prediction moves.

        Only the first statistics, before anything was learned, just hold; and behind a module of the user's own. The
        first bias makes the mean of the first layer 0, whatever is seen: what is always the same is no news, and would
        pile up in a memory until it drowns what was seen once. The memory is told what is usual, too.
        """
        newborn, change = self.newborn, self.inputs.take_in(observation, valid)
        if change is not None:
            shift, stretch = change
            columns = self.encoder.weight[:, : len(shift)]
            self.encoder.bias.add_(columns @ shift)
            columns.mul_(stretch)
        elif newborn:
            self.encoder.bias.sub_(self.encoder(self.inputs(observation))[valid].mean(dim=0))
            self.memory.take_in(self.activation(self.encoder(self.inputs(observation))), valid)

    def sizes_schema(self) -> dict[str, object]:
        """What must agree for the weights of this part to fit."""
        names = ["hidden", "memory", "critic", "activation"]
        if self.config.memory_kind != "lstm":  # files that name no kind have an LSTM
            names.append("memory_kind")
        return self.inputs.schema() | {name: getattr(self.config, name) for name in names} | self.memory.schema()


class VectorNetwork(Trunk):
    """Heads of choices, for observations with a `mask` (B, T, K, heads, choices).

    K is 1, or the number of choices of the first head: then row k of the mask holds for the other heads when the first
    one chose k. All heads have room for as many choices as the largest one; the rest is masked.
    """

    uses: Tensor

    def __init__(
        self,
        inputs: int | Inputs,
        sizes: Mapping[str, int],
        uses: Tensor | None = None,
        config: VectorConfig | None = None,
    ) -> None:
        super().__init__(inputs, config)
        self.heads, self.sizes = tuple(sizes), tuple(sizes.values())
        count, room = len(self.heads), max(self.sizes)
        self.shape = (count, room)
        self.levels = (slice(0, 1), slice(1, count)) if count > 1 else (slice(0, 1),)
        self.actor = orthogonal(Dense(self.memory.size, count * room), 0.01)
        # What the first head's choice adds to the logits of the others.
        self.given_first = nn.Parameter(torch.zeros(self.sizes[0], count - 1, room))
        everything = torch.ones(self.sizes[0], count, dtype=torch.bool)
        self.register_buffer("uses", everything if uses is None else uses)
        self.described = self.memory.size + sum(self.sizes)

    def encode(self, observation: Observation, state: MemoryState, starts: Tensor) -> Encoded:
        features, state = self.features(observation, state, starts)
        return Encoded((self.actor(features).unflatten(-1, self.shape), features), self.critic(features), state)

    def logits(self, encoded: Encoded, observation: Observation, level: int, choices: Tensor) -> tuple[Tensor, Tensor]:
        (scores, _), masks = encoded.features, observation["mask"]
        if level == 0:
            return scores[..., :1, :], masks[..., 0, :1, :]
        first = choices[..., 0]
        logits = scores[..., 1:, :] + self.given_first[first]
        mask = masks.squeeze(-3)
        if masks.shape[-3] > 1:
            mask = masks.gather(-3, first[..., None, None, None].expand(*first.shape, 1, *self.shape)).squeeze(-3)
        return logits, pin(mask[..., 1:, :], self.uses[first][..., 1:])

    def describe(self, encoded: Encoded, choices: Tensor) -> Tensor:
        """Beside what is remembered a bit for each choice of each head that was used."""
        used = self.uses[choices[..., 0]]
        bits = [one_hot(choices[..., head], size) * used[..., head, None] for head, size in enumerate(self.sizes)]
        return torch.cat([encoded.features[1], *bits], dim=-1)

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
        heads = {"heads": dict(zip(self.heads, self.sizes, strict=True)), "uses": self.uses.tolist()}
        return {"network": "vector", **heads, **self.sizes_schema()}
