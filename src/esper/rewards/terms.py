"""The terms that rewards are made of: one table, each with its unit and a small pure function of a transition."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TypeAlias

from esper.contracts import RULES, Stage
from esper.rewards import potentials
from esper.rewards.config import RewardConfig
from esper.rewards.credit import bounded, payable
from esper.rewards.moment import Ending, Moment
from esper.rewards.transition import Transition

Potential: TypeAlias = Callable[[Moment, RewardConfig], float]
Value: TypeAlias = Callable[[Transition, RewardConfig], float]


class TermName(StrEnum):
    """What a term is called wherever it is reported."""

    CONTRIBUTION = "contribution"
    ATTRIBUTION_DISCOUNT = "attribution_discount"
    RATIO_PENALTY = "ratio_penalty"
    RANSOMWARE = "ransomware"
    GAIN_OVER_TWIN = "gain_over_twin"
    QUALITY = "quality"
    LOSS_GAIN = "loss_gain"
    RENT = "rent"
    SHAPING = "shaping"
    INTERVENTION_COST = "intervention_cost"
    ALPHA_SHOCK = "alpha_shock"
    HOLDING_PENALTY = "holding_penalty"
    LEGITIMACY_DISCOUNT = "legitimacy_discount"
    TERMINAL_OBJECTIVE = "terminal_objective"
    TERMINATION = "termination"


@dataclass(frozen=True)
class Term:
    """One part of a reward. A term with a `potential` is that potential's difference over the step."""

    unit: str
    meaning: str
    value: Value
    potential: Potential | None = None
    needs_twin: bool = False


def difference(potential: Potential, transition: Transition, config: RewardConfig) -> float:
    """Discounted worth after minus worth before; nothing is worth anything after the governor's end."""
    terminated = transition.ending is Ending.TERMINATED
    after = 0.0 if terminated else potential(transition.end, config)
    return config.discount * after - potential(transition.start, config)


def intervention_cost(transition: Transition, config: RewardConfig) -> float:
    """Minus the cost of the executed op."""
    return -config.cost_of(transition.action.op)


def alpha_shock(transition: Transition, config: RewardConfig) -> float:
    """Minus the change of alpha beyond the tolerance, over all slots.

    Birth is none, because a newborn adds nothing; a rollback by the governor is no one's choice.
    """
    if transition.ending is Ending.TERMINATED:
        return 0.0
    living = ((before, after) for before, after in transition.slots if RULES[before.stage].holds_seed)
    changes = (abs(after.alpha - before.alpha) for before, after in living)
    return -config.alpha_shock_weight * sum(
        min(1.0, max(0.0, change - config.alpha_shock_tolerance)) for change in changes
    )


def holding_penalty(transition: Transition, config: RewardConfig) -> float:
    """Minus a cost of each seed held beyond its grace, which rises evenly with time up to a limit."""
    grace = _epochs(config.holding_grace_share, transition)
    held = (slot.age for slot in transition.after.slots if slot.stage is Stage.HOLDING)
    return -sum(min(config.holding_penalty_limit, config.holding_penalty_rate * max(0, age - grace)) for age in held)


def legitimacy_discount(transition: Transition, config: RewardConfig) -> float:
    """Minus a part of the share of each seed that is kept sooner than its contribution could show.

    It is kept when it is fossilised, or when it is delivered at the horizon as it is held.
    """
    needed = max(1, _epochs(config.legitimacy_share, transition))
    lost = 0.0
    for before, after in transition.slots:
        fossilised = before.stage is Stage.HOLDING and after.stage is Stage.FOSSILIZED
        if fossilised or (after.ready and transition.ending is Ending.TRUNCATED):
            illegitimacy = 1.0 - min(1.0, (before if fossilised else after).age / needed)
            share = min(transition.end.shares.get(after.slot, 0.0), payable(transition.end, config))
            lost += illegitimacy * max(0.0, share)
    return -config.contribution_weight * config.legitimacy_weight * lost


def terminal_objective(transition: Transition, config: RewardConfig) -> float:
    """At the horizon the quality minus rent, within ±1 before it is scaled; the worst of that at the governor's end.

    A quality that was not measured earns nothing, and rent is due all the same.
    """
    if transition.ending is Ending.RUNNING:
        return 0.0
    if transition.ending is Ending.TERMINATED:
        return -config.sparse_scale
    return config.sparse_scale * bounded((transition.end.quality or 0.0) + potentials.rent(transition.end, config))


def termination(transition: Transition, config: RewardConfig) -> float:
    """Minus the penalty at the governor's end."""
    return -config.termination_penalty if transition.ending is Ending.TERMINATED else 0.0


def _epochs(share: float, transition: Transition) -> int:
    return round(share * transition.after.host.horizon)


def _worth(unit: str, meaning: str, potential: Potential, needs_twin: bool = False) -> Term:
    return Term(unit, meaning, partial(difference, potential), potential, needs_twin)


QUALITY = "quality as a fraction"

TERMS: dict[TermName, Term] = {
    TermName.CONTRIBUTION: _worth(
        QUALITY, "what the seeds claim: what removing each costs, at least its share", potentials.contribution
    ),
    TermName.ATTRIBUTION_DISCOUNT: _worth(
        QUALITY, "what they claim beyond their shares of the proven joint gain", potentials.attribution_discount, True
    ),
    TermName.RATIO_PENALTY: _worth(
        QUALITY, "contributions out of proportion to the joint gain", potentials.ratio_penalty, True
    ),
    TermName.RANSOMWARE: _worth(
        QUALITY, "contributions of seeds that gain nothing together", potentials.ransomware, True
    ),
    TermName.GAIN_OVER_TWIN: _worth(
        QUALITY, "quality above the paired run without growth", potentials.gain_over_twin, True
    ),
    TermName.QUALITY: _worth(QUALITY, "quality, the host's own included", potentials.quality),
    TermName.LOSS_GAIN: _worth(
        "fraction of the loss of guessing", "loss below the paired run without growth", potentials.loss_gain, True
    ),
    TermName.RENT: _worth(QUALITY, "logarithm of growth, times its weight", potentials.rent),
    TermName.SHAPING: _worth(QUALITY, "progress of all slots, taken back when the episode is over", potentials.shaping),
    TermName.INTERVENTION_COST: Term(QUALITY, "cost of the executed op", intervention_cost),
    TermName.ALPHA_SHOCK: Term(QUALITY, "changes of alpha that are too fast", alpha_shock),
    TermName.HOLDING_PENALTY: Term(QUALITY, "seeds held for too long", holding_penalty),
    TermName.LEGITIMACY_DISCOUNT: Term(QUALITY, "seeds kept too soon", legitimacy_discount, needs_twin=True),
    TermName.TERMINAL_OBJECTIVE: Term(QUALITY, "quality minus rent, at the end only", terminal_objective),
    TermName.TERMINATION: Term(QUALITY, "penalty for being ended by the governor", termination),
}
