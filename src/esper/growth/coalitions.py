"""What the network puts out under any subset of its blended seeds, without touching its state."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from esper.contracts import EsperError, SlotId, nearest
from esper.growth.chain import Chain, chain_of
from esper.growth.slot import Slot

Coalition: TypeAlias = frozenset[SlotId]
"""The slots whose seeds are switched on; all other seeds are off."""


class UnknownCoalition(EsperError):
    """A coalition names a slot that has no blended seed."""


@contextmanager
def only(slots: Sequence[Slot], coalition: Coalition) -> Iterator[None]:
    """While this lasts, the seeds outside `coalition` are left out."""
    with ExitStack() as stack:
        for slot in slots:
            stack.enter_context(slot.set(muted=slot.id not in coalition))
        yield


@contextmanager
def evaluating(*modules: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards every submodule is in the mode it was in."""
    training = [part for module in modules for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        for part in training:
            part.training = True


def coalition_outputs(
    host: nn.Module, slots: Sequence[Slot], coalitions: Iterable[Iterable[SlotId]], *args: Any, **kwargs: Any
) -> dict[Coalition, Any]:
    """The host's output for each distinct coalition, in evaluation mode.

    A host that is a chain and takes one tensor is run as a tree: coalitions share the pass up to the first
    slot in which they differ. Any other host is run once per coalition. Both give the same numbers.
    """
    wanted = list(dict.fromkeys(frozenset(coalition) for coalition in coalitions))
    _check(wanted, slots)
    chain = chain_of(host, slots) if len(args) == 1 and not kwargs else None
    with evaluating(host, *slots):
        if chain is not None:
            with chain.in_hand():
                outputs = dict(_branch(chain, slots, 0, _own(args[0]), wanted))
            return {coalition: outputs[coalition] for coalition in wanted}
        results: dict[Coalition, Any] = {}
        for coalition in wanted:
            with only(slots, coalition):
                results[coalition] = host(*map(_own, args), **{name: _own(value) for name, value in kwargs.items()})
        return results


def _own(value: Any) -> Any:
    """A first layer that works in place must not change the caller's data."""
    return value.clone() if isinstance(value, Tensor) else value


def _check(wanted: Sequence[Coalition], slots: Sequence[Slot]) -> None:
    blended = [slot.id for slot in slots if slot.alpha > 0.0]
    for name in sorted(frozenset().union(*wanted).difference(blended)):
        raise UnknownCoalition(
            f"a coalition names slot '{name}', which has no seed with alpha above 0; {nearest(name, blended)}"
        )


def _branch(
    chain: Chain, slots: Sequence[Slot], first: int, h: Tensor, coalitions: Sequence[Coalition]
) -> Iterator[tuple[Coalition, Tensor]]:
    """Walk the chain with all `coalitions` together until a step tells them apart, then with each kind alone."""
    for index in range(first, len(chain.steps)):
        step = chain.steps[index]
        kinds: dict[Coalition, list[Coalition]] = {}
        for coalition in coalitions:
            kinds.setdefault(coalition & step.slots, []).append(coalition)
        if len(kinds) > 1:
            for kind in kinds.values():
                # Each branch has its own copy, because a step may work in place.
                yield from _branch(chain, slots, index, h.clone(), kind)
            return
        if step.slots:
            with only(slots, next(iter(kinds))):
                h = step.run(h)
        else:
            h = step.run(h)
    for coalition in coalitions:
        yield coalition, h
