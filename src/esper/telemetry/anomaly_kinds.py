"""The kinds of anomalies and their thresholds. docs/diagnostics.md says how each one shows and what decides it."""

import math
from dataclasses import dataclass

from esper.checked import require_ranges
from esper.contracts import EsperError


class InvalidThreshold(EsperError):
    """A threshold of the anomaly detector that makes no sense."""


@dataclass(frozen=True)
class AnomalyConfig:
    """When something is said to look wrong. Thresholds change what is said, never what is learned."""

    ratio_high: float = 20.0
    """A probability ratio of new to old policy that is an explosion."""
    ratio_low: float = 0.05
    """A probability ratio that is a collapse, if updates running have one; a single rare step may go lower."""
    ratio_updates: int = 3
    """Updates running after which low ratios are a collapse."""
    kl_high: float = 0.15
    """Divergence of the new from the old policy that is a spike, in nats, but never less than twice `ppo.target_kl`."""
    value_error_high: float = 0.98
    """Error of the critic over the error of the best constant; at 1 the critic knows nothing."""
    value_updates: int = 8
    """Updates running after which that is a collapse, counted from the eighth update on."""
    gradient_times: float = 4.0
    """Recent gradient norm before clipping over the usual one that is a drift upwards."""
    gradient_clips: float = 5.0
    """Recent gradient norm in units of `ppo.max_gradient_norm` below which no growth is a drift: clipping copes."""
    gradient_fall: float = 0.02
    """Recent gradient norm over the usual one that is a drift downwards."""
    gradient_warmup: int = 10
    """Updates before gradient norms are judged; the first ones are always larger."""
    entropy_low: float = 0.02
    """Entropy of a head that is a collapse: a share of the most there could be, beyond what exploration alone gives."""
    entropy_clear: float = 0.06
    """Entropy of a head, counted likewise, at which a collapse is over."""
    entropy_updates: int = 5
    """Updates running after which low entropy is a collapse."""
    entropy_choices: int = 16
    """Steps with a choice that an update needs to say anything about the entropy of a head."""
    entropy_until: float = 0.75
    """Share of the run's rounds after which a policy may settle, so that low entropy is no longer raised."""
    waiting_high: float = 0.97
    """Share of waiting among the steps with a choice that is a collapse of growth."""
    waiting_rounds: int = 5
    """Rounds running after which that is a collapse."""
    barren_rounds: int = 10
    """Rounds running, with choices, in which no seed was delivered."""
    hacking_rate: float = 0.5
    """Suspicions of reward hacking per episode."""
    ransomware_rate: float = 0.25
    """Suspicions of ransomware per episode."""
    suspicion_rounds: int = 3
    """Rounds running after which suspicions are a habit."""
    rollback_share: float = 0.25
    """Share of the episodes of a round that the governor ended."""
    rollback_rounds: int = 3
    """Rounds running after which rollbacks are a habit."""
    relief: float = 0.9
    """Share of its threshold to which a figure that was too high must fall until it can be raised again."""

    def __post_init__(self) -> None:
        require_ranges(self, RANGES, InvalidThreshold, "anomalies.")
        if self.entropy_clear <= self.entropy_low:
            raise InvalidThreshold(
                f"anomalies.entropy_clear = {self.entropy_clear}; give a value above entropy_low = {self.entropy_low}"
            )


COUNT = (1, 1_000_000)
RANGES: dict[str, tuple[float, float]] = {
    "ratio_high": (1.001, 1e9),
    "ratio_low": (1e-9, 0.999),
    "ratio_updates": COUNT,
    "kl_high": (1e-6, 1e6),
    "value_error_high": (0.1, 1e6),
    "value_updates": COUNT,
    "gradient_times": (1.0, 1e6),
    "gradient_clips": (0.0, 1e6),
    "gradient_fall": (1e-9, 1.0),
    "gradient_warmup": COUNT,
    "entropy_low": (0.0, 1.0),
    "entropy_clear": (0.0, 1.0),
    "entropy_updates": COUNT,
    "entropy_choices": COUNT,
    "entropy_until": (0.0, 1.0),
    "waiting_high": (0.01, 1.0),
    "waiting_rounds": COUNT,
    "barren_rounds": COUNT,
    "hacking_rate": (0.001, 1e6),
    "ransomware_rate": (0.001, 1e6),
    "suspicion_rounds": COUNT,
    "rollback_share": (0.001, 1.0),
    "rollback_rounds": COUNT,
    "relief": (0.1, 0.99),
}
"""From lowest to highest."""


