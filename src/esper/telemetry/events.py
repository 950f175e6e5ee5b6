"""Every kind of event that a run writes, beside those of the contracts.

Accuracies, shares and probabilities are fractions; times are seconds; "growth" is total over host parameters.
None is "not measured", never zero.
"""

from dataclasses import dataclass, field

from esper.contracts import EpisodeEvent, Event
from esper.contracts import events as contract_events


@dataclass(frozen=True)
class RunStarted(Event):
    """A run begins; what it was asked to do."""

    version: str
    """The version of this program."""
    tasks: tuple[str, ...]
    """The tasks whose hosts are grown, in the order in which episodes take turns."""
    rounds: int
    """Rounds of training asked for."""
    episodes: int
    """Training episodes per round."""
    seed: int
    """The seed that all random numbers of the run come from."""
    reward: str
    """The reward mode."""
    backend: str
    """Where episodes are played: serial, process or ray."""
    workers: int
    """Episodes played at the same time."""
    device: str
    """What hosts are trained on, as PyTorch names it."""


@dataclass(frozen=True)
class RunResumed(Event):
    """Training goes on from a checkpoint. Earlier events of this round and later ones are void: it is played again."""

    checkpoint: str
    """The file that the run goes on from."""
    damaged: tuple[str, ...]
    """Newer checkpoints that could not be read and were left out."""


@dataclass(frozen=True)
class RunFinished(Event):
    """All rounds are done."""

    best_round: int | None
    """The round with the best evaluation; None if there was none."""
    seconds: float
    """Wall time since the run was started or last resumed."""


@dataclass(frozen=True)
class RunInterrupted(Event):
    """Somebody asked the run to stop; it can be resumed."""


@dataclass(frozen=True)
class RunFailed(Event):
    """An error ended the run; it can be resumed once the cause is mended."""

    reason: str
    """What went wrong."""


@dataclass(frozen=True)
class RunHalted(Event):
    """A health check ended the run; the last good checkpoint is kept."""

    reason: str
    """What the health check found."""


@dataclass(frozen=True)
class EpisodeFinished(Event):
    """One episode of one policy, from its first epoch to the horizon or the governor's panic."""

    task: str
    """The task whose host was grown."""
    policy: str
    """Who decided: learned, greedy, none, random or heuristic."""
    purpose: str
    """What it was played for: train, evaluate or compare."""
    total: float
    """Sum of the rewards."""
    accuracy: float
    """Of what is delivered, the host with its fossils, on the evaluation split at the end, as a fraction."""
    twin_accuracy: float | None
    """The same of the same seed without growth; None if the reward mode needs no twin."""
    growth: float
    """Parameters of what is delivered over the host's; 1 is a host that kept nothing."""
    fossilized: int
    """Seeds kept for good."""
    epochs: int
    """Epochs played."""
    forced: int
    """Epochs in which only one action was legal."""
    ops: dict[str, int]
    """How often each op was executed, forced waiting left out."""
    panic: str | None
    """Why the governor ended the episode; None if it reached the horizon."""
    seconds: float
    """Wall time of the episode in its worker."""


@dataclass(frozen=True)
class DecisionMade(EpisodeEvent):
    """What the policy saw fit to do. Heads that the op does not use are None."""

    op: str
    """The op that was chosen."""
    slot: str | None
    """The slot it is for."""
    blueprint: str | None
    """The blueprint to germinate."""
    style: str | None
    """How the seed is blended: operator and first curve."""
    tempo: str | None
    """How fast the seed's first blend is."""
    alpha_target: str | None
    """The strength to blend to."""
    alpha_speed: str | None
    """How fast a later ramp of alpha is."""
    alpha_curve: str | None
    """The shape of a later ramp of alpha."""
    forced: bool
    """Whether only one action was legal."""
    refused: tuple[str, ...]
    """Why it was not executed; empty if it was."""
    value: float | None
    """What the critic expected of the rest of the episode; None for policies without one."""
    probabilities: dict[str, tuple[float, ...]]
    """Of every choice of the heads that had one, by head; empty for policies that are not learned."""


