"""Whether a saved body fits the body it is to be loaded into; asked before anything is changed."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from esper.checked import BadValue, checked
from esper.contracts import Gain
from esper.growth.attachment import CHILD
from esper.growth.blueprints import UnknownBlueprint
from esper.growth.lifecycle import SlotState
from esper.growth.persistence import InvalidCheckpoint, decode_slot
from esper.growth.slot import Slot

REQUIRED = frozenset({"epoch", "quality", "generator", "slots"})
OPTIONAL = frozenset({"changed", "gains"})
"""What a body keeps beside its tensors; the optional ones are missing in states of older versions."""


def check_fits(state: Mapping[str, Any], host: nn.Module, slots: Sequence[Slot]) -> list[SlotState]:
    """The states of the slots; `InvalidCheckpoint` unless `state` is that of a body with this host and these slots."""
    states = states_of(state.get("_extra_state"), slots)
    expected = _expected(host, slots, states)
    tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    wrong = [f"'{name}' is missing" for name in expected if name not in tensors]
    wrong += [f"'{name}' is unexpected" for name in tensors if name not in expected]
    wrong += [
        f"'{name}' has shape {tuple(tensors[name].shape)} instead of {tuple(shape)}"
        for name, shape in expected.items()
        if name in tensors and tensors[name].shape != shape
    ]
    if wrong:
        raise InvalidCheckpoint(
            f"the state does not fit this body: {'; '.join(wrong[:5])}; "
            "build and graft the host as it was when it was saved"
        )
    return states


def states_of(own: Any, slots: Sequence[Slot]) -> list[SlotState]:
    """The states of the slots in what a body keeps beside its tensors; anything else is an error."""
    known = isinstance(own, dict) and REQUIRED <= set(own) <= REQUIRED | OPTIONAL
    if not known or type(own["epoch"]) is not int or not isinstance(own["quality"], float | None):
        raise InvalidCheckpoint("the state is not that of a body; give what `Body.state_dict()` returned")
    _check_measured(own, slots)
    try:
        torch.Generator().set_state(own["generator"])
    except (TypeError, RuntimeError) as error:
        raise InvalidCheckpoint(f"the saved random state is damaged: {error}") from error
    if not isinstance(own["slots"], list) or len(own["slots"]) != len(slots):
        raise InvalidCheckpoint(f"the state is not one of {len(slots)} slots; graft with the same names, in order")
    return [decode_slot(each, slot.id) for each, slot in zip(own["slots"], slots, strict=True)]


def _check_measured(own: Mapping[str, Any], slots: Sequence[Slot]) -> None:
    """What states of older versions lack."""
    changed, gains = own.get("changed"), own.get("gains", {})
    try:
        fit = isinstance(changed, int | None) and set(gains) <= {slot.id for slot in slots}
        for each in chain.from_iterable(gains.values()):
            checked(Gain, each)
    except (TypeError, AttributeError, BadValue) as error:
        raise InvalidCheckpoint(f"the saved gains are damaged: {error}") from error
    if not fit:
        raise InvalidCheckpoint("the saved gains are of other slots; give what `Body.state_dict()` returned")


def _expected(host: nn.Module, slots: Sequence[Slot], states: Sequence[SlotState]) -> dict[str, torch.Size]:
    """Names and shapes of the tensors that a state with these slots must have."""
    inside = tuple(f"{slot.id}.{CHILD}." for slot in slots)
    everything = {name: value for name, value in host.state_dict().items() if isinstance(value, Tensor)}
    own = {name: value for name, value in everything.items() if not name.startswith(inside)}
    shapes = {f"host.{name}": value.shape for name, value in own.items()}
    for slot, state in zip(slots, states, strict=True):
        if state.plan is None:
            continue
        try:
            structure = slot.structure(state.plan)
        except UnknownBlueprint as error:
            raise InvalidCheckpoint(f"slot '{slot.id}' needs what is not registered here: {error}") from error
        shapes.update({f"host.{slot.id}.{CHILD}.seed.{name}": shape for name, shape in structure.items()})
    return shapes