@dataclass(frozen=True)
class Expectations:
    """What the run's other settings lead one to expect."""

    rounds: int
    """Rounds of training asked for."""
    exploration: float
    """Share of the probability that is spread evenly over the legal choices."""
    max_gradient_norm: float
    """Where gradients are clipped."""
    target_kl: float
    """Divergence at which an update ends early; infinite if never."""

    @property
    def least_entropy(self) -> float:
        """What exploration alone gives a head that always wants the same of two choices; with more choices it is less.

        >>> round(Expectations(60, 0.05, 0.5, 0.03).least_entropy, 3)
        0.169
        """
        rare = self.exploration / 2
        return -sum(p * math.log2(p) for p in (rare, 1 - rare) if p > 0)


@dataclass(frozen=True)
class AnomalyKind:
    """What is said of a kind of anomaly when it is raised."""

    why: str
    """Why that matters."""
    remedy: str
    """What to try."""


KINDS: dict[str, AnomalyKind] = {
    "ratio_explosion": AnomalyKind(
        "the update left the region in which the advantages of the old policy mean anything",
        "lower ppo.learning_rate or ppo.epochs, or set ppo.target_kl",
    ),
    "ratio_collapse": AnomalyKind(
        "choices that are never made are never judged again, whatever they are worth",
        "lower ppo.learning_rate or ppo.epochs, or raise ppo.exploration",
    ),
    "kl_spike": AnomalyKind(
        "the next episodes are played by a policy that no experience supports",
        "lower ppo.learning_rate, or set ppo.target_kl so that updates end earlier",
    ),
    "value_collapse": AnomalyKind(
        "without a critic advantages are mostly noise, and the policy learns from luck",
        "raise ppo.value_weight, ppo.epochs or the episodes per round; see that the critic's weights change at all",
    ),
    "non_finite": AnomalyKind(
        "nothing is learned from such steps, and three updates in a row halt the run",
        "lower ppo.learning_rate, look for rewards that are not finite, or go back to an earlier checkpoint",
    ),
    "gradient_drift": AnomalyKind(
        "growing gradients are clipped to noise, and vanished ones teach nothing",
        "lower ppo.learning_rate, and look at the scale of the rewards in the last rounds with 'esper query'",
    ),
    "entropy_collapse": AnomalyKind(
        "what is no longer tried cannot be learned",
        "raise ppo.entropy_weight (for this head alone by ppo.head_entropy) or ppo.exploration, or lower "
        "ppo.learning_rate",
    ),
    "no_growth_collapse": AnomalyKind(
        "seeds that are never planted teach nothing, so waiting stays the best that is known",
        "raise ppo.entropy_weight or ppo.exploration, or lower rent: growth may cost more than it can bring",
    ),
    "nothing_grew": AnomalyKind(
        "what passes no gate is not delivered, so the run ends with the host alone",
        "give the task a longer horizon, lower rent, or raise ppo.exploration",
    ),
    "reward_hacking": AnomalyKind(
        "the policy may be paid for dependence instead of quality",
        "use a reward that pays for the joint gain, such as twin or solo, and look at the seeds with 'esper query'",
    ),
    "ransomware": AnomalyKind(
        "removing the seed hurts, so it looks useful and is kept",
        "use a reward that compares with a host without growth, such as twin or solo",
    ),
    "rollbacks": AnomalyKind(
        "such episodes are cut short and punished, and little is learned from the rest of them",
        "lower the seeds' learning rate in the task, and look at the reasons with 'esper query RUN \"SELECT * FROM "
        "RolledBack\"'",
    ),
}
"""Every anomaly that can be raised."""

RATIO_KINDS = ("ratio_explosion", "ratio_collapse")
"""Those for which the steps that were moved most are kept."""
