"""Causal attention of seeds: with positions of its own, and with the masks and the cache that the host is given."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from esper.contracts import EsperError
from esper.growth.caches import LooksBack
from esper.growth.interface import Call

MASK = "attention_mask"
HEAD = 32
"""Channels of a head, about."""
SLOWEST = 10_000.0
"""Tokens in which the slowest pair of channels is turned by a radian."""


class UnknownMask(EsperError):
    """A mask of attention of a kind that a seed cannot read."""


class CausalAttention(LooksBack):
    """Every token gathers from itself and earlier ones, by what they are and how far away they are.

    Positions are told by turning queries and keys, so that the seed needs no table of them.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.heads = max(1, channels // HEAD)
        self.size = 2 * -(-channels // (2 * self.heads))  # pairs of channels are turned
        self.norm = nn.LayerNorm(channels)
        self.asked = nn.Linear(channels, 3 * self.heads * self.size)
        self.told = nn.Linear(self.heads * self.size, channels)

    def forward(self, h: Tensor, call: Call) -> Tensor:
        batch, tokens, _ = h.shape
        asked = self.asked(self.norm(h)).view(batch, tokens, 3, self.heads, self.size)
        query, key, value = asked.permute(2, 0, 3, 1, 4)
        cache, own = self.use.cache_in(call), self.use.own_layer
        first = 0 if cache is None else cache.layers[own].get_seq_length()
        positions = first + torch.arange(tokens, device=h.device)
        query, key = turned(query, positions), turned(key, positions)
        if cache is not None:
            key, value = cache.update(key, value, own)
            self.use.require_in_step(cache)
        mask = _mask(call.value(MASK, self.use.names), positions, key.shape[2])
        if mask is not None and mask.is_floating_point():
            mask = mask.to(query.dtype)
        gathered = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=mask is None and tokens == key.shape[2]
        )
        told: Tensor = self.told(gathered.transpose(1, 2).reshape(batch, tokens, self.heads * self.size))
        return told


def turned(x: Tensor, positions: Tensor) -> Tensor:
    """Pairs of the channels of (B, heads, T, size) turned by the token's position, the later the slower."""
    half = x.shape[-1] // 2
    rates = SLOWEST ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angles = positions[:, None] * rates
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    one, other = x.chunk(2, dim=-1)
    return torch.cat([one * cos - other * sin, other * cos + one * sin], dim=-1)


def _mask(given: Tensor | None, positions: Tensor, asked: int) -> Tensor | None:
    """What tokens at these positions may see of so many keys: as the host's mask (B, heads, T, S) says, or all earlier
    tokens that its (B, S) does not hide. None if these are all tokens, and nothing is hidden.

    A mask of bits says yes to what is seen in some hosts, to what is hidden in others. Every token sees itself.
    """
    if given is not None and not (isinstance(given, Tensor) and given.ndim in (2, 4)):
        raise UnknownMask(
            f"a seed's attention was given a mask that is a {type(given).__name__}; use a model with "
            "attn_implementation='sdpa' or 'eager'"
        )
    if given is not None and given.ndim == 4 and given.is_floating_point():
        return given
    asking = len(positions)
    if given is None and asking == asked:
        return None
    # Some caches have room for later keys than there are, others have dropped early ones.
    itself = positions - positions[-1] + positions[-1].clamp(max=asked - 1)
    if given is not None and given.ndim == 4:
        return given == given.gather(-1, itself[:, None].expand(*given.shape[:-1], 1))
    keys = torch.arange(asked, device=positions.device)
    earlier = keys <= itself[:, None]
    if given is None:
        return earlier
    return earlier & (given[:, None, None, -asked:].bool() | (keys == itself[:, None]))
