"""The registry of blueprints: a dict and a decorator."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import nn

from esper.contracts import Birth, EsperError, Kind, Topology, nearest
from esper.growth.caches import LooksBack
from esper.growth.front import Front

Factory = Callable[[Any], nn.Module]
"""Of a number of channels; of what is born as a copy, of the submodule in front of it."""


class UnknownBlueprint(EsperError):
    """No blueprint of that name for that kind of host."""


class DuplicateBlueprint(EsperError):
    """The name is taken."""


@dataclass(frozen=True)
class Blueprint:
    """A kind of seed: builds a module that maps features of `channels` channels to a delta of the same shape.

    Born as ZERO, the delta is zero at birth and has live gradients, which asks for a zero-initialised last operation
    with neither a ReLU nor a norm after it. One that looks back mixes tokens with earlier ones, never with later ones.
    """

    name: str
    topology: Topology
    kind: Kind
    build: Factory
    birth: Birth = Birth.ZERO
    looks_back: bool = False

    def fits(self, front: Front) -> bool:
        """Whether it can be right behind that submodule."""
        return (front.looks_back or not self.looks_back) and (front.block or self.birth is not Birth.COPY)

    def newborn(self, channels: int, front: Front) -> nn.Module:
        """A new module, for a seed behind that submodule."""
        module = self.build(front if self.birth is Birth.COPY else channels)
        return module.with_cache(front.use) if isinstance(module, LooksBack) else module

    def parameters(self, channels: int, front_parameters: int = 0) -> int:
        """The exact parameter count for this many channels, behind a submodule of so many parameters.

        Allocates nothing and draws no random numbers.
        """
        return front_parameters if self.birth is Birth.COPY else _count(self.build, channels)


@cache
def _count(build: Factory, channels: int) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build(channels).parameters())


_REGISTRY: dict[Topology, dict[str, Blueprint]] = {topology: {} for topology in Topology}


def blueprint(
    name: str, topology: str, kind: Kind, *, birth: Birth = Birth.ZERO, looks_back: bool = False
) -> Callable[[Factory], Factory]:
    """Register a factory under `name` for hosts of `topology`."""

    def register(factory: Factory) -> Factory:
        known = _REGISTRY[Topology(topology)]
        if name in known:
            raise DuplicateBlueprint(f"a {topology} blueprint '{name}' exists already; choose another name")
        known[name] = Blueprint(name, Topology(topology), kind, factory, birth, looks_back)
        return factory

    return register


def blueprints_for(topology: Topology) -> tuple[Blueprint, ...]:
    """All blueprints that fit `topology`, in the order of their registration."""
    return tuple(_REGISTRY[topology].values())


def find_blueprint(name: str, topology: Topology) -> Blueprint:
    """The blueprint of that name, or an error with the nearest one."""
    known = _REGISTRY[topology]
    if name not in known:
        raise UnknownBlueprint(f"no blueprint '{name}' for {topology} hosts; {nearest(name, known)}")
    return known[name]


def last_zero(module: nn.Module) -> nn.Module:
    """The module with weight and bias set to zero: the operation that ends a blueprint."""
    for parameter in module.parameters():
        nn.init.zeros_(parameter)
    return module
