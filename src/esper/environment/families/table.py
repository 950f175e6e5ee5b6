"""What tasks are drawn from: a table of ranges for each sequence of tasks."""

from dataclasses import dataclass, replace

from esper.environment.families.ranges import Choice, Log, Span


@dataclass(frozen=True)
class Ranges:
    """What is drawn, and from which range; in docs/families.md in words."""

    topology: Choice
    images: Choice
    vectors: Choice
    image_batches: Span
    """In an epoch. So many times the batch size is the number of rows to train on."""
    vector_batches: Span
    label_noise: Choice

    blocks: Span
    width: Choice
    taper: Choice
    kernel: Choice
    pools: Span
    pooling: Choice
    norm: Choice
    layers: Span
    dense_width: Choice
    residual: Choice
    activation: Choice

    optimizer: Choice
    adam_rate: Log
    sgd_rate: Log
    batch_size: Choice
    horizon: Span
    rent: Log


SMALL = Ranges(
    topology=Choice("conv", "conv", "dense"),
    images=Choice("digits", "gratings", "shapes", "colours", "brightness"),
    vectors=Choice("spirals", "moons", "rings", "parity", "iris", "wine", "digits-flat"),
    image_batches=Span(8, 16),
    vector_batches=Span(12, 48),
    label_noise=Choice(0.0, 0.0, 0.1, 0.2),
    blocks=Span(2, 6),
    width=Choice(2, 3, 4, 6, 8, 12, 16),
    taper=Choice("flat", "rising"),
    kernel=Choice("1", "3", "1+3"),
    pools=Span(0, 2),
    pooling=Choice("max"),
    norm=Choice("batch", "batch", "none"),
    layers=Span(1, 4),
    dense_width=Choice(3, 4, 6, 8, 12),
    residual=Choice(False, True),
    activation=Choice("relu"),
    optimizer=Choice("adam", "sgd"),
    adam_rate=Log(0.003, 0.03),
    sgd_rate=Log(0.02, 0.2),
    batch_size=Choice(16, 32, 64),
    horizon=Span(10, 30),
    rent=Log(0.01, 0.3),
)
WIDE = replace(
    SMALL,
    images=Choice("digits", "shapes", "gratings", "colours", "spots", "grids", "contrast"),
    vectors=Choice("spirals", "parity", "wine", "digits-flat", "clusters", "clusters", "tree", "tree"),
    taper=Choice("flat", "rising", "falling"),
    kernel=Choice("1", "3", "7", "1+3", "3+7"),
    norm=Choice("batch", "instance", "none"),
    dense_width=Choice(3, 4, 6, 8, 12, 20),
    activation=Choice("relu", "silu", "elu", "sine"),
)
"""Activations, norms, kernels and kinds of data that neither `SMALL` nor `FAR` has, beside some of `SMALL`."""
FAR = replace(
    SMALL,
    images=Choice("textures", "dots", "pairs"),
    vectors=Choice("checkerboard", "breast-cancer", "diabetes"),
    taper=Choice("flat", "hourglass"),
    kernel=Choice("1", "3", "5", "1+5"),
    pooling=Choice("average"),
    norm=Choice("group", "group", "none"),
    dense_width=Choice(4, 6, 8, 12, 16),
    activation=Choice("gelu", "tanh"),
)
"""Its kinds of data and its activations are none of `SMALL`, so that no data and no host of one is ever the other's."""
FASHION = replace(SMALL, topology=Choice("conv"), images=Choice("fashion_mnist"), image_batches=Span(12, 24))
CIFAR = replace(FASHION, images=Choice("cifar10"))