@dataclass(frozen=True)
class RewardPaid(EpisodeEvent):
    """The reward of an epoch, term by term."""

    total: float
    """Sum of the terms."""
    terms: dict[str, float]
    """What each term of the reward mode paid (positive) or charged (negative)."""
    accuracy: float
    """Accuracy on the evaluation split after the epoch, as a fraction."""
    loss: float
    """Loss on the evaluation split after the epoch, in nats."""
    growth: float
    """Total over host parameters after the epoch."""
    contributions: dict[str, float] = field(default_factory=dict)
    """Accuracy that the network would lose without the seed, by slot; only slots where that was measured."""


@dataclass(frozen=True)
class RolledBack(EpisodeEvent):
    """The governor saw a catastrophe, put the last good weights back and ended the episode."""

    reason: str
    """What the governor saw."""


@dataclass(frozen=True)
class RoundFinished(Event):
    """A round of training episodes; means over its episodes."""

    total: float
    """Mean return."""
    accuracy: float
    """Mean accuracy on the evaluation split at the end, as a fraction."""
    gain: float | None
    """Mean of accuracy minus the twin's accuracy; None if the reward mode needs no twin."""
    growth: float
    """Mean of total over host parameters at the end."""
    forced_share: float
    """Share of all epochs in which only one action was legal."""
    waiting_share: float | None
    """Share of waiting among the epochs that had a choice; None if none had."""
    ops: dict[str, float]
    """Share of each op among the epochs that had a choice."""
    rollbacks: int
    """Episodes that the governor ended."""
    seconds: float
    """Wall time of playing the round, without the update."""
    episodes_per_second: float
    """Episodes over seconds."""


@dataclass(frozen=True)
class HeadFigures:
    """One head in an update."""

    steps: int
    """Steps at which the head had a choice."""
    entropy: float | None
    """Mean entropy over those steps, as a share of the most there could be; None if there were none."""
    gradient_norm: float
    """Gradient norm of the head's own parameters before clipping, mean over the passes."""
    lowest_ratio: float
    """Lowest probability ratio of new to old policy."""
    highest_ratio: float
    """Highest probability ratio of new to old policy."""


@dataclass(frozen=True)
class UpdateMade(Event):
    """One update of the controller; the fields are those of `esper.rl.UpdateMetrics`."""

    policy_loss: float
    """Clipped surrogate loss, mean over the minibatches."""
    value_loss: float
    """Half the squared error in deviations of the return, mean over the minibatches."""
    kl: float
    """Divergence of the new from the old policy in the last minibatch, in nats."""
    clipped: float
    """Share of head choices whose ratio left the clip range."""
    gradient_norm: float
    """Gradient norm of all parameters before clipping, mean over the minibatches."""
    advantage_mean: float
    """Mean advantage before normalisation, over the steps that had a choice."""
    advantage_deviation: float
    """Standard deviation of the advantage before normalisation, over the steps that had a choice."""
    return_mean: float
    """Mean return to go."""
    return_deviation: float
    """Standard deviation of the return to go."""
    explained_variance: float | None
    """Share of the variance of returns that the old critic explains; None where returns do not vary."""
    value_error: float
    """Root mean square of return minus old value, in units of return."""
    bellman_error: float
    """The same of reward plus the next step's old value minus old value: how well the critic agrees with itself."""
    steps: int
    """Valid steps in the experience."""
    forced_steps: int
    """Of those, the steps at which only one action was legal."""
    optimiser_steps: int
    """Steps that the optimiser took."""
    skipped_steps: int
    """Optimiser steps left out because the gradient was not finite."""
    stopped_early: bool
    """Whether the policy had moved by more than the target before all passes were made."""
    heads: dict[str, HeadFigures]
    """The figures of each head."""
    seconds: float
    """Wall time of the update."""


@dataclass(frozen=True)
class GradientFigures:
    """The gradient of one owner before clipping, over the batches that were looked at. None is "no gradient at all"."""

    norm: float | None
    """Norm of its finite entries, mean over the batches."""
    largest: float | None
    """The largest finite entry, without its sign."""
    zeros: float | None
    """Share of entries that are exactly 0, mean over the batches."""
    not_finite: int
    """Entries that are not finite, in all batches together."""


@dataclass(frozen=True)
class WeightFigures:
    """The weights of one owner."""

    norm: float
    """Norm after the update."""
    moved: float
    """Norm of what the update changed, over the norm."""
    not_finite: int
    """Entries that are not finite."""


