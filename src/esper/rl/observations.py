"""From what an environment shows to the tensors that a network reads.

Everything but images becomes columns of one tensor `vector`: numbers as they are, a choice among n as n columns of
which one is 1. Images keep their shape and kind in tensors of their own, `image0`, `image1` and so on.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from esper.rl.errors import NonFinite, RLError, WrongShape
from esper.rl.network import Observation

PLAIN = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class UnsupportedSpace(RLError):
    """An observation or action space that the agent has no network for."""


class Leaf(NamedTuple):
    """A space without parts, and where its numbers are: columns of `vector`, or a tensor of its own."""

    path: tuple[str | int, ...]
    space: Any
    tensor: str
    first: int
    width: int

    @property
    def name(self) -> str:
        return "observation" + "".join(f"[{part!r}]" for part in self.path)

    def of(self, observation: Any) -> Any:
        """Its part of an observation."""
        for part in self.path:
            try:
                observation = observation[part]
            except (KeyError, IndexError, TypeError):
                raise WrongShape(f"an observation lacks {self.name}, which its space promises") from None
        return observation


def is_image(space: spaces.Space[Any]) -> bool:
    """Whether a convolution reads it: a Box with three axes, or two of bytes, that is at least 5 wide and high."""
    if not isinstance(space, spaces.Box) or len(space.shape) not in (2, 3):
        return False
    if len(space.shape) == 2:
        return space.dtype == np.uint8 and min(space.shape) >= 5
    return sorted(space.shape)[1] >= 5


class Observations:
    """Reads observations of one space into tensors on a device."""

    def __init__(self, space: spaces.Space[Any], device: torch.device | None = None) -> None:
        self.space, self.device = space, device
        self.leaves: list[Leaf] = []
        self.width = 0
        """Columns of `vector`; 0 if there is no such tensor."""
        for path, plain in _plain_spaces(space, ()):
            image = is_image(plain)
            width = 0 if image else _width(plain)
            name = f"image{len(self.images)}" if image else "vector"
            self.leaves.append(Leaf(path, plain, name, self.width, width))
            self.width += width
        if not self.width and not self.images:
            raise UnsupportedSpace(f"observations are {space}, which show nothing; give at least one number")

    @property
    def images(self) -> dict[str, spaces.Box]:
        """The spaces of the tensors that are images."""
        return {leaf.tensor: leaf.space for leaf in self.leaves if leaf.tensor != "vector"}

    def unscaled(self) -> Tensor:
        """(width): which columns of `vector` are measured numbers of which the space does not say that they fit.

        Choices, flags, and numbers between bounds that lie within -1 and 1 and at least 1 apart do.
        """
        columns = np.zeros(self.width, bool)
        for leaf in self.leaves:
            if leaf.tensor == "vector" and isinstance(leaf.space, spaces.Box):
                low, high = leaf.space.low.ravel().astype(np.float64), leaf.space.high.ravel().astype(np.float64)
                columns[leaf.first : leaf.first + leaf.width] = (low < -1) | (high > 1) | (high - low < 1)
        return torch.from_numpy(columns)

    def of_each(self, observations: Sequence[Any]) -> Observation:
        """One row for each observation."""
        return self._read([_stacked(leaf, [leaf.of(each) for each in observations]) for leaf in self.leaves])

    def of_all(self, observation: Any) -> Observation:
        """Observations that were stacked already, leaf by leaf, as vector environments give them."""
        return self._read([np.asarray(leaf.of(observation)) for leaf in self.leaves])

    def rows(self, observation: Any) -> int | None:
        """How many observations these are; None for a single one, without an axis for rows."""
        leaf = self.leaves[0]
        shape: tuple[int, ...] = np.shape(leaf.of(observation))
        if shape == leaf.space.shape:
            return None
        if shape[1:] == leaf.space.shape:
            return shape[0]
        raise WrongShape(
            f"{leaf.name} has shape {shape}; its space promises {leaf.space.shape}, or with an axis for rows in front"
        )

    def in_shape(self, observation: Observation) -> Any:
        """As the space is built, for networks of one's own: tensors (N, *shape), dictionaries and tuples of them."""
        found = {}
        for leaf in self.leaves:
            if leaf.tensor != "vector":
                found[leaf.path] = pixels(observation[leaf.tensor], leaf.space)
                continue
            columns = observation["vector"][..., leaf.first : leaf.first + leaf.width]
            whole = isinstance(leaf.space, spaces.Box | spaces.MultiBinary)
            found[leaf.path] = columns.reshape(*columns.shape[:-1], *leaf.space.shape) if whole else columns
        return _built(self.space, (), found)

    def _read(self, arrays: Sequence[NDArray[Any]]) -> Observation:
        seen: Observation = {}
        columns = []
        for leaf, array in zip(self.leaves, arrays, strict=True):
            if leaf.tensor != "vector":
                seen[leaf.tensor] = torch.from_numpy(_checked(leaf, array, _kind(leaf.space))).to(self.device)
            else:
                columns.append(_columns(leaf, array))
        if columns:
            vector = columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)
            seen["vector"] = torch.from_numpy(vector).to(self.device)
        return seen


