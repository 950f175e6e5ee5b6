"""Whether a saved body fits the body it is to be loaded into; asked before anything is changed."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from esper.growth.blueprints import UnknownBlueprint
from esper.growth.persistence import InvalidCheckpoint, decode_slot
from esper.growth.slot import Slot


def check_fits(state: Mapping[str, Any], host: nn.Module, slots: Sequence[Slot]) -> None:
    """Raise `InvalidCheckpoint` unless `state` is that of a body with this host and these slots, in any stage."""
    _check_own(state.get("_extra_state"))
    expected = _expected(state, host, slots)
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


def _check_own(own: Any) -> None:
    if not isinstance(own, dict) or set(own) != {"epoch", "generator"} or type(own["epoch"]) is not int:
        raise InvalidCheckpoint("the state is not that of a body; give what `Body.state_dict()` returned")
    try:
        torch.Generator().set_state(own["generator"])
    except (TypeError, RuntimeError) as error:
        raise InvalidCheckpoint(f"the saved random state is damaged: {error}") from error


def _expected(state: Mapping[str, Any], host: nn.Module, slots: Sequence[Slot]) -> dict[str, torch.Size]:
    """Names and shapes of the tensors that a state with these slots must have."""
    shapes = {f"host.{name}": value.shape for name, value in host.state_dict().items()}
    for index, slot in enumerate(slots):
        key = f"slots.{index}._extra_state"
        if key not in state:
            raise InvalidCheckpoint(f"the state has no slot {index}; this body has {len(slots)} slots")
        plan = decode_slot(state[key], slot.id).plan
        if plan is None:
            continue
        try:
            structure = slot.structure(plan)
        except UnknownBlueprint as error:
            raise InvalidCheckpoint(f"slot '{slot.id}' needs what is not registered here: {error}") from error
        shapes.update({f"slots.{index}.seed.{name}": shape for name, shape in structure.items()})
    return shapes
