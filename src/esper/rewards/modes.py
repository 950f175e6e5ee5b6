"""Modes: which terms a reward is made of."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from esper.contracts import EsperError, Event, nearest
from esper.rewards.alerts import alerts
from esper.rewards.config import RewardConfig
from esper.rewards.moment import Moment
from esper.rewards.terms import TERMS, TermName
from esper.rewards.transition import Transition


class Mode(StrEnum):
    """A way to reward growth."""

    SHAPED = "shaped"
    SIMPLIFIED = "simplified"
    SPARSE = "sparse"
    MINIMAL = "minimal"
    LOSS = "loss"
    TWIN = "twin"
    SOLO = "solo"
    FRUGAL = "frugal"


TERMS_OF: dict[Mode, tuple[TermName, ...]] = {
    Mode.SHAPED: (
        TermName.CONTRIBUTION,
        TermName.ATTRIBUTION_DISCOUNT,
        TermName.RATIO_PENALTY,
        TermName.RANSOMWARE,
        TermName.RENT,
        TermName.SHAPING,
        TermName.INTERVENTION_COST,
        TermName.ALPHA_SHOCK,
        TermName.HOLDING_PENALTY,
        TermName.LEGITIMACY_DISCOUNT,
        TermName.TERMINATION,
    ),
    Mode.SIMPLIFIED: (
        TermName.CONTRIBUTION,
        TermName.ATTRIBUTION_DISCOUNT,
        TermName.RENT,
        TermName.INTERVENTION_COST,
        TermName.TERMINATION,
    ),
    Mode.SPARSE: (TermName.TERMINAL_OBJECTIVE,),
    Mode.MINIMAL: (TermName.TERMINAL_OBJECTIVE, TermName.INTERVENTION_COST),
    Mode.LOSS: (TermName.LOSS_GAIN, TermName.RENT, TermName.TERMINATION),
    Mode.TWIN: (TermName.GAIN_OVER_TWIN, TermName.RENT, TermName.TERMINATION),
    Mode.SOLO: (TermName.QUALITY, TermName.RENT, TermName.TERMINATION),
    Mode.FRUGAL: (TermName.QUALITY, TermName.RENT, TermName.INTERVENTION_COST, TermName.TERMINATION),
}


class UnknownMode(EsperError):
    """No mode of that name."""


def find_mode(name: str) -> Mode:
    """The mode of that name, or an error with the nearest one.

    >>> find_mode("twinn")
    Traceback (most recent call last):
    ...
    esper.rewards.modes.UnknownMode: no reward mode 'twinn'; did you mean 'twin'?
    """
    if name not in tuple(Mode):
        raise UnknownMode(f"no reward mode '{name}'; {nearest(name, tuple(Mode))}")
    return Mode(name)


class MissingTwin(EsperError):
    """A mode that compares with the run without growth was not given one."""


@dataclass(frozen=True)
class Reward:
    """The value of each term, and what looked suspicious."""

    terms: Mapping[TermName, float]
    alerts: tuple[Event, ...] = ()

    @property
    def total(self) -> float:
        return sum(self.terms.values())


def needs_twin(mode: Mode) -> bool:
    """Whether transitions must carry the paired run without growth."""
    return any(TERMS[name].needs_twin for name in TERMS_OF[mode])


def reward(transition: Transition, mode: Mode, config: RewardConfig) -> Reward:
    """What the step was worth. Suspicions are reported in every mode."""
    if needs_twin(mode) and (transition.twin_before is None or transition.twin_after is None):
        without = ", ".join(other for other in Mode if not needs_twin(other))
        raise MissingTwin(
            f"mode '{mode}' compares with a run of the same seed without growth, and the transition has none; "
            f"give twin_before and twin_after, or use one of the modes {without}"
        )
    # Adding zero turns the minus zero of a penalty that does not apply into a plain one.
    values = {name: TERMS[name].value(transition, config) + 0.0 for name in TERMS_OF[mode]}
    return Reward(values, alerts(transition, config))


def potential(moment: Moment, mode: Mode, config: RewardConfig) -> float:
    """What the moment is worth in this mode.

    Over steps without costs the discounted rewards sum to the discounted potential at the end minus that at the start.
    """
    parts = (TERMS[name].potential for name in TERMS_OF[mode])
    return sum(part(moment, config) for part in parts if part is not None)
