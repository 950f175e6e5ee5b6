"""What a gardener's settings may be. What is wrong with them is told before anything is changed."""

import math
from collections.abc import Sequence
from typing import Any, get_args

from esper.gardener.errors import BadSetting
from esper.gardener.score import Direction

DEFAULT_RENT = 0.02


def require_epochs(epochs: Any) -> None:
    """At least one."""
    if isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 1:
        raise BadSetting(f"epochs is {epochs!r}; give the number of times that step will be called")


def require_rent(rent: Any) -> None:
    """A quality is a fraction, so that a rent above 1 could never be paid."""
    if not (_is_number(rent) and 0.0 <= rent <= 1.0):
        raise BadSetting(
            f"rent is {rent!r}; give the quality that a factor e of size must bring, a fraction from 0 to 1 such as "
            f"{DEFAULT_RENT} for two points in a hundred"
        )


def require_budget(name: str, most: Any) -> None:
    """A number of parameters or operations; 1e6 will do."""
    if most is not None and not (_is_number(most) and most >= 0 and float(most).is_integer()):
        raise BadSetting(f"{name} is {most!r}; give a whole number of at least 0, or None for no limit")


def require_scale(scale: Any, direction: Any) -> None:
    """The worst and the best score, in the direction."""
    if direction not in get_args(Direction):
        raise BadSetting(f"direction is {direction!r}; give 'max' for accuracies, 'min' for losses")
    if scale is None:
        return
    pair = isinstance(scale, Sequence) and len(scale) == 2 and all(map(_is_number, scale))
    if not pair or scale[0] == scale[1] or (scale[1] > scale[0]) != (direction == "max"):
        raise BadSetting(
            f"scale is {scale!r} and direction {direction!r}; give the two numbers (worst, best) in that direction"
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
