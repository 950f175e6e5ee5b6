"""The structure of a network's state: the tensors it has, in words that can be compared, saved and shown."""

from collections.abc import Mapping
from typing import TypeAlias, TypeVar

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from esper.checked import shown_value
from esper.contracts import EsperError

Structure: TypeAlias = dict[str, str]
"""By name, precision and shape such as `float32 [8, 4]`; of a tied tensor, what it is tied to."""

Network = TypeVar("Network", bound=nn.Module)

SHOWN = 5
"""Differences that a message names."""


class NoTensor(EsperError):
    """Something in a network's state is not a tensor with values."""


def tensors_of(network: nn.Module) -> dict[str, Tensor]:
    """The network's state; a tied tensor is the same object under each of its names."""
    state = network.state_dict(keep_vars=True)
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise NoTensor(f"'{name}' is a {type(value).__name__}; only networks whose state is tensors can be kept")
        if is_lazy(value) or value.is_meta:
            raise NoTensor(f"'{name}' has no values yet; build the network on a real device and run it on an example")
    return state


def ties_of(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Of tensors with several names, the first in the alphabet by each of the others."""
    first: dict[int, str] = {}
    owners = {name: first.setdefault(id(tensors[name]), name) for name in sorted(tensors)}
    return {name: owner for name, owner in owners.items() if name != owner}


def structure_of(tensors: Mapping[str, Tensor]) -> Structure:
    """What the tensors are.

    >>> import torch
    >>> weight = torch.zeros(2, 3)
    >>> structure_of({"embed": weight, "head": weight})
    {'embed': 'float32 [2, 3]', 'head': 'tied to embed'}
    """
    ties = ties_of(tensors)
    return {name: f"tied to {ties[name]}" if name in ties else _words(tensors[name]) for name in sorted(tensors)}


def _words(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def differences(wanted: Structure, found: Structure) -> str:
    """The first few, in words; empty if there are none."""
    wrong = [f"{shown_value(name)} is missing" for name in wanted if name not in found]
    wrong += [f"{shown_value(name)} is not expected" for name in found if name not in wanted]
    wrong += [
        f"{shown_value(name)} is {found[name]:.60}, not {kind:.60}"
        for name, kind in wanted.items()
        if found.get(name, kind) != kind
    ]
    more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
    return ", ".join(wrong[:SHOWN]) + more


def take_precision(network: Network, tensors: Mapping[str, Tensor]) -> Network:
    """Let what is floating-point in the network's state have the precision of the tensor of the same name."""
    for name, own in network.state_dict(keep_vars=True).items():
        like = tensors.get(name, own)
        if own.is_floating_point() and like.is_floating_point():
            own.data = own.data.to(like.dtype)
    return network
