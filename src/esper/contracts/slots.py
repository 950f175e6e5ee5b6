"""What a slot and what grows in it are called."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

SlotId: TypeAlias = str
"""The qualified name of the host submodule whose output the slot changes, such as `encoder.stages.0`.

Where a slot is given by index, the index is its place in the list handed to `graft`, never its place in
the forward pass; `Body.execution_order` has the latter.
"""


class Topology(StrEnum):
    """The kind of feature tensor at a slot, which decides the blueprints that fit."""

    CNN = "cnn"
    DENSE = "dense"
    TRANSFORMER = "transformer"

    @property
    def layout(self) -> "Layout":
        return LAYOUTS[self]

    @property
    def channel_axis(self) -> int:
        return self.layout.channel_axis


@dataclass(frozen=True)
class Layout:
    """How features lie: their axes, how many of these there can be, and which has the channels.

    In `causal` features, and in the whole host, no position depends on what comes after it. Where a norm comes first,
    it begins a step of the work, and what it is given is what steps add to.
    """

    axes: str
    ranks: frozenset[int]
    channel_axis: int
    causal: bool = False
    norm_first: bool = False


LAYOUTS: dict[Topology, Layout] = {
    Topology.CNN: Layout("(batch, channels, height, width)", frozenset({4}), channel_axis=1),
    Topology.TRANSFORMER: Layout(
        "(batch, tokens, channels)", frozenset({3}), channel_axis=-1, causal=True, norm_first=True
    ),
    Topology.DENSE: Layout("(batch, ..., channels)", frozenset({2, 3}), channel_axis=-1),
}
"""What is known of each topology. Of several that fit features, the first is meant."""


class Kind(StrEnum):
    """What a blueprint does to features; part of how a controller tells blueprints apart."""

    NORMALISE = "normalise"
    REWEIGHT = "reweight"
    MIX_SPACE = "mix_space"
    MIX_CHANNELS = "mix_channels"
    DEEPEN = "deepen"
    REPEAT = "repeat"


class Birth(StrEnum):
    """What a newborn makes of the features, which decides how it joins the network."""

    ZERO = "zero"
    """Nothing yet: its delta is zero."""
    COPY = "copy"
    """What the trained block in front of it makes of them, once more."""
