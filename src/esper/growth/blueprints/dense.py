"""Blueprints for features whose last axis holds the channels: (batch, channels) or (batch, ..., channels)."""

from torch import nn

from esper.contracts import Kind
from esper.growth.blueprints.registry import blueprint, last_zero


def _two_layers(channels: int, hidden: int) -> nn.Module:
    return nn.Sequential(nn.Linear(channels, hidden), nn.GELU(), last_zero(nn.Linear(hidden, channels)))


@blueprint("norm", topology="dense", kind=Kind.NORMALISE)
def norm(channels: int) -> nn.Module:
    """The normalised features, scaled and shifted per channel from zero."""
    return last_zero(nn.LayerNorm(channels))


@blueprint("low_rank", topology="dense", kind=Kind.MIX_CHANNELS)
def low_rank(channels: int) -> nn.Module:
    """A linear map through a narrow waist."""
    rank = max(1, channels // 8)
    return nn.Sequential(nn.Linear(channels, rank, bias=False), last_zero(nn.Linear(rank, channels)))


@blueprint("mlp_small", topology="dense", kind=Kind.MIX_CHANNELS)
def mlp_small(channels: int) -> nn.Module:
    """Two layers, narrower between than the features."""
    return _two_layers(channels, max(2, channels // 2))


@blueprint("mlp", topology="dense", kind=Kind.MIX_CHANNELS)
def mlp(channels: int) -> nn.Module:
    """Two layers, wider between than the features."""
    return _two_layers(channels, 2 * channels)
