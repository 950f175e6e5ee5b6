"""Every weight, cost and limit of the rewards, with its range. Qualities are fractions, so 0.01 is one point."""

import math
from dataclasses import dataclass, field, fields, replace

from esper.contracts import ACCURACY_GRAIN, EsperError, Op

LARGEST_PROXY_RATIO = 0.25
"""Progress is only a proxy for contribution: it may weigh at most this much of it."""


OF_GRAIN = (
    "shaping_weight",
    "germinate_cost",
    "advance_cost",
    "set_alpha_target_cost",
    "prune_cost",
    "fossilize_cost",
    "alpha_shock_weight",
    "holding_penalty_rate",
    "holding_penalty_limit",
    "suspicious_contribution",
    "negligible_gain",
)
"""Qualities that are meant beside what a seed brings, and so are as small as that."""


class InvalidRewardConfig(EsperError):
    """A setting lies outside its range, or does not go together with another one."""


class ProxyTooHeavy(InvalidRewardConfig):
    """Lifecycle progress would be worth too much beside what seeds contribute."""


class CrashPays(InvalidRewardConfig):
    """A controller in a bad place would gain by provoking the governor."""


def _setting(default: float, low: float, high: float, meaning: str) -> float:
    setting: float = field(default=default, metadata={"range": (low, high), "meaning": meaning})
    return setting


