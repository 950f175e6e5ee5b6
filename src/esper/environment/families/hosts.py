"""How the host of a task is drawn."""

from esper.environment.families.ranges import Draws
from esper.environment.families.table import Ranges
from esper.growth import ConvShape, DenseShape

LEAST_SIDE = 2
"""Pixels that poolings leave."""
MOST_CHANNELS = 16
DEEP = 3
"""Blocks up to which a host without norms learns without residuals."""
LARGE, WIDE = 16, 8
"""Pixels and channels from which a host that is pooled trains faster with channels last."""


def draw_conv(draws: Draws, ranges: Ranges, side: int) -> ConvShape:
    """A CNN for images of that side."""
    blocks, norm = draws.pick("blocks", ranges.blocks), draws.pick("norm", ranges.norm)
    channels = _channels(draws.pick("taper", ranges.taper), draws.pick("width", ranges.width), blocks)
    kernels = _kernels(draws, draws.pick("kernel", ranges.kernel), blocks)
    pools = min(draws.pick("pools", ranges.pools), (side // LEAST_SIDE).bit_length() - 1)
    return ConvShape(
        channels=channels,
        kernels=kernels,
        norm=norm,
        pool_after=tuple(range(pools)),
        residual=draws.pick("residual", ranges.residual) or (norm == "none" and blocks > DEEP),
        activation=draws.pick("activation", ranges.activation),
        pooling=draws.pick("pooling", ranges.pooling),
        channels_last=side >= LARGE and min(channels) >= WIDE and max(kernels) > 1 and pools > 0,
    )


def draw_dense(draws: Draws, ranges: Ranges) -> DenseShape:
    """A perceptron, all layers of one width."""
    return DenseShape(
        widths=(draws.pick("dense width", ranges.dense_width),) * draws.pick("layers", ranges.layers),
        activation=draws.pick("activation", ranges.activation),
        residual=draws.pick("residual", ranges.residual),
    )


def _channels(taper: str, width: int, blocks: int) -> tuple[int, ...]:
    """Of every block.

    >>> _channels("flat", 6, 3), _channels("rising", 6, 3), _channels("hourglass", 6, 3), _channels("falling", 6, 3)
    ((6, 6, 6), (6, 9, 12), (6, 3, 6), (12, 9, 6))
    """
    if taper == "falling":
        return _channels("rising", width, blocks)[::-1]
    if taper == "rising":
        most = min(2 * width, MOST_CHANNELS)
        return tuple(width + (most - width) * block // (blocks - 1) for block in range(blocks))
    if taper == "hourglass":
        return tuple(width if block in (0, blocks - 1) else max(2, width // 2) for block in range(blocks))
    return (width,) * blocks


def _kernels(draws: Draws, word: str, blocks: int) -> tuple[int, ...]:
    """Of every block; of two kernels both occur."""
    sizes = [int(size) for size in word.split("+")]
    throws = draws.bits("kernels", blocks)
    if len(set(throws)) == 1:
        throws = (not throws[0], *throws[1:])
    return tuple(sizes[-1] if throw else sizes[0] for throw in throws)
