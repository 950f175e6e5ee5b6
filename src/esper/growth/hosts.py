"""Our own small hosts: ordinary modules, and chains, so that coalitions share their forward prefix."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from esper.growth.normalisation import ChannelNorm


@dataclass(frozen=True)
class ConvShape:
    """A CNN: one block per entry of `channels`, each a convolution, a norm and a ReLU.

    With `kernel` 1 no block sees more than one pixel. `pool_after` names the blocks (by index) whose output is
    halved in height and width. `norm` is "batch", "group" (over the whole sample) or "none".
    """

    channels: tuple[int, ...] = (4, 8, 8)
    kernel: int = 3
    norm: str = "batch"
    pool_after: tuple[int, ...] = ()

    def widened(self, factor: int) -> "ConvShape":
        return ConvShape(tuple(factor * c for c in self.channels), self.kernel, self.norm, self.pool_after)


def _norm(name: str, channels: int) -> nn.Module:
    if name == "batch":
        return ChannelNorm(channels)
    return nn.GroupNorm(1, channels) if name == "group" else nn.Identity()


class ConvHost(nn.Sequential):
    """Blocks named `block0`, `block1`, …, then a mean over space and a linear classifier named `head`."""

    def __init__(self, in_channels: int, classes: int, shape: ConvShape) -> None:
        parts: OrderedDict[str, nn.Module] = OrderedDict()
        before = in_channels
        for index, channels in enumerate(shape.channels):
            convolution = nn.Conv2d(before, channels, shape.kernel, padding="same", bias=shape.norm == "none")
            block = [convolution, _norm(shape.norm, channels), nn.ReLU()]
            if index in shape.pool_after:
                block.append(nn.MaxPool2d(2))
            parts[f"block{index}"] = nn.Sequential(*block)
            before = channels
        parts["head"] = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))
        super().__init__(parts)


class DenseHost(nn.Sequential):
    """A multi-layer perceptron: layers named `layer0`, `layer1`, …, then a linear classifier named `head`."""

    def __init__(self, inputs: int, classes: int, widths: Sequence[int]) -> None:
        parts: OrderedDict[str, nn.Module] = OrderedDict()
        before = inputs
        for index, width in enumerate(widths):
            parts[f"layer{index}"] = nn.Sequential(nn.Linear(before, width), nn.ReLU())
            before = width
        parts["head"] = nn.Linear(before, classes)
        super().__init__(parts)
