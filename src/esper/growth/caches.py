"""Keys and values of earlier tokens: how seeds that look back keep theirs where the host keeps its own.

A host that generates token by token is called with one token and a cache. The caches of the `transformers` library are
known: a list of layers, to which a seed adds one for itself. So whatever is done to the cache, such as reordering the
beams of a search, is done to the seed's layer too.
"""

import copy
import re
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from esper.contracts import EsperError
from esper.growth.interface import Call, parameters_of

ARGUMENTS = ("past_key_values", "layer_past")
"""As what submodules take a cache."""
LAYER = "layer_idx"
"""The attribute of a submodule that says which of a cache's layers is its own."""
REMEMBERS = re.compile("past|cache|^hx$")
"""Arguments of this name bring back what was computed before."""


class UnusableCache(EsperError):
    """A cache in which a seed cannot keep what it needs."""


@dataclass(frozen=True)
class CacheUse:
    """How a seed behind a submodule uses the caches that the submodule is given.

    `names` are the parameters of the submodule. Of a cache's layers, `host_layer` is the submodule's own, if there can
    be one, and `own_layer` the seed's.
    """

    names: tuple[str, ...] = ()
    host_layer: int | None = None
    own_layer: int = 0

    def given(self, call: Call) -> Any:
        """The cache in a call; None if there is none."""
        return next((each for name in ARGUMENTS if (each := call.value(name, self.names)) is not None), None)

    def without(self, call: Call) -> Call:
        """The same call without a cache."""
        for name in ARGUMENTS:
            if call.value(name, self.names) is not None:
                call = call.replaced(name, None, self.names)
        return call

    def cache_in(self, call: Call) -> Any:
        """The cache in a call, with a layer for the seed; None if there is none."""
        cache = self.given(call)
        if cache is None:
            return None
        if not self.fits(cache):
            raise UnusableCache(
                f"a seed that looks back was given a {type(cache).__name__}, in which it can keep nothing; call the "
                "model with use_cache=False, or with a DynamicCache"
            )
        layers = cache.layers
        while len(layers) <= self.own_layer:
            layers.append(_empty_like(layers[self.host_layer]))
        return cache

    def fits(self, cache: Any) -> bool:
        """Whether a seed can keep what it needs in that cache; without one, whether it could in such as are known."""
        return self.host_layer is not None and (cache is None or isinstance(getattr(cache, "layers", None), list))

    def require_in_step(self, cache: Any) -> None:
        """What the seed has kept must be as long as what the host has; else the cache is from before its birth."""
        if cache is None or torch.compiler.is_compiling():
            return
        kept, needed = (int(cache.layers[each].get_seq_length()) for each in (self.own_layer, self.host_layer))
        if kept != needed:
            raise UnusableCache(
                f"the cache has {needed} tokens, of which the seed has seen {kept}; begin a new cache after a seed "
                "came or went"
            )


def _empty_like(layer: Any) -> Any:
    """A layer of the same kind that has kept nothing."""
    empty = copy.copy(layer)
    empty.keys = empty.values = None
    empty.is_initialized = False
    if hasattr(empty, "cumulative_length"):
        length = empty.cumulative_length
        empty.cumulative_length = torch.zeros_like(length) if isinstance(length, Tensor) else 0
    return empty


NO_CACHE = CacheUse()


class LooksBack(nn.Module):
    """A part of a seed that looks at earlier tokens. It is told of the submodule's call, and how to use its cache."""

    use = NO_CACHE

    def with_cache(self, use: CacheUse) -> Self:
        """The same module, behind another submodule."""
        for part in self.modules():
            if isinstance(part, LooksBack):
                part.use = use
        return self


def cache_layers(host: nn.Module) -> int:
    """How many layers of a cache the host fills."""
    return 1 + max((each for part in host.modules() if (each := layer_of(part)) is not None), default=-1)


def layers_in(part: nn.Module) -> set[int]:
    """The layers of a cache that a part of the host fills."""
    return {each for inner in part.modules() if (each := layer_of(inner)) is not None}


def layer_of(part: nn.Module) -> int | None:
    """The layer of a cache that is the submodule's own."""
    layer = getattr(part, LAYER, None)
    return layer if isinstance(layer, int) else None


def remembers(host: nn.Module) -> bool:
    """Whether some part of the host can be given what it computed before."""
    return any(isinstance(part, nn.RNNBase) or any(map(REMEMBERS.search, _names(part))) for part in host.modules())


def _names(part: nn.Module) -> tuple[str, ...]:
    try:
        return parameters_of(part)
    except (ValueError, TypeError):  # compiled code has no signature
        return ()
