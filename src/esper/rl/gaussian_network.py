"""A network whose heads are real numbers, for Box actions."""

import torch
from torch import Tensor, nn

from esper.rl.dense import Dense
from esper.rl.gaussian import FAR, Gaussian
from esper.rl.memory import MemoryState
from esper.rl.network import Encoded, Inputs, Observation, Trunk, VectorConfig, orthogonal

FIRST_LOG_DEVIATION = 0.0
"""A deviation of 1 where the bounds are -1 and 1: a newborn policy does a third of the time what is on a bound."""


class GaussianNetwork(Trunk):
    """One head for each number of an action: a mean that depends on what is seen, and a deviation that does not.

    `low` and `high` (heads) are the bounds of the numbers, infinite where there is none.
    """

    low: Tensor
    high: Tensor
    continuous = True

    def __init__(
        self,
        inputs: int | Inputs,
        heads: tuple[str, ...],
        low: Tensor,
        high: Tensor,
        config: VectorConfig | None = None,
    ) -> None:
        super().__init__(inputs, config)
        self.heads, self.levels = heads, (slice(0, len(heads)),)
        self.actor = orthogonal(Dense(self.memory.size, len(heads)), 0.01)
        self.log_deviation = nn.Parameter(torch.full((len(heads),), FIRST_LOG_DEVIATION))
        self.register_buffer("low", low.float().clamp(-FAR, FAR))
        self.register_buffer("high", high.float().clamp(-FAR, FAR))
        self.described = self.memory.size + len(heads)

    def encode(self, observation: Observation, state: MemoryState, starts: Tensor) -> Encoded:
        features, state = self.features(observation, state, starts)
        return Encoded((self.actor(features), features), self.critic(features), state)

    def gaussian(self, encoded: Encoded) -> Gaussian:
        return Gaussian(encoded.features[0], self.log_deviation, self.low, self.high)

    def describe(self, encoded: Encoded, choices: Tensor) -> Tensor:
        """Beside what is remembered the numbers as they are, which with bounds lie between -1 and 1."""
        return torch.cat([encoded.features[1], choices], dim=-1)

    def logits(self, encoded: Encoded, observation: Observation, level: int, choices: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError("this network has real numbers, not choices")

    def head_gradients(self) -> list[list[Tensor | None]]:
        own = (self.actor.weight.grad, self.actor.bias.grad, self.log_deviation.grad)
        return [[None if gradient is None else gradient[head] for gradient in own] for head in range(len(self.heads))]

    def schema(self) -> dict[str, object]:
        bounds = {"low": self.low.tolist(), "high": self.high.tolist()}
        return {"network": "gaussian", "heads": list(self.heads), **bounds, **self.sizes_schema()}
