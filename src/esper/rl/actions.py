"""From the choices of a network to the actions of an environment, and from an environment's masks to tensors.

A Discrete space is one head; MultiDiscrete and MultiBinary have one head for each entry. The entries of a Box are heads
whose choices are real numbers: where both bounds are finite the network's -1 and 1 are those bounds.
"""

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from esper.rl.errors import RLError, WrongShape
from esper.rl.observations import UnsupportedSpace


class Actions:
    """Writes actions of one space."""

    def __init__(self, space: spaces.Space[Any], dependent: bool = False, device: torch.device | None = None) -> None:
        self.space: Any = space
        self.device = device
        self.dependent = dependent
        """Whether masks have a row for each choice of the first head."""
        self.continuous = isinstance(space, spaces.Box)
        if isinstance(space, spaces.Discrete):
            self.sizes: tuple[int, ...] = (int(space.n),)
        elif isinstance(space, spaces.MultiDiscrete):
            self.sizes = tuple(map(int, space.nvec.ravel()))
        elif isinstance(space, spaces.MultiBinary):
            self.sizes = (2,) * int(np.prod(space.shape))
        elif isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
            self.sizes = (1,) * int(np.prod(space.shape, dtype=int))
            self._scale_box(space)
        else:
            raise UnsupportedSpace(
                f"actions are {space}; the agent acts in Discrete, MultiDiscrete, MultiBinary, and Box of real numbers"
            )
        if not self.sizes:
            raise UnsupportedSpace(f"actions are {space}, in which nothing can be done")
        if self.continuous and dependent:
            raise RLError(f"dependent_masks=True, but actions are {space}; masks are for choices, not for real numbers")

    def _scale_box(self, space: spaces.Box) -> None:
        low, high = space.low.ravel().astype(np.float64), space.high.ravel().astype(np.float64)
        both = np.isfinite(low) & np.isfinite(high)
        with np.errstate(invalid="ignore"):
            self._centre = np.where(both, (low + high) / 2, 0.0)
            self._reach = np.where(both, (high - low) / 2, 1.0)
        if not (self._reach > 0).all():
            raise UnsupportedSpace(f"actions are {space}, whose lower and upper bounds are the same somewhere")
        self.low, self.high = np.where(both, -1.0, low), np.where(both, 1.0, high)

    def action(self, choices: NDArray[Any]) -> Any:
        """What one environment is given for one row's choices."""
        if isinstance(self.space, spaces.Discrete):
            return int(choices[0]) + int(self.space.start)
        return self.all(choices[None])[0]

    def all(self, choices: NDArray[Any]) -> NDArray[Any]:
        """What a vector environment is given for all its rows."""
        if self.continuous:
            raw = (choices * self._reach + self._centre).reshape(-1, *self.space.shape).astype(self.space.dtype)
            done: NDArray[Any] = np.clip(raw, self.space.low, self.space.high)
            return done
        whole = choices.reshape(-1, *self.space.shape)
        if not isinstance(self.space, spaces.MultiBinary):
            whole = whole + self.space.start
        return whole.astype(self.space.dtype)

    def masks(self, given: list[Any]) -> dict[str, Tensor]:
        """`mask` (rows, K, heads, choices), with choices beyond a head's own masked out; None allows everything."""
        if self.continuous:
            if any(mask is not None for mask in given):
                raise RLError(f"the environment gives an action mask, but actions are {self.space}; drop the mask")
            return {}
        return {"mask": torch.from_numpy(np.stack([self._mask(mask) for mask in given])).to(self.device)}

    def _mask(self, given: Any) -> NDArray[np.bool_]:
        rows, total = self.sizes[0] if self.dependent else 1, sum(self.sizes)
        flat = np.ones((rows, total), bool) if given is None else _flags(given)
        shape = flat.shape
        if flat.ndim == 1 and rows == 1:
            flat = flat[None]
        if flat.shape != (rows, total):
            wanted = (rows, total) if self.dependent else (total,)
            hint = "" if self.dependent else "; for masks that depend on the first head pass dependent_masks=True"
            raise WrongShape(f"the action mask has shape {shape}; actions {self.space} need {wanted}{hint}")
        if len(self.sizes) == 1:
            return flat.astype(bool)[:, None]
        result = np.zeros((rows, len(self.sizes), max(self.sizes)), bool)
        ends = np.cumsum(self.sizes)
        for head, (size, end) in enumerate(zip(self.sizes, ends, strict=True)):
            result[:, head, :size] = flat[:, end - size : end]
        return result


def _flags(mask: Any) -> NDArray[Any]:
    try:
        flags = np.asarray(mask)
        fit = flags.dtype == bool or bool(np.isin(flags, (0, 1)).all())
    except ValueError:
        fit = False
    if not fit:
        raise WrongShape(f"the action mask is {mask!r}; give one array of 0 and 1, the heads one behind the other")
    return flags
