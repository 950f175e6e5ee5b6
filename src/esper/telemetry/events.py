"""Every kind of event that a run writes, beside those of the contracts. docs/events.md says what each field means.

Qualities, shares and probabilities are fractions; times are seconds; "growth" is total over host parameters.
None is "not measured", never zero. A field that is None by default is one that older logs lack.
"""

from dataclasses import dataclass, field

from esper.contracts import EpisodeEvent, Event, Metric
from esper.contracts import events as contract_events


@dataclass(frozen=True)
class RunStarted(Event):
    """A run begins; what it was asked to do."""

    version: str
    tasks: tuple[str, ...]
    rounds: int
    episodes: int
    seed: int
    reward: str
    backend: str
    workers: int
    device: str
    metric: Metric | None = None


@dataclass(frozen=True)
class RunResumed(Event):
    """Training goes on from a checkpoint. Earlier events of this round and later ones are void: it is played again."""

    checkpoint: str
    damaged: tuple[str, ...]


@dataclass(frozen=True)
class RunFinished(Event):
    """All rounds are done."""

    best_round: int | None
    seconds: float


@dataclass(frozen=True)
class RunInterrupted(Event):
    """Somebody asked the run to stop; it can be resumed."""


@dataclass(frozen=True)
class RunFailed(Event):
    """An error ended the run; it can be resumed once the cause is mended."""

    reason: str


@dataclass(frozen=True)
class RunHalted(Event):
    """A health check ended the run; the last good checkpoint is kept."""

    reason: str


@dataclass(frozen=True)
class EpisodeStarted(EpisodeEvent):
    """An episode of a policy begins: what is played, and what there is to choose from."""

    task: str
    policy: str
    purpose: str
    horizon: int
    host_parameters: int
    slots: tuple[str, ...]
    blueprints: tuple[str, ...]
    metric: Metric | None = None


@dataclass(frozen=True)
class SeedLife:
    """One seed, from its germination to its last stage in the episode."""

    slot: str
    blueprint: str | None
    germinated: int
    ended: int | None
    stage: str


@dataclass(frozen=True)
class GardenStarted(Event):
    """A gardener has found places in somebody's model; what growing costs is counted from here."""

    host: str
    epochs: int
    rent: float
    parameters: int
    flops: int
    slots: tuple[str, ...]
    left_out: dict[str, str]


@dataclass(frozen=True)
class GardenHarvested(Event):
    """What a garden came to: the network that is delivered, with its last known quality if it was measured."""

    parameters: int
    flops: int
    delivered: tuple[str, ...]
    quality: float | None


@dataclass(frozen=True)
class EpisodeFinished(Event):
    """One episode of one policy, from its first epoch to the horizon or the governor's panic."""

    task: str
    policy: str
    purpose: str
    total: float
    quality: float
    twin_quality: float | None
    growth: float
    fossilized: int
    epochs: int
    forced: int
    ops: dict[str, int]
    panic: str | None
    seconds: float
    seeds: tuple[SeedLife, ...] | None = None


@dataclass(frozen=True)
class DecisionMade(EpisodeEvent):
    """What the policy saw fit to do. Heads that the op does not use are None."""

    op: str
    slot: str | None
    blueprint: str | None
    style: str | None
    tempo: str | None
    alpha_target: str | None
    alpha_speed: str | None
    alpha_curve: str | None
    forced: bool
    refused: tuple[str, ...]
    value: float | None
    probabilities: dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class RewardPaid(EpisodeEvent):
    """The reward of an epoch, term by term."""

    total: float
    terms: dict[str, float]
    quality: float
    loss: float
    growth: float
    contributions: dict[str, float] = field(default_factory=dict)
    twin_quality: float | None = None
    alphas: dict[str, float] | None = None


@dataclass(frozen=True)
class RolledBack(EpisodeEvent):
    """The governor saw a catastrophe, put the last good weights back and ended the episode, or a garden's growth."""

    reason: str


