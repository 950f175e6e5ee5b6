"""A host as a chain of steps, where it is one, so that a pass can start again in the middle.

Only `nn.Sequential` promises that its forward pass is its children in order. Such hosts, nested ones too,
are taken apart; any other host has no chain and is run whole.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from torch import Tensor, nn

from esper.contracts import SlotId
from esper.growth.attachment import CHILD, class_of
from esper.growth.slot import Slot


@dataclass(frozen=True)
class Step:
    """A piece of the forward pass, and the slots that can change what it does."""

    run: Callable[[Tensor], Tensor]
    slots: frozenset[SlotId]


@dataclass(frozen=True)
class Chain:
    """The whole forward pass in order. The slots in `lifted` are steps of their own."""

    steps: tuple[Step, ...]
    lifted: tuple[Slot, ...]

    @contextmanager
    def in_hand(self) -> Iterator[None]:
        """While this lasts submodules leave the lifted slots to the chain's own steps."""
        with ExitStack() as stack:
            for slot in self.lifted:
                stack.enter_context(slot.set(bypassed=True))
            yield


def chain_of(host: nn.Module, slots: Sequence[Slot]) -> Chain | None:
    """The host's chain, or None if only a whole pass is sure to be right."""
    by_name = {slot.id: slot for slot in slots}
    if not _is_sequence(host, "", by_name):
        return None
    lifted: list[Slot] = []
    steps = tuple(_steps(host, "", by_name, lifted))
    return Chain(steps, tuple(lifted))


def _is_sequence(module: nn.Module, name: str, slots: Mapping[SlotId, Slot]) -> bool:
    """Whether calling the children in order is all that calling `module` does, its slot aside."""
    hooks = len(module._forward_hooks) + len(module._forward_pre_hooks)
    return class_of(module).forward is nn.Sequential.forward and hooks == 0


def _steps(module: nn.Module, name: str, slots: Mapping[SlotId, Slot], lifted: list[Slot]) -> Iterator[Step]:
    if _is_sequence(module, name, slots):
        # Not `named_children`, which leaves out a child that is there for the second time.
        for child_name, child in module._modules.items():
            if child is None or child_name == CHILD:
                continue
            yield from _steps(child, f"{name}.{child_name}" if name else child_name, slots, lifted)
    else:
        inside = (slot for slot in slots if slot.startswith(f"{name}."))
        yield Step(module, frozenset(inside))
    if name in slots:
        lifted.append(slots[name])
        yield Step(slots[name].apply_to, frozenset({name}))
