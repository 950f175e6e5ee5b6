"""A snapshot as numbers: fixed, documented scales, and a bit beside each number that says whether it was measured.

Every feature is a row of a table; arrays, spaces and documentation all come from these rows.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from esper.contracts import (
    RULES,
    AlphaMode,
    Gain,
    HostSnapshot,
    Kind,
    ObservationFields,
    SlotSnapshot,
    Snapshot,
    Stage,
    Style,
    Topology,
)
from esper.growth import Blueprint, find_blueprint

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
    """A blueprint, seen as a seed for one slot: whether it may germinate there, and what a newborn would gain."""

    blueprint: Blueprint
    parameters: int
    host_parameters: int
    fits: bool
    gain: Gain | None = None


def symlog(value: float) -> float:
    """Sign and logarithm: linear near 0, slow far out. Takes infinities."""
    return math.copysign(math.log1p(abs(value)), value)


def _symlog(value: float | None) -> float | None:
    return None if value is None else symlog(value)


def _log(value: float | None) -> float | None:
    """The decimal logarithm; that of nothing is as low as can be."""
    if value is None or math.isnan(value):
        return None
    return math.log10(value) if value > 0.0 else -math.inf


def _difference(now: float | None, then: float | None) -> float | None:
    return None if now is None or then is None else now - then


def _growth(extra: int, parameters: int) -> float:
    return math.log1p(max(0, extra) / max(1, parameters))


def _share(part: int, whole: int) -> float:
    return part / max(1, whole)


def _seeds(snapshot: Snapshot, stage: Stage) -> float:
    return _share(sum(slot.stage is stage for slot in snapshot.slots), len(snapshot.slots))


def _mean_channels(snapshot: Snapshot) -> float:
    return fmean(slot.channels for slot in snapshot.slots)


def _most_channels(snapshot: Snapshot) -> float:
    return max(slot.channels for slot in snapshot.slots)


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
        lambda s: _growth(s.host.total_parameters - s.host.parameters, s.host.parameters),
        0,
        10,
    ),
    Feature("dormant", "share of slots that are dormant", lambda s: _seeds(s, Stage.DORMANT)),
    Feature("fossilized", "share of slots that are fossilised", lambda s: _seeds(s, Stage.FOSSILIZED)),
    Feature("horizon", "log10 of the horizon", lambda s: _log(s.host.horizon), 0, 4),
    Feature("parameters", "log10 of the host's parameters", lambda s: _log(s.host.parameters), 0, 10),
    Feature("depth", "log10 of the host's layers with a matrix of weights", lambda s: _log(s.host.depth), 0, 4),
    Feature("mean_channels", "log10 of the slots' mean channels", lambda s: _log(_mean_channels(s)), 0, 4),
    Feature("most_channels", "log10 of the slots' most channels", lambda s: _log(_most_channels(s)), 0, 4),
    Feature("outcomes", "log10 of the classes, or tokens of a vocabulary", lambda s: _log(s.host.outcomes), 0, 4),
    Feature("rows", "log10 of the samples that an epoch trains on", lambda s: _log(s.host.rows), 0, 8),
    Feature("rent", "log10 of the quality that a factor e of size must bring", lambda s: _log(s.host.rent), -4, 0),
    Feature(
        "quality_slope",
        "evaluation quality less that of one epoch before",
        lambda s: _difference(s.host.evaluation_quality, s.host.previous_quality),
        -1,
        1,
    ),
    Feature(
        "loss_slope",
        "symlog of the evaluation loss less that of one epoch before",
        lambda s: _difference(_symlog(s.host.evaluation_loss), _symlog(s.host.previous_loss)),
        -10,
        10,
    ),
    Feature(
        "loss_gap",
        "symlog of the evaluation loss less that of the training loss",
        lambda s: _difference(_symlog(s.host.evaluation_loss), _symlog(s.host.train_loss)),
        -10,
        10,
    ),
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
    Feature(
        "size", "ln(1 + seed over host parameters)", lambda v: _growth(v.slot.parameters, v.host.parameters), 0, 10
    ),
    Feature("gradient_norm", "symlog of the seed's mean gradient norm", lambda v: _symlog(v.slot.gradient_norm), 0, 10),
    Feature(
        "contribution",
        "quality lost without the seed, a fraction",
        lambda v: v.slot.contribution,
        -1,
        1,
    ),
    Feature("anomaly", "1 if something was wrong in the last epoch", lambda v: float(bool(v.slot.anomalies))),
    Feature("seed", "1 if a seed is present", lambda v: float(RULES[v.slot.stage].holds_seed)),
    Feature("channels", "log10 of the channels", lambda v: _log(v.slot.channels), 0, 4),
    Feature("resolution", "log10 of the features' positions", lambda v: _log(v.slot.resolution), 0, 6),
    Feature("reach", "log10 of the input positions that a feature depends on", lambda v: _log(v.slot.reach), 0, 6),
    Feature("reach_share", "their share of the input image", lambda v: v.slot.reach_share),
)


def _one_hot_topology(topology: Topology) -> Feature[Offer]:
    name = topology.value
    return Feature(f"topology_{name}", f"1 for {name} blueprints", lambda o: float(o.blueprint.topology is topology))


def _one_hot_kind(kind: Kind) -> Feature[Offer]:
    name = kind.value
    return Feature(f"kind_{name}", f"1 for blueprints of kind {name}", lambda o: float(o.blueprint.kind is kind))


def _of_gain(name: str, meaning: str, read: Callable[[Gain], float | None], low: float, high: float) -> Feature[Offer]:
    return Feature(f"gain_{name}", meaning, lambda o: None if o.gain is None else read(o.gain), low, high)


BLUEPRINT_FEATURES: tuple[Feature[Offer], ...] = (
    *map(_one_hot_topology, Topology),
    *map(_one_hot_kind, Kind),
    Feature(
        "cost",
        "ln(1 + parameters in this slot / host parameters)",
        lambda o: _growth(o.parameters, o.host_parameters),
        0,
        10,
    ),
    Feature("fits", "1 if it may germinate in this slot", lambda o: float(o.fits)),
    _of_gain("norm", "log10 of the norm of a newborn's gradient", lambda gain: _log(gain.norm), -6, 4),
    _of_gain("push", "log10 of the sum of its entries' sizes", lambda gain: _log(gain.push), -6, 4),
    _of_gain("agreed", "log10 of what of it both halves of a batch agree on", lambda gain: _log(gain.agreed), -6, 4),
    _of_gain(
        "steadiness",
        "symlog of the sum of ln(mean over deviation) of the sizes between the halves",
        lambda gain: _symlog(gain.steadiness),
        -10,
        20,
    ),
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


def describe_offers(offers: Sequence[Offer]) -> tuple[Array, Bits]:
    """Numbers and bits (B, F) of what one slot is offered."""
    values, valid = zip(*(encode(BLUEPRINT_FEATURES, offer) for offer in offers), strict=True)
    return np.stack(values), np.stack(valid)


def _views(snapshot: Snapshot) -> list[SlotView]:
    return [SlotView(slot, snapshot.host, len(snapshot.slots)) for slot in snapshot.slots]
