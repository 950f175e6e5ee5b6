"""Blueprints for features of shape (batch, tokens, channels) in hosts where no token depends on later ones."""

from torch import Tensor, nn
from torch.nn import functional

from esper.contracts import Birth, Kind
from esper.growth.blueprints.registry import blueprint, last_zero
from esper.growth.caches import LooksBack
from esper.growth.causal import CausalAttention
from esper.growth.front import Front, repeated
from esper.growth.interface import Call, features_in


def _two_layers(channels: int, hidden: int) -> nn.Module:
    wide, narrow = nn.Linear(channels, hidden), nn.Linear(hidden, channels)
    return nn.Sequential(nn.LayerNorm(channels), wide, nn.GELU(), last_zero(narrow))


def _low_rank(channels: int, rank: int) -> nn.Module:
    return nn.Sequential(nn.Linear(channels, rank, bias=False), last_zero(nn.Linear(rank, channels, bias=False)))


@blueprint("norm", topology="transformer", kind=Kind.NORMALISE)
def norm(channels: int) -> nn.Module:
    """The normalised features, scaled and shifted per channel from zero."""
    return last_zero(nn.LayerNorm(channels))


@blueprint("lora", topology="transformer", kind=Kind.MIX_CHANNELS)
def lora(channels: int) -> nn.Module:
    """A linear map through a narrow waist."""
    return _low_rank(channels, max(1, channels // 16))


@blueprint("lora_large", topology="transformer", kind=Kind.MIX_CHANNELS)
def lora_large(channels: int) -> nn.Module:
    """A linear map through a waist of a quarter."""
    return _low_rank(channels, max(1, channels // 4))


@blueprint("attention", topology="transformer", kind=Kind.MIX_SPACE, looks_back=True)
def newborn_attention(channels: int) -> nn.Module:
    """Every token gathers from itself and earlier ones."""
    attention = CausalAttention(channels)
    last_zero(attention.told)
    return attention


@blueprint("mlp_small", topology="transformer", kind=Kind.MIX_CHANNELS)
def mlp_small(channels: int) -> nn.Module:
    """Two layers, narrower between than the features."""
    return _two_layers(channels, max(2, channels // 2))


@blueprint("mlp", topology="transformer", kind=Kind.MIX_CHANNELS)
def mlp(channels: int) -> nn.Module:
    """Two layers, wider between than the features."""
    return _two_layers(channels, 4 * channels)


class GatedMLP(nn.Module):
    """Two layers, of which the first is weighed by a third."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.hidden = 8 * channels // 3
        self.norm = nn.LayerNorm(channels)
        self.wide = nn.Linear(channels, 2 * self.hidden)
        self.narrow = last_zero(nn.Linear(self.hidden, channels))

    def forward(self, h: Tensor) -> Tensor:
        value, gate = self.wide(self.norm(h)).split(self.hidden, dim=-1)
        change: Tensor = self.narrow(functional.silu(gate) * value)
        return change


@blueprint("gated_mlp", topology="transformer", kind=Kind.MIX_CHANNELS)
def gated_mlp(channels: int) -> nn.Module:
    """As many parameters as `mlp`, and a gate between its layers."""
    return GatedMLP(channels)


@blueprint("block", topology="transformer", kind=Kind.DEEPEN, looks_back=True)
def block(channels: int) -> nn.Module:
    """A whole new layer: attention, then an MLP."""
    return NewBlock(channels)


@blueprint("block_copy", topology="transformer", kind=Kind.REPEAT, birth=Birth.COPY, looks_back=True)
def block_copy(front: Front) -> nn.Module:
    """A whole new layer: the trained block in front of the slot, once more."""
    return CopiedBlock(repeated(front))


class NewBlock(LooksBack):
    """What a layer adds to the features."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.attention = newborn_attention(channels)
        self.mlp = _two_layers(channels, 4 * channels)

    def forward(self, h: Tensor, call: Call) -> Tensor:
        gathered = self.attention(h, call)
        change: Tensor = gathered + self.mlp(h + gathered)
        return change


class CopiedBlock(LooksBack):
    """What a block of the host's own kind adds to the features, called as the block in front of it is."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, h: Tensor, call: Call) -> Tensor:
        cache, call = self.use.cache_in(call), call.on(h, self.use.names)
        features: Tensor = features_in(self.block(*call.args, **call.kwargs))
        self.use.require_in_step(cache)
        return features - h
