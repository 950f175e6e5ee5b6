"""How a seed's delta enters the host's features."""

import torch
from torch import Tensor, nn

from esper.contracts import Operator, Topology
from esper.growth.caches import LooksBack
from esper.growth.interface import NO_CALL, Call


class FeatureGate(nn.Module):
    """One learned number in (0, 1) per position of the host's features; one half at birth."""

    def __init__(self, channels: int, topology: Topology) -> None:
        super().__init__()
        self.channel_axis = topology.channel_axis
        self.weight = nn.Parameter(torch.zeros(channels))
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, h: Tensor) -> Tensor:
        weight, bias = self.weight.to(h.dtype), self.bias.to(h.dtype)  # lower precision changes features, not weights
        scores = torch.tensordot(h, weight, dims=([self.channel_axis], [0])) + bias
        return torch.sigmoid(scores).unsqueeze(self.channel_axis)


class Seed(nn.Module):
    """A blueprint's module together with the way it is blended in."""

    def __init__(self, delta: nn.Module, operator: Operator, gate: FeatureGate | None) -> None:
        super().__init__()
        if (operator is Operator.GATE) != (gate is not None):
            raise ValueError("a seed has a gate exactly when its operator is GATE")
        self.delta = delta
        self.operator = operator
        self.gate = gate

    def forward(self, h: Tensor, alpha: float | Tensor, call: Call | None = None) -> Tensor:
        """The blended features, in the precision of `h`; alpha is above 0. `call` is that of the submodule in front."""
        delta = self.delta(h, call or NO_CALL) if isinstance(self.delta, LooksBack) else self.delta(h)
        d: Tensor = delta.to(h.dtype)  # autocast runs some operations, such as norms, in full precision
        if self.operator is Operator.MULTIPLY:
            return h * (1.0 + alpha * torch.tanh(d))
        if self.gate is not None:
            d = self.gate(h) * d
        return torch.add(h, d, alpha=alpha) if isinstance(alpha, float) else h + alpha * d


def assemble(delta: nn.Module, operator: Operator, channels: int, topology: Topology) -> Seed:
    """A seed around `delta`, with a newborn gate if the operator needs one."""
    return Seed(delta, operator, FeatureGate(channels, topology) if operator is Operator.GATE else None)