@dataclass(frozen=True)
class RoundFinished(Event):
    """A round of training episodes; means over its episodes."""

    total: float
    quality: float
    gain: float | None
    growth: float
    forced_share: float
    waiting_share: float | None
    ops: dict[str, float]
    rollbacks: int
    seconds: float
    episodes_per_second: float


@dataclass(frozen=True)
class HeadFigures:
    """One head in an update."""

    steps: int
    entropy: float | None
    gradient_norm: float
    lowest_ratio: float
    highest_ratio: float
    kl: float | None = None


@dataclass(frozen=True)
class UpdateMade(Event):
    """One update of the controller; the fields are those of `esper.rl.UpdateMetrics`."""

    policy_loss: float
    value_loss: float
    kl: float
    clipped: float
    gradient_norm: float
    advantage_mean: float
    advantage_deviation: float
    return_mean: float
    return_deviation: float
    explained_variance: float | None
    value_error: float
    bellman_error: float
    steps: int
    forced_steps: int
    optimiser_steps: int
    skipped_steps: int
    stopped_early: bool
    heads: dict[str, HeadFigures]
    seconds: float
    anchor_kl: float | None = None


@dataclass(frozen=True)
class GradientFigures:
    """The gradient of one owner before clipping, over the batches that were looked at. None is "no gradient at all"."""

    norm: float | None
    largest: float | None
    zeros: float | None
    not_finite: int


@dataclass(frozen=True)
class WeightFigures:
    """The weights of one owner."""

    norm: float
    moved: float
    not_finite: int


@dataclass(frozen=True)
class ArrayFigures:
    """One array of the observations of a round, padding left out."""

    mean: float
    deviation: float
    lowest: float
    highest: float
    still: float
    not_finite: int


@dataclass(frozen=True)
class UpdateExamined(Event):
    """The numerical stability of an update; detailed telemetry only."""

    gradients: dict[str, GradientFigures]
    weights: dict[str, WeightFigures]
    observations: dict[str, ArrayFigures]


@dataclass(frozen=True)
class GradientsSeen(EpisodeEvent):
    """The gradients of a host and its seeds over the batches of an epoch; detailed telemetry only."""

    owners: dict[str, GradientFigures]


@dataclass(frozen=True)
class MemoryExamined(Event):
    """The controller's memory in an episode that it played; detailed telemetry only."""

    steps: int
    hidden: float
    cell: float
    largest_cell: float
    saturated: float
    not_finite: int


@dataclass(frozen=True)
class StepMoved(Event):
    """One of the choices that an update moved most, kept where ratios raised an anomaly."""

    seed: int
    task: str
    epoch: int
    head: str
    choice: int
    ratio: float


@dataclass(frozen=True)
class DetailChanged(Event):
    """From the next round on, telemetry has another level of detail."""

    level: str
    reason: str


@dataclass(frozen=True)
class SinkFailed(Event):
    """A sink of metrics could not be written; it gets no more of them, and the run goes on."""

    sink: str
    reason: str


@dataclass(frozen=True)
class EvaluationMade(Event):
    """Greedy play on the fixed evaluation seeds; `low` to `high` is the 95 % interval of the mean return."""

    total: float
    low: float
    high: float
    quality: float
    gain: float | None
    growth: float
    by_task: dict[str, float]
    best: bool


@dataclass(frozen=True)
class AnomalyRaised(Event):
    """Something looks wrong."""

    kind: str
    message: str
    figures: dict[str, float]


@dataclass(frozen=True)
class CheckpointWritten(Event):
    """Everything up to the end of this round is safe."""

    file: str


@dataclass(frozen=True)
class WorkerReplaced(Event):
    """A worker died or hung; its episode is played again by another one."""

    worker: str
    reason: str
    seed: int


EVENTS: dict[str, type[Event]] = {
    name: found
    for name, found in (*vars(contract_events).items(), *globals().items())
    if isinstance(found, type) and issubclass(found, Event) and found not in (Event, EpisodeEvent)
}
"""Every type of event by its name. Writing the class above is all it takes to add one."""
