"""The gates: may this operation happen to this slot now? Pure functions of a snapshot that say why."""

import math
from dataclasses import dataclass

from esper.contracts import (
    ACCURACY_GRAIN,
    ADVANCES_TO,
    LEGAL_IN,
    Action,
    AlphaMode,
    Check,
    EsperError,
    Gate,
    Op,
    SlotSnapshot,
    Stage,
    Verdict,
    nearest,
)


class InvalidThresholds(EsperError):
    """A gate threshold lies outside its range."""


@dataclass(frozen=True)
class Thresholds:
    """What the gates ask for. Shares are of the horizon, so that ages fit short and long episodes alike.

    >>> Thresholds(horizon=25).min_training_epochs, Thresholds(horizon=100).min_training_epochs
    (2, 8)
    """

    horizon: int = 25
    training_share: float = 0.08
    holding_share: float = 0.04
    embargo_share: float = 0.12
    min_gradient_norm: float = 1e-8
    min_contribution: float = ACCURACY_GRAIN

    def __post_init__(self) -> None:
        if self.horizon < 1:
            raise InvalidThresholds(f"horizon is {self.horizon}; give a number of epochs of at least 1")
        for name in ("training_share", "holding_share", "embargo_share"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InvalidThresholds(f"{name} is {getattr(self, name)}; give a share between 0 and 1")
        if not 0.0 < self.min_gradient_norm < math.inf:
            raise InvalidThresholds(f"min_gradient_norm is {self.min_gradient_norm}; give a small positive number")
        if not -1.0 <= self.min_contribution <= 1.0:
            raise InvalidThresholds(
                f"min_contribution is {self.min_contribution}; give a quality as a fraction, such as 0.01"
            )

    @property
    def min_training_epochs(self) -> int:
        return self._epochs(self.training_share)

    @property
    def min_holding_epochs(self) -> int:
        return self._epochs(self.holding_share)

    @property
    def embargo_epochs(self) -> int:
        return self._epochs(self.embargo_share)

    def _epochs(self, share: float) -> int:
        return max(1, round(share * self.horizon))


def judge(action: Action, slot: SlotSnapshot, thresholds: Thresholds) -> Verdict:
    """Whether `action` may be applied to `slot` now, which must be the slot that it names."""
    op, stage = action.op, slot.stage
    legal = Check.that(
        stage in LEGAL_IN[op], f"{op.name} is legal in {stage.name}", f"{op.name} is not legal in {stage.name}"
    )
    if not legal.holds:
        return Verdict((legal,))
    if op is Op.GERMINATE:
        return Verdict((legal, _fits(slot, action.blueprint)), Gate.G0)
    if op is Op.ADVANCE:
        gate = Gate(ADVANCES_TO[stage])
        return Verdict((legal, *_CHECKS[gate](slot, thresholds)), gate)
    if op is Op.FOSSILIZE:
        return Verdict((legal, *_into_fossilized(slot, thresholds)), Gate.G5)
    if op is Op.PRUNE:
        return Verdict((legal, Check.that(not slot.pruning, "not yet being pruned", "already being pruned")))
    if op is Op.SET_ALPHA_TARGET:
        return Verdict((legal, _still(slot)))
    return Verdict((legal,))


def ready(slot: SlotSnapshot, thresholds: Thresholds) -> bool:
    """Whether the seed is held and could become a fossil now."""
    return bool(judge(Action(Op.FOSSILIZE, slot.slot), slot, thresholds))


def _fits(slot: SlotSnapshot, blueprint: str | None) -> Check:
    if blueprint in slot.blueprints:
        return Check(f"blueprint '{blueprint}' fits {slot.topology} features of {slot.channels} channels", True)
    return Check(
        f"no blueprint '{blueprint}' for slot '{slot.slot}'; {nearest(str(blueprint), slot.blueprints)}", False
    )


def _still(slot: SlotSnapshot) -> Check:
    return Check.that(
        slot.alpha_mode is AlphaMode.STILL,
        f"alpha stands still at {slot.alpha:.3g}",
        f"alpha is still {slot.alpha_mode.value}, at {slot.alpha:.3g} of {slot.alpha_target:.3g}",
    )


def _aged(slot: SlotSnapshot, needed: int) -> Check:
    return Check(f"{slot.age} of at least {needed} epochs in {slot.stage.name}", slot.age >= needed)


def _sound(slot: SlotSnapshot) -> Check:
    return Check.that(not slot.anomalies, "no anomaly in the last epoch", f"anomaly: {', '.join(slot.anomalies)}")


def _into_training(slot: SlotSnapshot, thresholds: Thresholds) -> tuple[Check, ...]:
    return (Check.that(slot.parameters > 0, f"a seed of {slot.parameters} parameters is there", "the seed is empty"),)


def _into_blending(slot: SlotSnapshot, thresholds: Thresholds) -> tuple[Check, ...]:
    aged, norm, floor = _aged(slot, thresholds.min_training_epochs), slot.gradient_norm, thresholds.min_gradient_norm
    if norm is None:
        return (
            aged,
            Check("no gradient of the seed was measured in the last epoch; call record_gradients", False),
        )
    if not math.isfinite(norm):
        return (aged, Check(f"the seed's gradient norm is {norm}", False))
    return (
        aged,
        Check.that(
            norm > floor,
            f"gradient norm {norm:.3g} is above {floor:g}",
            f"gradient norm {norm:.3g} is not above {floor:g}: the seed is dead",
        ),
    )


def _into_holding(slot: SlotSnapshot, thresholds: Thresholds) -> tuple[Check, ...]:
    staying = Check.that(not slot.pruning, "the seed is to stay", "the seed is being pruned")
    return (staying, _still(slot))


def _into_fossilized(slot: SlotSnapshot, thresholds: Thresholds) -> tuple[Check, ...]:
    checks = (_aged(slot, thresholds.min_holding_epochs), _still(slot), _sound(slot))
    if slot.contribution is None:
        return (*checks, Check("the seed's contribution was not measured", False))
    # A host that has come to rely on a seed suffers without it, even if the seed never helped.
    gained = () if slot.improvement is None else (_enough("improvement since birth", slot.improvement, thresholds),)
    return (*checks, _enough("contribution", slot.contribution, thresholds), *gained)


def _enough(what: str, value: float, thresholds: Thresholds) -> Check:
    least, is_value = thresholds.min_contribution, f"{what} {value:.3g} is"
    return Check.that(value >= least, f"{is_value} at least {least:g}", f"{is_value} below {least:g}")


_CHECKS = {Gate.G1: _into_training, Gate.G2: _into_blending, Gate.G3: _into_holding}
"""What ADVANCE must pass, by the gate that it leads through."""


def cooling_epochs(stage: Stage, thresholds: Thresholds) -> int:
    """How long an emptied slot stays in this stage before the clock moves it on."""
    return thresholds.embargo_epochs if stage is Stage.EMBARGOED else 1