@dataclass(frozen=True)
class RewardConfig:
    """What things are worth. `outcomes` comes from the task; the rest has defaults.

    >>> RewardConfig(outcomes=10).baseline_loss_nats
    2.302585092994046
    >>> RewardConfig(outcomes=10, rent_weight=8.0)
    Traceback (most recent call last):
    ...
    esper.rewards.config.InvalidRewardConfig: rent_weight is 8.0; give a number from 0 to 1
    """

    outcomes: int = field(
        metadata={"range": (2, 10_000_000), "meaning": "classes of the task, or tokens of its vocabulary"}
    )
    discount: float = _setting(1.0, 0.5, 1.0, "discount per epoch, the same as the learner's")

    gain_weight: float = _setting(1.0, 0.0, 10.0, "worth of quality gained over the twin")
    loss_weight: float = _setting(1.0, 0.0, 10.0, "worth of the baseline loss gained over the twin")
    contribution_weight: float = _setting(1.0, 0.0, 10.0, "worth of quality gained over all-off")
    rent_weight: float = _setting(0.08, 0.0, 1.0, "quality that growing by a factor e must bring to pay")
    growth_limit: float = _setting(1000.0, 2.0, 1e6, "growth beyond which rent rises no further")
    shaping_weight: float = _setting(0.05, 0.0, 2.5, "worth of a slot's whole way from DORMANT to FOSSILIZED")

    germinate_cost: float = _setting(0.004, 0.0, 0.1, "cost of GERMINATE")
    advance_cost: float = _setting(0.001, 0.0, 0.1, "cost of ADVANCE")
    set_alpha_target_cost: float = _setting(0.002, 0.0, 0.1, "cost of SET_ALPHA_TARGET")
    prune_cost: float = _setting(0.002, 0.0, 0.1, "cost of PRUNE")
    fossilize_cost: float = _setting(0.0, 0.0, 0.1, "cost of FOSSILIZE")

    alpha_shock_weight: float = _setting(0.02, 0.0, 1.0, "cost per unit of alpha beyond the tolerance")
    alpha_shock_tolerance: float = _setting(0.5, 0.0, 1.0, "change of alpha in one epoch that is free")
    holding_penalty_rate: float = _setting(0.002, 0.0, 0.1, "added per epoch in HOLDING beyond the grace")
    holding_penalty_limit: float = _setting(0.01, 0.0, 0.1, "the most that one slot's holding costs per epoch")
    holding_grace_share: float = _setting(0.2, 0.0, 1.0, "share of the horizon that a seed may be held for free")
    legitimacy_share: float = _setting(0.08, 0.0, 1.0, "share of the horizon to hold a seed before keeping it")
    legitimacy_weight: float = _setting(0.25, 0.0, 1.0, "part of a seed's share lost when it was not held at all")

    suspicious_contribution: float = _setting(0.1, 0.0, 1.0, "contribution below which no seed is suspected")
    negligible_gain: float = _setting(0.01, 0.0, 1.0, "joint gain up to which the seeds gain nothing")
    ratio_limit: float = _setting(3.0, 1.0, 100.0, "times the joint gain that one seed's contribution may be")
    ratio_weight: float = _setting(0.1, 0.0, 10.0, "penalty per quality claimed beyond that limit")
    ransomware_weight: float = _setting(0.3, 0.0, 10.0, "penalty per quality held to ransom")

    sparse_scale: float = _setting(1.0, 0.01, 100.0, "scale of the terminal objective")
    termination_penalty: float = _setting(2.0, 0.0, 100.0, "cost of being ended by the governor")

    def __post_init__(self) -> None:
        for setting in fields(self):
            _check_range(setting.name, getattr(self, setting.name), *setting.metadata["range"])
        if not isinstance(self.outcomes, int):
            raise InvalidRewardConfig(f"outcomes is {self.outcomes}; give a whole number of classes or tokens")
        self._check_proxy()
        self._check_crash()
        if self.holding_grace_share < self.legitimacy_share:
            raise InvalidRewardConfig(
                f"holding_grace_share {self.holding_grace_share:g} is less than legitimacy_share "
                f"{self.legitimacy_share:g}, so that a seed could be kept neither early nor late; raise the former"
            )

    @classmethod
    def at_rent(
        cls, rent: float, outcomes: int, discount: float = 1.0, grain: float = ACCURACY_GRAIN
    ) -> "RewardConfig":
        """The usual weights under another rent; where rent is high, a crash costs more too, so that it never pays.

        Where smaller differences in quality count, which `grain` says, costs and limits are as much smaller.

        >>> RewardConfig.at_rent(0.08, 10).termination_penalty, RewardConfig.at_rent(0.5, 10).termination_penalty > 2
        (2.0, True)
        >>> RewardConfig.at_rent(0.01, 65, grain=0.002).germinate_cost
        0.0008
        """
        highest = next(each.metadata["range"][1] for each in fields(cls) if each.name == "termination_penalty")
        safe = cls(outcomes=outcomes, discount=discount, rent_weight=rent, termination_penalty=highest)
        usual = cls(outcomes=outcomes).termination_penalty
        small = {name: getattr(safe, name) * (grain / ACCURACY_GRAIN) for name in OF_GRAIN}
        return replace(safe, termination_penalty=max(usual, safe.deepest_potential), **small)

    def _check_proxy(self) -> None:
        most = LARGEST_PROXY_RATIO * self.contribution_weight
        if self.shaping_weight > most:
            raise ProxyTooHeavy(
                f"shaping_weight is {self.shaping_weight:g} beside a contribution_weight of "
                f"{self.contribution_weight:g}; give at most {LARGEST_PROXY_RATIO:g} of it, that is {most:g}"
            )

    def _check_crash(self) -> None:
        if self.termination_penalty < self.deepest_potential:
            raise CrashPays(
                f"termination_penalty is {self.termination_penalty:g}, but a network can be worth "
                f"-{self.deepest_potential:.3g} with these weights; give at least {self.deepest_potential:.3g}"
            )

    @property
    def baseline_loss_nats(self) -> float:
        """The loss of guessing: the unit of the loss-based reward."""
        return math.log(self.outcomes)

    @property
    def deepest_potential(self) -> float:
        """How far below zero the potential of any mode can lie."""
        seeds = self.contribution_weight + max(self.ratio_weight, self.ransomware_weight)
        return max(self.gain_weight, self.loss_weight, seeds) + self.rent_weight * math.log(self.growth_limit)

    def cost_of(self, op: Op) -> float:
        """What executing `op` costs; waiting is free."""
        return {
            Op.WAIT: 0.0,
            Op.GERMINATE: self.germinate_cost,
            Op.SET_ALPHA_TARGET: self.set_alpha_target_cost,
            Op.PRUNE: self.prune_cost,
            Op.FOSSILIZE: self.fossilize_cost,
            Op.ADVANCE: self.advance_cost,
        }[op]


def _check_range(name: str, value: float, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise InvalidRewardConfig(f"{name} is {value}; give a number from {low:g} to {high:g}")
