"""What a submodule is called with and what it puts out, and where the features are in both."""

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.utils import _pytree as pytree


@dataclass(frozen=True)
class Call:
    """The arguments of one call of a submodule."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    def value(self, name: str, names: tuple[str, ...]) -> Any:
        """The argument of that name, by the `names` of parameters in order; None if it was not given."""
        if name in self.kwargs:
            return self.kwargs[name]
        place = names.index(name) if name in names else len(self.args)
        return self.args[place] if place < len(self.args) else None

    def replaced(self, name: str, value: Any, names: tuple[str, ...]) -> "Call":
        """The same call with another value of an argument; one that was not given is added."""
        place = names.index(name) if name in names else len(self.args)
        if name not in self.kwargs and place < len(self.args):
            return Call((*self.args[:place], value, *self.args[place + 1 :]), self.kwargs)
        return Call(self.args, {**self.kwargs, name: value})

    def on(self, features: Tensor, names: tuple[str, ...]) -> "Call":
        """The same call with other features, which are the first argument."""
        return self.replaced(names[0], features, names) if self.args or self.kwargs else Call((features,))

    def each(self, change: Callable[[Tensor], Tensor]) -> "Call":
        """The same call with all tensors changed."""
        args, kwargs = pytree.tree_map(
            lambda leaf: change(leaf) if isinstance(leaf, Tensor) else leaf, (self.args, self.kwargs)
        )
        return Call(args, kwargs)

    def like(self, features: Tensor) -> "Call":
        """The same call where the features are, and in their precision."""
        device, dtype = features.device, features.dtype
        return self.each(lambda each: each.to(device, dtype if each.is_floating_point() else each.dtype))

    def first_rows(self, rows: int, of: int) -> "Call":
        """The same call for the first rows of a batch of so many, without gradients."""
        return self.each(lambda each: (each[:rows] if each.ndim and each.shape[0] == of else each).detach())


NO_CALL = Call()


def parameters_of(module: nn.Module) -> tuple[str, ...]:
    """The names of what the submodule takes, in order."""
    return tuple(inspect.signature(module.forward).parameters)


def features_in(output: Any) -> Any:
    """What may be features in an output: the tensor, or the first thing in a tuple, list or dictionary."""
    if isinstance(output, dict):
        return next(iter(output.values()), None)
    return output[0] if _is_row(output) and output else output


def with_features(output: Any, features: Any) -> Any:
    """The same output with other features in their place."""
    if features is features_in(output):
        return output
    if isinstance(output, dict):
        changed = copy.copy(output)
        changed[next(iter(output))] = features
        return changed
    if hasattr(output, "_replace"):
        return output._replace(**{output._fields[0]: features})
    return type(output)([features, *output[1:]]) if _is_row(output) else features


def _is_row(output: Any) -> bool:
    return type(output) in (tuple, list) or hasattr(output, "_replace")