def pixels(image: Tensor, space: spaces.Box) -> Tensor:
    """Bytes as numbers from 0 to 1, other numbers as they are."""
    return image.float() / 255.0 if space.dtype == np.uint8 else image


def _plain_spaces(space: spaces.Space[Any], path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    if isinstance(space, spaces.Dict):
        for name, part in space.spaces.items():
            yield from _plain_spaces(part, (*path, name))
    elif isinstance(space, spaces.Tuple):
        for place, part in enumerate(space.spaces):
            yield from _plain_spaces(part, (*path, place))
    elif isinstance(space, PLAIN):
        yield path, space
    else:
        where = "".join(f"[{part!r}]" for part in path)
        raise UnsupportedSpace(
            f"observations{where} are {space}; the agent reads Box, Discrete, MultiDiscrete, MultiBinary, "
            "and Dict and Tuple of those: give one of them, with gymnasium.wrappers.TransformObservation if need be"
        )


def _width(space: Any) -> int:
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    return int(space.nvec.sum() if isinstance(space, spaces.MultiDiscrete) else np.prod(space.shape, dtype=int))


def _kind(space: spaces.Box) -> type:
    return np.uint8 if space.dtype == np.uint8 else np.float32


def _stacked(leaf: Leaf, parts: Sequence[Any]) -> NDArray[Any]:
    try:
        return np.stack([np.asarray(part) for part in parts])
    except ValueError:
        shapes = sorted({np.shape(part) for part in parts})
        raise WrongShape(f"{leaf.name} has shapes {shapes}; its space promises {leaf.space.shape}") from None


def _checked(leaf: Leaf, array: NDArray[Any], kind: type) -> NDArray[Any]:
    """(rows, *shape) of the wanted kind, all finite."""
    if np.prod(array.shape[1:], dtype=int) != np.prod(leaf.space.shape, dtype=int):
        raise WrongShape(f"{leaf.name} has shape {array.shape[1:]}; its space promises {leaf.space.shape}")
    try:
        array = np.ascontiguousarray(array.reshape(len(array), *leaf.space.shape), dtype=kind)
    except (TypeError, ValueError):
        raise WrongShape(f"{leaf.name} holds {array.dtype}; its space promises numbers") from None
    if kind is np.float32 and not np.isfinite(array).all():
        row, *place = np.argwhere(~np.isfinite(array))[0].tolist()
        raise NonFinite(
            f"{leaf.name}{place or ''} is not finite in environment {row}; mend the environment, "
            "which must show finite numbers only"
        )
    return array


def _columns(leaf: Leaf, array: NDArray[Any]) -> NDArray[np.float32]:
    if isinstance(leaf.space, spaces.Box | spaces.MultiBinary):
        return _checked(leaf, array, np.float32).reshape(len(array), -1)
    choices = (_checked(leaf, array, np.int64) - leaf.space.start).reshape(len(array), -1)
    sizes = np.atleast_1d(leaf.space.n if isinstance(leaf.space, spaces.Discrete) else leaf.space.nvec).ravel()
    if (choices < 0).any() or (choices >= sizes).any():
        wrong = array[((choices < 0) | (choices >= sizes)).any(axis=1)][0]
        raise WrongShape(f"{leaf.name} is {wrong}, which is not in its space {leaf.space}")
    result = np.zeros((len(array), leaf.width), np.float32)
    np.put_along_axis(result, choices + (np.cumsum(sizes) - sizes), 1.0, axis=1)
    return result


def _built(space: spaces.Space[Any], path: tuple[str | int, ...], found: dict[tuple[str | int, ...], Tensor]) -> Any:
    if isinstance(space, spaces.Dict):
        return {name: _built(part, (*path, name), found) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_built(part, (*path, place), found) for place, part in enumerate(space.spaces))
    return found[path]
