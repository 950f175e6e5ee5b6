"""An episode: one host's training from first weights to the horizon, one epoch per decision.

It is a pure function of (task, seed, actions): weights, newborn seeds, data order, augmentation and the host's own
noise each draw from streams derived from the seed. With WAIT alone it is the twin of every episode of that seed.
Threads that play at the same time take turns, epoch by epoch.
"""

from dataclasses import dataclass, field

from esper.contracts import WAIT, Action, HostSnapshot, NullSink, Sink, Snapshot, Verdict
from esper.environment.data import Splits
from esper.environment.evaluation import Evaluation, SplitJudge, evaluate, with_delivered
from esper.environment.governor import Governor, GovernorConfig
from esper.environment.randomness import TURN, global_draws_from, stream
from esper.environment.tasks import Task
from esper.environment.training import Compute, EpochMeasures, Probe, Trainer
from esper.growth import Thresholds, graft


@dataclass(frozen=True)
class World:
    """What episodes of a task have in common besides the task: gates, governor, arithmetic."""

    thresholds: Thresholds | None = None
    governor: GovernorConfig = field(default_factory=GovernorConfig)
    compute: Compute = field(default_factory=Compute)

    def thresholds_for(self, task: Task) -> Thresholds:
        return self.thresholds or Thresholds(horizon=task.horizon, min_contribution=task.min_contribution)


@dataclass(frozen=True)
class Outcome:
    """What an epoch brought. `executed` is WAIT when the action was refused; `panic` is why the governor ended it."""

    executed: Action
    verdict: Verdict
    evaluation: Evaluation
    panic: str | None


class Episode:
    """Plays one episode. It sees the training and the evaluation split; the test split is not among its data."""

    def __init__(
        self,
        task: Task,
        splits: Splits,
        seed: int,
        world: World,
        sink: Sink | None = None,
        probe: Probe | None = None,
    ) -> None:
        self.task = task
        self.train = splits.train
        self.judge = SplitJudge(splits.evaluation, task.classes, task.judged_by)
        with global_draws_from(seed, "weights"):
            self.body = graft(
                task.build_host().to(world.compute.device),
                at=task.slots,
                example=self.train.x[:2],
                blueprints=task.blueprints,
                thresholds=world.thresholds_for(task),
                generator=stream(seed, "seeds"),
                sink=sink or NullSink(),
            )
        self.trainer = Trainer(self.body, task, seed, world.compute, probe)
        self.governor = Governor(world.governor, self.judge.guess)
        self.evaluation = evaluate(self.body, self.judge)
        self._lost = self.governor.check(self.body, self.evaluation.loss, self.evaluation.quality)
        """Why the episode is lost before it begins; it then ends with its first step."""
        self.snapshot = self._snapshot(None, None)
        self.panic: str | None = None

    @property
    def done(self) -> bool:
        return self.panic is not None or self.body.epoch >= self.task.horizon

    def step(self, action: Action) -> Outcome:
        """Execute, train, evaluate, let the governor look, tick: one epoch, in this order."""
        if self.done:
            raise RuntimeError("the episode is over; start another one")
        previous = self.evaluation
        with TURN:
            verdict = self.body.execute(action)
            measures = None if self._lost else self._train()
            self.panic = self._lost or self.governor.check(self.body, self.evaluation.loss, self.evaluation.quality)
            if self.panic is not None:
                self.governor.roll_back(self.body, self.trainer.optimizer)
                self.evaluation = evaluate(self.body, self.judge)
            self.body.tick()
            self.evaluation = with_delivered(self.evaluation, self.body, self.judge)
        self.snapshot = self._snapshot(measures, previous)
        return Outcome(action if verdict else WAIT, verdict, self.evaluation, self.panic)

    def _train(self) -> EpochMeasures:
        """One epoch, and what the network is worth after it."""
        measures = self.trainer.epoch(self.train)
        self.evaluation = evaluate(self.body, self.judge)
        return measures

    def _snapshot(self, measures: EpochMeasures | None, previous: Evaluation | None) -> Snapshot:
        slots = self.body.snapshots()
        host_parameters = self.body.host_parameters
        host = HostSnapshot(
            epoch=self.body.epoch,
            horizon=self.task.horizon,
            parameters=host_parameters,
            total_parameters=host_parameters + sum(slot.parameters for slot in slots),
            train_loss=None if measures is None else measures.loss,
            evaluation_loss=self.evaluation.loss,
            evaluation_quality=self.evaluation.quality,
            gradient_norm=None if measures is None else measures.gradient_norm,
            previous_loss=None if previous is None else previous.loss,
            previous_quality=None if previous is None else previous.quality,
            depth=self.body.host_depth,
            outcomes=self.task.classes,
            rows=self.task.samples_of(self.train),
            rent=self.task.rent,
        )
        return Snapshot(host, slots)
