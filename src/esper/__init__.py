"""Grow a neural network while it trains.

`esper.graft` gives any `nn.Module` slots in which seeds can grow. It is loaded on first use, so that the
vocabulary in `esper.contracts` can be imported without PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from esper.growth import Body, graft

__version__ = "0.1.0"

_HOMES = {"graft": "esper.growth", "Body": "esper.growth"}

__all__ = ["Body", "graft"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'esper' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