@dataclass(frozen=True)
class ArrayFigures:
    """One array of the observations of a round, padding left out."""

    mean: float
    """Mean of its finite entries."""
    deviation: float
    """Standard deviation of its finite entries."""
    lowest: float
    """The lowest finite entry."""
    highest: float
    """The highest finite entry."""
    still: float
    """Share of its features that are the same in every step of the round."""
    not_finite: int
    """Entries that are not finite."""


@dataclass(frozen=True)
class UpdateExamined(Event):
    """The numerical stability of an update; detailed telemetry only."""

    gradients: dict[str, GradientFigures]
    """Of the controller, by the part of its network, before clipping."""
    weights: dict[str, WeightFigures]
    """Of the controller, by the part of its network."""
    observations: dict[str, ArrayFigures]
    """What the controller saw in the round, by array."""


@dataclass(frozen=True)
class GradientsSeen(EpisodeEvent):
    """The gradients of a host and its seeds over the batches of an epoch; detailed telemetry only."""

    owners: dict[str, GradientFigures]
    """By owner: `host`, or the slot of a living seed."""


@dataclass(frozen=True)
class MemoryExamined(Event):
    """The controller's memory in an episode that it played; detailed telemetry only."""

    steps: int
    """Steps of the episode."""
    hidden: float
    """Norm of the hidden state, mean over the steps."""
    cell: float
    """Norm of the cell state, mean over the steps."""
    largest_cell: float
    """The largest entry of a cell state, without its sign."""
    saturated: float
    """Share of entries of the hidden state beyond 0.99, where its gradient is all but gone."""
    not_finite: int
    """Entries of hidden and cell states that are not finite."""


@dataclass(frozen=True)
class StepMoved(Event):
    """One of the choices that an update moved most, kept where ratios raised an anomaly."""

    seed: int
    """The seed of the training episode."""
    task: str
    """The task of that episode."""
    epoch: int
    """The epoch in which it was chosen."""
    head: str
    """The head that chose."""
    choice: int
    """The index of what it chose."""
    ratio: float
    """How many times as likely it is after the update."""


@dataclass(frozen=True)
class DetailChanged(Event):
    """From the next round on, telemetry has another level of detail."""

    level: str
    """The level: brief, normal or detailed."""
    reason: str
    """Why it changes."""


@dataclass(frozen=True)
class SinkFailed(Event):
    """A sink of metrics could not be written; it gets no more of them, and the run goes on."""

    sink: str
    """Its name."""
    reason: str
    """What went wrong."""


@dataclass(frozen=True)
class EvaluationMade(Event):
    """Greedy play on the fixed evaluation seeds; `low` to `high` is the 95 % interval of the mean return."""

    total: float
    """Mean return."""
    low: float
    """Lower end of the 95 % interval of the mean return."""
    high: float
    """Upper end of the 95 % interval of the mean return."""
    accuracy: float
    """Mean accuracy on the evaluation split at the end, as a fraction."""
    gain: float | None
    """Mean of accuracy minus the twin's accuracy; None if the reward mode needs no twin."""
    growth: float
    """Mean of total over host parameters at the end."""
    by_task: dict[str, float]
    """Mean return per task."""
    best: bool
    """Whether it is the best of the run so far."""


@dataclass(frozen=True)
class AnomalyRaised(Event):
    """Something looks wrong."""

    kind: str
    """Which detector saw it."""
    message: str
    """What it saw and what to do."""
    figures: dict[str, float]
    """The numbers that made it speak."""


@dataclass(frozen=True)
class CheckpointWritten(Event):
    """Everything up to the end of this round is safe."""

    file: str
    """The name of the file in `checkpoints/`."""


@dataclass(frozen=True)
class WorkerReplaced(Event):
    """A worker died or hung; its episode is played again by another one."""

    worker: str
    """The worker that was given up."""
    reason: str
    """How it was lost."""
    seed: int
    """The seed of the episode."""


EVENTS: dict[str, type[Event]] = {
    name: found
    for name, found in (*vars(contract_events).items(), *globals().items())
    if isinstance(found, type) and issubclass(found, Event) and found not in (Event, EpisodeEvent)
}
"""Every type of event by its name. Writing the class above is all it takes to add one."""

PARTS: tuple[type, ...] = (HeadFigures, GradientFigures, WeightFigures, ArrayFigures)
"""What events hold by name."""
