"""A slot's state as plain values, and back. What comes from a file is checked before it is believed."""

from enum import Enum
from typing import Any, TypeVar

from esper.contracts import AlphaCurve, AlphaTarget, EsperError, SlotId, Stage, Style, Tempo, nearest
from esper.growth.alpha import AlphaSchedule
from esper.growth.lifecycle import IllegalTransition, Plan, SlotState

MAX_EPOCHS = 10**9
MAX_ANOMALIES = 100

EnumT = TypeVar("EnumT", bound=Enum)


class InvalidCheckpoint(EsperError):
    """A saved body is damaged, hostile, or of another shape than the body it is loaded into."""


def encode_slot(slot: SlotId, state: SlotState) -> dict[str, Any]:
    """Strings, numbers, lists and dicts only, so that `torch.load(weights_only=True)` takes it."""
    plan, schedule = state.plan, state.schedule
    return {
        "slot": slot,
        "stage": state.stage.name,
        "age": state.age,
        "plan": None
        if plan is None
        else {
            "blueprint": plan.blueprint,
            "style": plan.style.name,
            "tempo": plan.tempo.name,
            "alpha_target": plan.alpha_target.name,
        },
        "schedule": {
            "start": schedule.start,
            "target": schedule.target,
            "ticks": schedule.ticks,
            "curve": schedule.curve.name,
            "elapsed": schedule.elapsed,
        },
        "gradient_norm": state.gradient_norm,
        "contribution": state.contribution,
        "anomalies": list(state.anomalies),
    }


def decode_slot(encoded: Any, slot: SlotId) -> SlotState:
    """The state of the slot named `slot`; anything else in `encoded` is an error."""
    fields = _fields(encoded, slot, "slot stage age plan schedule gradient_norm contribution anomalies")
    if fields["slot"] != slot:
        raise InvalidCheckpoint(
            f"the saved slot is '{fields['slot']}' where this body has '{slot}'; graft with the same names, in order"
        )
    try:
        return SlotState(
            stage=_member(Stage, fields["stage"], slot),
            age=_whole(fields["age"], slot),
            plan=_plan(fields["plan"], slot),
            schedule=_schedule(fields["schedule"], slot),
            gradient_norm=_number(fields["gradient_norm"], slot),
            contribution=_number(fields["contribution"], slot),
            anomalies=_anomalies(fields["anomalies"], slot),
        )
    except (IllegalTransition, ValueError, OverflowError) as error:
        raise InvalidCheckpoint(f"slot '{slot}' was saved in a state that cannot be: {error}") from error


def _plan(encoded: Any, slot: SlotId) -> Plan | None:
    if encoded is None:
        return None
    fields = _fields(encoded, slot, "blueprint style tempo alpha_target")
    if not isinstance(fields["blueprint"], str):
        raise InvalidCheckpoint(f"slot '{slot}': the blueprint is {fields['blueprint']!r}; a name is needed")
    return Plan(
        fields["blueprint"],
        _member(Style, fields["style"], slot),
        _member(Tempo, fields["tempo"], slot),
        _member(AlphaTarget, fields["alpha_target"], slot),
    )


def _schedule(encoded: Any, slot: SlotId) -> AlphaSchedule:
    fields = _fields(encoded, slot, "start target ticks curve elapsed")
    start, target = (_number(fields[name], slot) for name in ("start", "target"))
    if start is None or target is None:
        raise InvalidCheckpoint(f"slot '{slot}': the alpha schedule lacks its start or target")
    curve = _member(AlphaCurve, fields["curve"], slot)
    return AlphaSchedule(start, target, _whole(fields["ticks"], slot), curve, _whole(fields["elapsed"], slot))


def _fields(encoded: Any, slot: SlotId, names: str) -> dict[str, Any]:
    expected = names.split()
    if not isinstance(encoded, dict) or set(encoded) != set(expected):
        found = sorted(map(str, encoded)) if isinstance(encoded, dict) else type(encoded).__name__
        raise InvalidCheckpoint(f"slot '{slot}' was saved with {found}; expected the fields {expected}")
    return encoded


def _member(kind: type[EnumT], name: Any, slot: SlotId) -> EnumT:
    if not isinstance(name, str) or name not in kind.__members__:
        raise InvalidCheckpoint(
            f"slot '{slot}': {name!r} is not a {kind.__name__}; {nearest(str(name), kind.__members__)}"
        )
    return kind[name]


def _whole(value: Any, slot: SlotId) -> int:
    if type(value) is not int or not 0 <= value <= MAX_EPOCHS:
        raise InvalidCheckpoint(f"slot '{slot}': {value!r} is not a count of epochs between 0 and {MAX_EPOCHS:,}")
    return value


def _number(value: Any, slot: SlotId) -> float | None:
    if value is None:
        return None
    if type(value) not in (int, float):
        raise InvalidCheckpoint(f"slot '{slot}': {value!r} is not a number")
    return float(value)


def _anomalies(value: Any, slot: SlotId) -> tuple[str, ...]:
    if (
        not isinstance(value, list)
        or len(value) > MAX_ANOMALIES
        or not all(isinstance(anomaly, str) for anomaly in value)
    ):
        raise InvalidCheckpoint(f"slot '{slot}': the anomalies are not a list of at most {MAX_ANOMALIES} texts")
    return tuple(value)
