"""The life of one slot as values: a state, and what each operation and each tick make of it.

A seed joins the network when it germinates, as a table says for how it is born. One whose delta is zero joins at full
strength: the output does not jump, and it needs no isolation. It is blended to its alpha target when it has trained. A
copy's delta is not zero, so alpha rises from nothing at once.

Nothing here asks whether an operation is allowed: the gates do. Transitions that the table of stages does not
list are refused all the same.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from esper.contracts import (
    ADVANCES_TO,
    RULES,
    AlphaCurve,
    AlphaMode,
    AlphaSpeed,
    AlphaTarget,
    Birth,
    EsperError,
    Stage,
    Style,
    Tempo,
)
from esper.growth.alpha import AlphaSchedule
from esper.growth.gates import Thresholds, cooling_epochs


class IllegalTransition(EsperError):
    """The table of stages does not lead from here to there."""


FULL_STRENGTH = AlphaSchedule(target=1.0)
FASTEST_RESTYLING = int(AlphaSpeed.FAST)
"""Another operator makes something else of the same delta, so a seed goes out and comes back for it, never at once."""


@dataclass(frozen=True)
class Plan:
    """How the seed was asked to grow."""

    blueprint: str
    style: Style
    tempo: Tempo
    alpha_target: AlphaTarget


def _rising(plan: Plan) -> AlphaSchedule:
    """The first step is taken at birth: at alpha 0 nothing is learned."""
    return AlphaSchedule(0.0, float(plan.alpha_target), int(plan.tempo), plan.style.curve, elapsed=1)


JOINS: dict[Birth, Callable[[Plan], AlphaSchedule]] = {Birth.ZERO: lambda plan: FULL_STRENGTH, Birth.COPY: _rising}
"""Alpha from birth on."""
MOVES: dict[AlphaMode, frozenset[Stage]] = {
    AlphaMode.STILL: frozenset(Stage),
    AlphaMode.RISING: frozenset({Stage.GERMINATED, Stage.TRAINING, Stage.BLENDING}),
    AlphaMode.FALLING: frozenset({Stage.BLENDING}),
}
"""The stages in which alpha may do what."""


@dataclass(frozen=True)
class SlotState:
    """Everything a slot is besides weights. A plan is there exactly while a seed is, and alpha is above 0.

    `next_style` is the one that the seed takes on when alpha has come down to 0. `quality_at_birth` is that of the
    network before the seed was there. The other measurements are those of the last epoch; `None` is "not measured".
    """

    stage: Stage = Stage.DORMANT
    age: int = 0
    plan: Plan | None = None
    schedule: AlphaSchedule = field(default_factory=AlphaSchedule)
    next_style: Style | None = None
    quality_at_birth: float | None = None
    gradient_norm: float | None = None
    contribution: float | None = None
    anomalies: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        rule = RULES[self.stage]
        if rule.holds_seed != (self.plan is not None):
            raise IllegalTransition(f"stage {self.stage.name} and plan {self.plan} do not go together")
        if rule.holds_seed != (self.schedule.alpha > 0.0):
            raise IllegalTransition(f"stage {self.stage.name} cannot have an alpha of {self.schedule.alpha}")
        if self.stage not in MOVES[self.schedule.mode]:
            raise IllegalTransition(f"stage {self.stage.name} cannot have an alpha that is {self.schedule.mode.value}")
        if self.next_style is not None and self.stage is not Stage.BLENDING:
            raise IllegalTransition(f"stage {self.stage.name} cannot have a next style; BLENDING can")
        if self.contribution is not None and not rule.holds_seed:
            raise IllegalTransition("without a seed a contribution is not measured")

    @property
    def alpha_target(self) -> float:
        """Where alpha is to be in the end; 0 for a seed that is on its way out."""
        leaving = self.stage is Stage.BLENDING and self.schedule.target == 0.0 and self.next_style is None
        return 0.0 if self.plan is None or leaving else float(self.plan.alpha_target)

    def germinated(self, plan: Plan, birth: Birth = Birth.ZERO) -> "SlotState":
        return self._enter(Stage.GERMINATED, plan=plan, schedule=JOINS[birth](plan))

    def advanced(self) -> "SlotState":
        after = ADVANCES_TO.get(self.stage)
        if after is None or self.plan is None:
            raise IllegalTransition(f"nothing to advance in stage {self.stage.name}")
        if after is not Stage.BLENDING:
            return self._enter(after)
        ramp, target = self.schedule, float(self.plan.alpha_target)
        if ramp.target != target:
            ramp = ramp.retarget(target, int(self.plan.tempo), self.plan.style.curve)
        return self._enter(Stage.HOLDING if ramp.mode is AlphaMode.STILL else after, schedule=ramp)

    def retargeted(self, target: AlphaTarget, ticks: int, curve: AlphaCurve, style: Style) -> "SlotState":
        """On the way to another alpha, and blending again until it is reached. What was measured no longer holds.

        A style with another operator is taken on at alpha 0, halfway.
        """
        if self.stage is not Stage.HOLDING or self.plan is None:
            raise IllegalTransition(f"stage {self.stage.name} has no alpha to retarget")
        plan, kept = replace(self.plan, alpha_target=target), replace(self, contribution=None)
        if style.operator is not plan.style.operator:
            down = self.schedule.retarget(0.0, max(ticks, FASTEST_RESTYLING), curve)
            return kept._enter(Stage.BLENDING, schedule=down, plan=plan, next_style=style)
        schedule, plan = self.schedule.retarget(float(target), ticks, curve), replace(plan, style=style)
        if schedule.mode is AlphaMode.STILL:
            return replace(kept, schedule=schedule, plan=plan)
        return kept._enter(Stage.BLENDING, schedule=schedule, plan=plan)

    def pruned(self, ticks: int, curve: AlphaCurve) -> "SlotState":
        """Empty at once if no ticks are given, else ramping down to that."""
        if ticks == 0:
            return self._emptied()
        schedule = self.schedule.retarget(0.0, ticks, curve)
        if self.stage is Stage.BLENDING:
            return replace(self, schedule=schedule, next_style=None)
        return self._enter(Stage.BLENDING, schedule=schedule)

    def fossilized(self) -> "SlotState":
        return self._enter(Stage.FOSSILIZED)

    def ticked(self, thresholds: Thresholds) -> "SlotState":
        """One epoch later."""
        schedule = self.schedule.tick()
        if self.plan is not None and schedule.alpha == 0.0:
            if self.next_style is None:
                return self._emptied()
            schedule = AlphaSchedule(0.0, float(self.plan.alpha_target), schedule.ticks, schedule.curve, elapsed=1)
            restyled = replace(self.plan, style=self.next_style)
            return replace(self, age=self.age + 1, schedule=schedule, plan=restyled, next_style=None)
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
