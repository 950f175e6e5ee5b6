"""Grow a neural network while it trains.

`esper.Gardener` grows a model inside an ordinary training loop. `esper.graft` gives any `nn.Module` slots in which
seeds can grow, `esper.save` and `esper.load` keep what grew;
`gymnasium.make("esper/Grow-v0")` is the world for an agent. PyTorch is loaded on first use of any.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import gymnasium

if TYPE_CHECKING:
    from esper.gardener import Gardener
    from esper.growth import Body, graft, load, save

__version__ = "0.1.0"

_HOMES = {"Gardener": "esper.gardener", **dict.fromkeys(("Body", "graft", "load", "save"), "esper.growth")}

__all__ = ["Body", "Gardener", "graft", "load", "save"]

gymnasium.register(id="esper/Grow-v0", entry_point="esper.environment.env:GrowEnv")


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'esper' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
