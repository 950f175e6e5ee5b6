"""A snapshot as numbers: fixed, documented scales, and a bit beside each number that says whether it was measured.

Every feature is a row of a table; arrays, spaces and documentation all come from these rows.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from esper.contracts import (
    RULES,
    AlphaMode,
    HostSnapshot,
    Kind,
    ObservationFields,
    SlotSnapshot,
    Snapshot,
    Stage,
    Style,
    Topology,
)
from esper.growth import Blueprint, blueprints_for, find_blueprint

Array = NDArray[np.float32]
Bits = NDArray[np.int8]
SubjectT = TypeVar("SubjectT")


@dataclass(frozen=True)
class Feature(Generic[SubjectT]):
    """One number: what it means, its bounds, and how it is read; `None` is "not measured"."""

    name: str
    meaning: str
    read: Callable[[SubjectT], float | None]
    low: float = 0.0
    high: float = 1.0


@dataclass(frozen=True)
class SlotView:
    """A slot, seen together with its host."""

    slot: SlotSnapshot
    host: HostSnapshot
    slots: int


@dataclass(frozen=True)
class Offer:
    """A blueprint, seen as a seed for one slot."""

    blueprint: Blueprint
    view: SlotView


def symlog(value: float) -> float:
    """Sign and logarithm: linear near 0, slow far out. Takes infinities."""
    return math.copysign(math.log1p(abs(value)), value)


def _symlog(value: float | None) -> float | None:
    return None if value is None else symlog(value)


def _growth(extra: int, host: HostSnapshot) -> float:
    return math.log1p(max(0, extra) / max(1, host.parameters))


def _share(part: int, whole: int) -> float:
    return part / max(1, whole)


def _seeds(snapshot: Snapshot, stage: Stage) -> float:
    return _share(sum(slot.stage is stage for slot in snapshot.slots), len(snapshot.slots))


HOST_FEATURES: tuple[Feature[Snapshot], ...] = (
    Feature("progress", "epochs done / horizon", lambda s: _share(s.host.epoch, s.host.horizon)),
    Feature("train_loss", "symlog of the mean training loss (nats)", lambda s: _symlog(s.host.train_loss), 0, 10),
    Feature(
        "evaluation_loss", "symlog of the evaluation loss (nats)", lambda s: _symlog(s.host.evaluation_loss), 0, 10
    ),
    Feature("quality", "evaluation quality, a fraction", lambda s: s.host.evaluation_quality),
    Feature("gradient_norm", "symlog of the host's mean gradient norm", lambda s: _symlog(s.host.gradient_norm), 0, 10),
    Feature(
        "growth",
        "ln of total over host parameters",
        lambda s: _growth(s.host.total_parameters - s.host.parameters, s.host),
        0,
        10,
    ),
    Feature("dormant", "share of slots that are dormant", lambda s: _seeds(s, Stage.DORMANT)),
    Feature("fossilized", "share of slots that are fossilised", lambda s: _seeds(s, Stage.FOSSILIZED)),
)


def _one_hot_stage(stage: Stage) -> Feature[SlotView]:
    return Feature(f"stage_{stage.name.lower()}", f"1 in {stage.name}", lambda v: float(v.slot.stage is stage))


def _one_hot_mode(mode: AlphaMode) -> Feature[SlotView]:
    return Feature(f"alpha_{mode.value}", f"1 while alpha is {mode.value}", lambda v: float(v.slot.alpha_mode is mode))


def _one_hot_style(style: Style) -> Feature[SlotView]:
    name = style.name.lower()
    return Feature(f"style_{name}", f"1 if the seed's style is {style.name}", lambda v: float(v.slot.style is style))


def _seed_kind(view: SlotView) -> Kind | None:
    slot = view.slot
    return find_blueprint(slot.blueprint, slot.topology).kind if slot.blueprint else None


def _one_hot_seed_kind(kind: Kind) -> Feature[SlotView]:
    return Feature(
        f"seed_{kind.value}", f"1 if the seed's kind is {kind.value}", lambda v: float(_seed_kind(v) is kind)
    )


SLOT_FEATURES: tuple[Feature[SlotView], ...] = (
    *map(_one_hot_stage, Stage),
    Feature("age", "epochs in the stage / horizon", lambda v: _share(v.slot.age, v.host.horizon)),
    Feature("position", "place in the forward pass, from 0 to 1", lambda v: _share(v.slot.position, v.slots - 1)),
    Feature("alpha", "blending strength", lambda v: v.slot.alpha),
    Feature("alpha_target", "where alpha goes", lambda v: v.slot.alpha_target),
    *map(_one_hot_mode, AlphaMode),
    *map(_one_hot_style, Style),
    *map(_one_hot_seed_kind, Kind),
    Feature("tempo", "epochs of the first ramp / 8", lambda v: None if v.slot.tempo is None else v.slot.tempo / 8),
    Feature("size", "ln(1 + seed over host parameters)", lambda v: _growth(v.slot.parameters, v.host), 0, 10),
    Feature("gradient_norm", "symlog of the seed's mean gradient norm", lambda v: _symlog(v.slot.gradient_norm), 0, 10),
    Feature(
        "contribution",
        "quality lost without the seed, a fraction; not measured at alpha 0",
        lambda v: v.slot.contribution,
        -1,
        1,
    ),
    Feature("anomaly", "1 if something was wrong in the last epoch", lambda v: float(bool(v.slot.anomalies))),
    Feature("seed", "1 if a seed is present", lambda v: float(RULES[v.slot.stage].holds_seed)),
)


def _one_hot_topology(topology: Topology) -> Feature[Offer]:
    name = topology.value
    return Feature(f"topology_{name}", f"1 for {name} blueprints", lambda o: float(o.blueprint.topology is topology))


def _one_hot_kind(kind: Kind) -> Feature[Offer]:
    name = kind.value
    return Feature(f"kind_{name}", f"1 for blueprints of kind {name}", lambda o: float(o.blueprint.kind is kind))


BLUEPRINT_FEATURES: tuple[Feature[Offer], ...] = (
    *map(_one_hot_topology, Topology),
    *map(_one_hot_kind, Kind),
    Feature(
        "cost",
        "ln(1 + parameters in this slot / host parameters)",
        lambda o: _growth(o.blueprint.parameters(o.view.slot.channels), o.view.host),
        0,
        10,
    ),
    Feature("fits", "1 if it may germinate in this slot", lambda o: float(o.blueprint.name in o.view.slot.blueprints)),
)

FIELDS = ObservationFields(
    host=tuple(feature.name for feature in HOST_FEATURES),
    slots=tuple(feature.name for feature in SLOT_FEATURES),
    blueprints=tuple(feature.name for feature in BLUEPRINT_FEATURES),
)
"""The names of all features, for those who read the arrays."""


def encode(features: Sequence[Feature[SubjectT]], subject: SubjectT) -> tuple[Array, Bits]:
    """The numbers, clipped to their bounds, and their validity bits. What was not measured or is NaN is 0, invalid."""
    raw = [feature.read(subject) for feature in features]
    valid = np.array([value is not None and not math.isnan(value) for value in raw], dtype=np.int8)
    values = [
        min(max(value, feature.low), feature.high) if ok and value is not None else 0.0
        for feature, value, ok in zip(features, raw, valid, strict=True)
    ]
    return np.array(values, dtype=np.float32), valid


def observe(snapshot: Snapshot) -> dict[str, Array | Bits]:
    """What changes from epoch to epoch: `host` (F), `slots` (S, F), and their bits as `host_valid`, `slots_valid`."""
    host, host_valid = encode(HOST_FEATURES, snapshot)
    slots, slots_valid = zip(*(encode(SLOT_FEATURES, view) for view in _views(snapshot)), strict=True)
    return {"host": host, "host_valid": host_valid, "slots": np.stack(slots), "slots_valid": np.stack(slots_valid)}


def describe_offers(snapshot: Snapshot, offers: Sequence[Blueprint]) -> Array:
    """Each blueprint as a seed of each slot, shape (S, B, F); the same for a whole episode."""
    rows = [[encode(BLUEPRINT_FEATURES, Offer(each, view))[0] for each in offers] for view in _views(snapshot)]
    return np.array(rows, dtype=np.float32)


def _views(snapshot: Snapshot) -> list[SlotView]:
    return [SlotView(slot, snapshot.host, len(snapshot.slots)) for slot in snapshot.slots]


def offers_of(slots: Sequence[SlotSnapshot]) -> tuple[Blueprint, ...]:
    """The blueprints that may germinate in any of the slots, in registration order: the blueprint head's choices."""
    topologies = dict.fromkeys(slot.topology for slot in slots)
    wanted = {(slot.topology, name) for slot in slots for name in slot.blueprints}
    return tuple(
        each for topology in topologies for each in blueprints_for(topology) if (topology, each.name) in wanted
    )
