"""A slot's state as plain values, and back. What comes from a file is checked before it is believed."""

from dataclasses import asdict, fields
from enum import Enum
from typing import Any

from esper.checked import BadValue, checked
from esper.contracts import EsperError, SlotId
from esper.growth.lifecycle import IllegalTransition, SlotState

MAX_EPOCHS = 10**9
MAX_ANOMALIES = 100


class InvalidCheckpoint(EsperError):
    """A saved body is damaged, hostile, or of another shape than the body it is loaded into."""


def encode_slot(slot: SlotId, state: SlotState) -> dict[str, Any]:
    """Strings, numbers, lists and dicts only, so that `torch.load(weights_only=True)` takes it."""
    return {"slot": slot, **_plain(asdict(state))}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, tuple):
        return list(map(_plain, value))
    return value.name if isinstance(value, Enum) else value


def decode_slot(encoded: Any, slot: SlotId) -> SlotState:
    """The state of the slot named `slot`; anything else in `encoded` is an error."""
    expected = {"slot", *(each.name for each in fields(SlotState))}
    if not isinstance(encoded, dict) or set(encoded) != expected:
        found = sorted(map(str, encoded)) if isinstance(encoded, dict) else type(encoded).__name__
        raise InvalidCheckpoint(f"slot '{slot}' was saved with {found}; expected the fields {sorted(expected)}")
    if encoded["slot"] != slot:
        raise InvalidCheckpoint(
            f"the saved slot is '{encoded['slot']}' where this body has '{slot}'; graft with the same names, in order"
        )
    try:
        state = checked(SlotState, {name: value for name, value in encoded.items() if name != "slot"})
    except (BadValue, IllegalTransition, ValueError, OverflowError) as error:
        raise InvalidCheckpoint(f"slot '{slot}' was saved in a state that cannot be: {error}") from error
    if not 0 <= state.age <= MAX_EPOCHS or state.schedule.ticks > MAX_EPOCHS or len(state.anomalies) > MAX_ANOMALIES:
        raise InvalidCheckpoint(
            f"slot '{slot}' was saved with an age of {state.age}, a ramp of {state.schedule.ticks} epochs and "
            f"{len(state.anomalies)} anomalies; no body lives to be {MAX_EPOCHS:,} or has over {MAX_ANOMALIES} of them"
        )
    return state
