"""Blueprints for features of shape (batch, channels, height, width), at any resolution.

Hidden layers are normalised per channel: measured against normalisation per sample, seeds learn much faster so.
"""

import torch
from torch import Tensor, nn

from esper.contracts import Kind
from esper.growth.blueprints.registry import blueprint, last_zero
from esper.growth.normalisation import ChannelNorm


def _hidden(channels: int) -> nn.Module:
    return nn.Sequential(ChannelNorm(channels), nn.ReLU())


def _spatial(channels: int, out: int, groups: int = 1) -> nn.Module:
    return nn.Conv2d(channels, out, kernel_size=3, padding=1, groups=groups, bias=False)


def _expansion(hidden: int, channels: int) -> nn.Module:
    return last_zero(nn.Conv2d(hidden, channels, kernel_size=1))


@blueprint("norm", topology="cnn", kind=Kind.NORMALISE)
def norm(channels: int) -> nn.Module:
    """The normalised features, scaled and shifted per channel from zero."""
    return last_zero(nn.GroupNorm(1, channels))


class ChannelAttention(nn.Module):
    """Squeeze-excite: the sample's channel means decide how much of each channel is added to itself."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        hidden = max(2, channels // 4)
        self.squeeze = nn.Linear(channels, hidden)
        self.excite = last_zero(nn.Linear(hidden, channels))

    def forward(self, h: Tensor) -> Tensor:
        scale = self.excite(torch.relu(self.squeeze(h.mean(dim=(2, 3)))))
        return h * torch.tanh(scale)[:, :, None, None]


@blueprint("attention", topology="cnn", kind=Kind.REWEIGHT)
def attention(channels: int) -> nn.Module:
    """Reweigh channels by what the whole sample shows."""
    return ChannelAttention(channels)


@blueprint("depthwise", topology="cnn", kind=Kind.MIX_SPACE)
def depthwise(channels: int) -> nn.Module:
    """A 3x3 filter per channel, then a mix of channels."""
    return nn.Sequential(
        _spatial(channels, channels, groups=channels), _hidden(channels), _expansion(channels, channels)
    )


@blueprint("bottleneck", topology="cnn", kind=Kind.MIX_SPACE)
def bottleneck(channels: int) -> nn.Module:
    """Squeeze, filter 3x3, expand."""
    hidden = max(2, channels // 4)
    squeeze = nn.Conv2d(channels, hidden, kernel_size=1, bias=False)
    return nn.Sequential(
        squeeze, _hidden(hidden), _spatial(hidden, hidden), _hidden(hidden), _expansion(hidden, channels)
    )


@blueprint("conv_small", topology="cnn", kind=Kind.MIX_SPACE)
def conv_small(channels: int) -> nn.Module:
    """A 3x3 convolution to half as many channels, and back."""
    hidden = max(2, channels // 2)
    return nn.Sequential(_spatial(channels, hidden), _hidden(hidden), _expansion(hidden, channels))


@blueprint("conv_light", topology="cnn", kind=Kind.MIX_SPACE)
def conv_light(channels: int) -> nn.Module:
    """A full 3x3 convolution, then a mix of channels."""
    return nn.Sequential(_spatial(channels, channels), _hidden(channels), _expansion(channels, channels))


@blueprint("conv_heavy", topology="cnn", kind=Kind.MIX_SPACE)
def conv_heavy(channels: int) -> nn.Module:
    """Two 3x3 convolutions with twice as many channels between them."""
    hidden = 2 * channels
    return nn.Sequential(_spatial(channels, hidden), _hidden(hidden), last_zero(_spatial(hidden, channels)))
