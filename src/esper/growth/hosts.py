"""Our own small hosts: ordinary modules, and chains, so that coalitions share their forward prefix."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from esper.growth.normalisation import ChannelNorm


class Sine(nn.Module):
    """An activation that comes and goes."""

    def forward(self, h: Tensor) -> Tensor:
        return torch.sin(h)


ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "tanh": nn.Tanh,
    "silu": nn.SiLU,
    "elu": nn.ELU,
    "sine": Sine,
}
POOLINGS: dict[str, type[nn.Module]] = {"max": nn.MaxPool2d, "average": nn.AvgPool2d}


@dataclass(frozen=True)
class ConvShape:
    """A CNN: one block per entry of `channels`, each a convolution, a norm and an activation.

    With `kernel` 1 no block sees more than one pixel; `kernels` gives every block its own instead. `pool_after` names
    the blocks (by index) whose output is halved in height and width. `norm` is "batch", "group" (over the whole
    sample), "instance" (over each channel of a sample) or "none". With `residual`, blocks that keep the number of
    channels add their input to what they put out.
    `channels_last` is how weights and features lie in memory: faster on a CPU for wide blocks with 3x3 kernels on large
    images that are pooled, slower for most others.
    """

    channels: tuple[int, ...] = (4, 8, 8)
    kernel: int = 3
    norm: str = "batch"
    pool_after: tuple[int, ...] = ()
    kernels: tuple[int, ...] = ()
    residual: bool = False
    activation: str = "relu"
    pooling: str = "max"
    channels_last: bool = False

    @property
    def block_kernels(self) -> tuple[int, ...]:
        """The kernel of every block."""
        return self.kernels or (self.kernel,) * len(self.channels)


def _norm(name: str, channels: int) -> nn.Module:
    if name == "batch":
        return ChannelNorm(channels)
    groups = {"group": 1, "instance": channels}.get(name)
    return nn.Identity() if groups is None else nn.GroupNorm(groups, channels)


class Residual(nn.Sequential):
    """Adds its input to what its parts put out."""

    def forward(self, h: Tensor) -> Tensor:
        change = h
        for part in self:
            change = part(change)
        return h + change


class ConvHost(nn.Sequential):
    """Blocks named `block0`, `block1`, …, then a mean over space and a linear classifier named `head`."""

    def __init__(self, in_channels: int, classes: int, shape: ConvShape) -> None:
        parts: OrderedDict[str, nn.Module] = OrderedDict()
        before = in_channels
        for index, (channels, kernel) in enumerate(zip(shape.channels, shape.block_kernels, strict=True)):
            convolution = nn.Conv2d(before, channels, kernel, padding="same", bias=shape.norm == "none")
            block = [convolution, _norm(shape.norm, channels), ACTIVATIONS[shape.activation]()]
            if shape.residual and before == channels:
                block = [Residual(*block)]
            if index in shape.pool_after:
                block.append(POOLINGS[shape.pooling](2))
            parts[f"block{index}"] = nn.Sequential(*block)
            before = channels
        parts["head"] = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))
        super().__init__(parts)
        if shape.channels_last:
            self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch documents it


@dataclass(frozen=True)
class DenseShape:
    """A perceptron, by the widths of its layers. With `residual`, layers that keep the width add their input."""

    widths: tuple[int, ...]
    activation: str = "relu"
    residual: bool = False


class DenseHost(nn.Sequential):
    """A multi-layer perceptron: layers named `layer0`, `layer1`, …, then a linear classifier named `head`."""

    def __init__(
        self, inputs: int, classes: int, widths: Sequence[int], activation: str = "relu", residual: bool = False
    ) -> None:
        parts: OrderedDict[str, nn.Module] = OrderedDict()
        before = inputs
        for index, width in enumerate(widths):
            kind = Residual if residual and before == width else nn.Sequential
            parts[f"layer{index}"] = kind(nn.Linear(before, width), ACTIVATIONS[activation]())
            before = width
        parts["head"] = nn.Linear(before, classes)
        super().__init__(parts)
