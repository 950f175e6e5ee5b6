"""A slot inside a host's submodule: the same object, whose class passes its output through the slot.

So modes, devices, copies, averages, optimisers and `torch.compile` see a seed as a part of the model. The submodule
keeps its name, its attributes and the keys of its state.
"""

import copy
from collections.abc import Iterator
from typing import Any, ClassVar, NoReturn

from torch import nn

from esper.contracts import EsperError
from esper.growth.interface import Call, features_in, with_features

CHILD = "esper_slot"
"""The name of the slot within its submodule."""


class NotPicklable(EsperError):
    """A model with slots was pickled whole."""


class Attached(nn.Module):
    """Mixed into the class of a submodule that has a slot."""

    host_class: ClassVar[type[nn.Module]]
    """What the submodule was."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = super().forward(*args, **kwargs)
        slot: Any = self._modules[CHILD]
        return with_features(output, slot(features_in(output), Call(args, kwargs)))

    def __deepcopy__(self, memo: dict[int, Any]) -> "Attached":
        twin = self.__new__(type(self))
        memo[id(self)] = twin
        # By its state, as any module is copied: that leaves out code that was compiled for the original.
        twin.__setstate__(copy.deepcopy(self.__getstate__(), memo))  # type: ignore[no-untyped-call]
        return twin

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise NotPicklable(
            "a model with slots cannot be pickled whole; save its state_dict(), or what body.harvest() returns"
        )


class AttachedSequence(Attached):
    """A sequence runs its children in turn, and the slot is none of them."""

    def __iter__(self) -> Iterator[nn.Module]:
        return iter([child for name, child in self._modules.items() if name != CHILD and child is not None])

    def __len__(self) -> int:
        return len(self._modules) - 1


def attach(module: nn.Module, slot: nn.Module) -> None:
    """Let the features in the output of `module` pass through `slot`, which is told of the call, too."""
    kind = type(module)
    mixed = AttachedSequence if isinstance(module, nn.Sequential) else Attached
    module.__class__ = type(kind.__name__, (mixed, kind), {"host_class": kind, "__module__": kind.__module__})
    module.add_module(CHILD, slot)


def detach(module: nn.Module) -> None:
    """Give the submodule back as it was."""
    kind = class_of(module)
    del module._modules[CHILD]
    module.__class__ = kind


def class_of(module: nn.Module) -> type[nn.Module]:
    """What the module is, its slot aside."""
    return module.host_class if isinstance(module, Attached) else type(module)
