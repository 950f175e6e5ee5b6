"""The life of one slot as values: a state, and what each operation and each tick make of it.

Nothing here asks whether an operation is allowed: the gates do. Transitions that the table of stages does not
list are refused all the same.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from esper.contracts import (
    ADVANCES_TO,
    RULES,
    AlphaCurve,
    AlphaMode,
    AlphaTarget,
    EsperError,
    Stage,
    Style,
    Tempo,
)
from esper.growth.alpha import AlphaSchedule
from esper.growth.gates import Thresholds, cooling_epochs


class IllegalTransition(EsperError):
    """The table of stages does not lead from here to there."""


@dataclass(frozen=True)
class Plan:
    """How the seed was asked to grow."""

    blueprint: str
    style: Style
    tempo: Tempo
    alpha_target: AlphaTarget


@dataclass(frozen=True)
class SlotState:
    """Everything a slot is besides weights. A plan is there exactly while a seed is.

    The measurements are those of the last epoch; `None` is "not measured".
    """

    stage: Stage = Stage.DORMANT
    age: int = 0
    plan: Plan | None = None
    schedule: AlphaSchedule = field(default_factory=AlphaSchedule)
    gradient_norm: float | None = None
    contribution: float | None = None
    anomalies: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        rule = RULES[self.stage]
        if rule.holds_seed != (self.plan is not None):
            raise IllegalTransition(f"stage {self.stage.name} and plan {self.plan} do not go together")
        if self.schedule.target > 0.0 and not rule.blends:
            raise IllegalTransition(f"stage {self.stage.name} cannot have an alpha target of {self.schedule.target}")
        resting = self.schedule.mode is AlphaMode.STILL and self.schedule.alpha > 0.0
        if self.stage in (Stage.HOLDING, Stage.FOSSILIZED) and not resting:
            raise IllegalTransition(f"stage {self.stage.name} needs an alpha above 0 that stands still")
        if self.contribution is not None and self.schedule.alpha == 0.0:
            raise IllegalTransition("at alpha 0 a contribution is not measured")

    def germinated(self, plan: Plan) -> "SlotState":
        return self._enter(Stage.GERMINATED, plan=plan)

    def advanced(self) -> "SlotState":
        after = ADVANCES_TO.get(self.stage)
        if after is None or self.plan is None:
            raise IllegalTransition(f"nothing to advance in stage {self.stage.name}")
        if after is not Stage.BLENDING:
            return self._enter(after)
        ramp = AlphaSchedule(0.0, float(self.plan.alpha_target), int(self.plan.tempo), self.plan.style.curve)
        return self._enter(after, schedule=ramp)

    def retargeted(self, target: AlphaTarget, ticks: int, curve: AlphaCurve, style: Style) -> "SlotState":
        """On the way to another alpha, and blending again until it is reached. What was measured no longer holds."""
        if self.stage is not Stage.HOLDING or self.plan is None:
            raise IllegalTransition(f"stage {self.stage.name} has no alpha to retarget")
        schedule = self.schedule.retarget(float(target), ticks, curve)
        changes = {"schedule": schedule, "plan": replace(self.plan, style=style), "contribution": None}
        if schedule.mode is AlphaMode.STILL:
            return replace(self, **changes)  # type: ignore[arg-type]
        return self._enter(Stage.BLENDING, **changes)

    def pruned(self, ticks: int, curve: AlphaCurve) -> "SlotState":
        """Empty at once if alpha is 0 or no ticks are given, else ramping down to that."""
        if self.schedule.alpha == 0.0 or ticks == 0:
            return self._emptied()
        schedule = self.schedule.retarget(0.0, ticks, curve)
        if self.stage is Stage.BLENDING:
            return replace(self, schedule=schedule)
        return self._enter(Stage.BLENDING, schedule=schedule)

    def fossilized(self) -> "SlotState":
        return self._enter(Stage.FOSSILIZED)

    def ticked(self, thresholds: Thresholds) -> "SlotState":
        """One epoch later."""
        schedule = self.schedule.tick()
        if self.stage is Stage.BLENDING and schedule.target == schedule.alpha == 0.0:
            return self._emptied()
        older = replace(self, age=self.age + 1, schedule=schedule)
        if RULES[older.stage].cools and older.age >= cooling_epochs(older.stage, thresholds):
            (after,) = RULES[older.stage].may_become
            return older._enter(after)
        return older

    def _emptied(self) -> "SlotState":
        if Stage.PRUNED not in RULES[self.stage].may_become:
            raise IllegalTransition(f"{self.stage.name} cannot become PRUNED")
        return SlotState(Stage.PRUNED)

    def _enter(self, stage: Stage, **changes: Any) -> "SlotState":
        if stage not in RULES[self.stage].may_become:
            raise IllegalTransition(f"{self.stage.name} cannot become {stage.name}")
        return replace(self, stage=stage, age=0, **changes)
