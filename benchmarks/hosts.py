"""Sixteen small hosts of different kinds, each with data, an optimiser, a slot and what germinates there.

All data is made here or comes with scikit-learn; nothing is downloaded.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.utils import Bunch
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer

from esper.contracts import SlotId
from esper.growth import ConvHost, ConvShape, DenseHost

Examples = tuple[Tensor, Tensor]


@cache
def digits() -> Examples:
    """The 1,797 images of 8x8 pixels, scaled to 0..1."""
    data = load_digits()
    return torch.tensor(data.images, dtype=torch.float32)[:, None] / 16.0, torch.tensor(data.target)


@cache
def spirals() -> Examples:
    """Three noisy arms in the plane, one turn each, 500 points an arm."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(3).repeat_interleave(500)
    radius = torch.rand(1500, generator=generator).sqrt()
    angle = 2 * torch.pi * (labels / 3 + radius) + 0.25 * torch.randn(1500, generator=generator)
    return torch.stack((radius * angle.cos(), radius * angle.sin()), dim=1), labels


@cache
def checkerboard() -> Examples:
    """Uniform points of the square on 4x4 fields of two colours."""
    points = 4 * torch.rand(1500, 2, generator=torch.Generator().manual_seed(0))
    return points - 2.0, points.floor().sum(dim=1).long() % 2


@cache
def wine() -> Examples:
    """178 wines of three growers, 13 standardised measures."""
    return _standardised(load_wine())


@cache
def cancer() -> Examples:
    """569 tumours, malignant or not, 30 standardised measures."""
    return _standardised(load_breast_cancer())


def _standardised(data: Bunch) -> Examples:
    inputs = torch.tensor(data.data, dtype=torch.float32)
    return (inputs - inputs.mean(dim=0)) / inputs.std(dim=0), torch.tensor(data.target)


def mixed_kernels() -> nn.Module:
    """Convolutions of 5x5, 1x1 and 3x3 pixels."""
    return nn.Sequential(_block(1, 4, 5), _block(4, 8, 1), _block(8, 8, 3), _head(8))


def strided() -> nn.Module:
    """Batch norm as PyTorch has it, and strides instead of pooling."""
    return nn.Sequential(_block(1, 4, 3), _block(4, 8, 3, stride=2), _block(8, 8, 3, stride=2), _head(8))


def _block(before: int, channels: int, kernel: int, stride: int = 1) -> nn.Module:
    convolution = nn.Conv2d(before, channels, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(channels), nn.ReLU())


def _head(channels: int) -> nn.Module:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


class ResidualBlock(nn.Module):
    """The features plus what two convolutions make of them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        last = nn.Conv2d(channels, channels, 3, padding=1)
        self.branch = nn.Sequential(_block(channels, channels, 3), last)

    def forward(self, h: Tensor) -> Tensor:
        return torch.relu(h + self.branch(h))


def residual() -> nn.Module:
    """A stem and two residual blocks."""
    return nn.Sequential(_block(1, 6, 3), ResidualBlock(6), ResidualBlock(6), _head(6))


class RowReader(nn.Module):
    """A transformer encoder of two layers that reads the rows of an image as tokens."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.place = nn.Parameter(0.1 * torch.randn(8, width))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 2, width, 0.0, batch_first=True) for _ in range(2)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.embed(images.squeeze(1)) + self.place
        for layer in self.layers:
            tokens = layer(tokens)
        scores: Tensor = self.head(tokens.mean(dim=1))
        return scores


def conv(
    channels: tuple[int, ...] = (4, 8, 8), kernel: int = 3, norm: str = "batch", pool: tuple[int, ...] = ()
) -> nn.Module:
    """Blocks of a convolution, a norm and a ReLU on images of digits."""
    return ConvHost(1, 10, ConvShape(channels, kernel, norm, pool))


def pixels() -> nn.Module:
    """A perceptron on the flattened image."""
    return nn.Sequential(nn.Flatten(), DenseHost(64, 10, (6, 6)))


adam: Callable[..., Optimizer] = partial(Adam, lr=5e-3)
sgd: Callable[..., Optimizer] = partial(SGD, lr=5e-2, momentum=0.9)


class Case(NamedTuple):
    """A host, what it learns from, and the seed that is planted in it."""

    host: Callable[[], nn.Module]
    examples: Callable[[], Examples]
    slot: SlotId
    blueprint: str
    optimizer: Callable[..., Optimizer] = adam
    topology: str | None = None


CASES = {
    "conv 1x1": Case(partial(conv, kernel=1), digits, "block0", "conv_heavy"),
    "conv 1x1, SGD": Case(partial(conv, kernel=1), digits, "block0", "conv_heavy", sgd),
    "conv 3x3": Case(conv, digits, "block1", "conv_heavy"),
    "conv mixed kernels": Case(mixed_kernels, digits, "1", "conv_heavy"),
    "conv pooled": Case(partial(conv, pool=(0, 1)), digits, "block1", "conv_heavy"),
    "conv strided": Case(strided, digits, "1", "conv_heavy"),
    "conv without norm": Case(partial(conv, norm="none"), digits, "block1", "conv_heavy"),
    "conv of 5 blocks": Case(partial(conv, (4, 4, 4, 8, 8)), digits, "block2", "conv_heavy"),
    "residual": Case(residual, digits, "1", "conv_heavy"),
    "transformer": Case(RowReader, digits, "layers.0", "mlp", topology="dense"),
    "dense on pixels": Case(pixels, digits, "1.layer0", "mlp"),
    "dense 1 layer, spirals": Case(partial(DenseHost, 2, 3, (16,)), spirals, "layer0", "mlp"),
    "dense 3 layers, spirals": Case(partial(DenseHost, 2, 3, (16, 16, 16)), spirals, "layer1", "mlp"),
    "dense 2 layers, checkerboard, SGD": Case(partial(DenseHost, 2, 2, (16, 16)), checkerboard, "layer1", "mlp", sgd),
    "dense on wine": Case(partial(DenseHost, 13, 3, (3, 3)), wine, "layer0", "mlp"),
    "dense on cancer": Case(partial(DenseHost, 30, 2, (3, 3)), cancer, "layer0", "mlp"),
}
