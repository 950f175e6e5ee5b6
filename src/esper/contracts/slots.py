"""What a slot and what grows in it are called."""

from enum import StrEnum
from typing import TypeAlias

SlotId: TypeAlias = str
"""The qualified name of the host submodule whose output the slot changes, such as `encoder.stages.0`.

Where a slot is given by index, the index is its place in the list handed to `graft`, never its place in
the forward pass; `Body.execution_order` has the latter.
"""


class Topology(StrEnum):
    """The kind of feature tensor at a slot, which decides the blueprints that fit."""

    CNN = "cnn"  # (batch, channels, height, width)
    DENSE = "dense"  # (batch, ..., channels)
    TRANSFORMER = "transformer"  # (batch, tokens, channels)

    @property
    def channel_axis(self) -> int:
        return 1 if self is Topology.CNN else -1


class Kind(StrEnum):
    """What a blueprint does to features; part of how a controller tells blueprints apart."""

    NORMALISE = "normalise"
    REWEIGHT = "reweight"
    MIX_SPACE = "mix_space"
    MIX_CHANNELS = "mix_channels"
