"""An episode: one host's training from first weights to the horizon, one epoch per decision.

It is a pure function of (task, seed, actions): weights, newborn seeds, data order, augmentation and the host's own
noise each draw from streams derived from the seed. With WAIT alone it is the twin of every episode of that seed.
Threads that play at the same time take turns, epoch by epoch.
"""

from dataclasses import dataclass, field

from esper.contracts import WAIT, Action, HostSnapshot, NullSink, Sink, Snapshot, Verdict
from esper.environment.data import Splits
from esper.environment.evaluation import Evaluation, evaluate
from esper.environment.governor import Governor, GovernorConfig
from esper.environment.randomness import TURN, global_draws_from, stream
from esper.environment.tasks import Task
from esper.environment.training import Compute, EpochMeasures, Probe, Trainer
from esper.growth import GrowthConfig, Thresholds, graft


@dataclass(frozen=True)
class World:
    """What episodes of a task have in common besides the task: gates, governor, arithmetic."""

    growth: GrowthConfig | None = None
    governor: GovernorConfig = field(default_factory=GovernorConfig)
    compute: Compute = field(default_factory=Compute)

    def growth_for(self, task: Task) -> GrowthConfig:
        return self.growth or GrowthConfig(Thresholds(horizon=task.horizon))


@dataclass(frozen=True)
class Outcome:
    """What an epoch brought. `executed` is WAIT when the action was refused; `panic` is why the governor ended it."""

    executed: Action
    verdict: Verdict
    evaluation: Evaluation
    panic: str | None


class Episode:
    """Plays one episode. It sees the training and the evaluation split; the test split is not among its data.

    `rent` changes nothing but what its snapshots show.
    """

    def __init__(
        self,
        task: Task,
        splits: Splits,
        seed: int,
        world: World,
        sink: Sink | None = None,
        probe: Probe | None = None,
        rent: float | None = None,
    ) -> None:
        self.task, self.rent = task, rent
        self.train, self.evaluation_split = splits.train, splits.evaluation
        with global_draws_from(seed, "weights"):
            self.body = graft(
                task.build_host().to(world.compute.device),
                at=task.slots,
                example=self.train.x[:2],
                blueprints=task.blueprints,
                config=world.growth_for(task),
                generator=stream(seed, "seeds"),
                sink=sink or NullSink(),
            )
        self.trainer = Trainer(self.body, task, seed, world.compute, probe)
        labels = self.evaluation_split.y
        commonest = float(labels.bincount().max()) / len(labels)
        self.governor = Governor(world.governor, task.classes, commonest)
        self.evaluation = evaluate(self.body, self.evaluation_split)
        self._lost = self.governor.check(self.body, self.evaluation.loss, self.evaluation.accuracy)
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
            self.panic = self._lost or self.governor.check(self.body, self.evaluation.loss, self.evaluation.accuracy)
            if self.panic is not None:
                self.governor.roll_back(self.body, self.trainer.optimizer)
                self.evaluation = evaluate(self.body, self.evaluation_split)
            self.body.tick()
        self.snapshot = self._snapshot(measures, previous)
        return Outcome(action if verdict else WAIT, verdict, self.evaluation, self.panic)

    def _train(self) -> EpochMeasures:
        """One epoch, and what the network is worth after it."""
        measures = self.trainer.epoch(self.train)
        self.evaluation = evaluate(self.body, self.evaluation_split)
        table, everyone = self.evaluation.table, self.body.blended()
        for slot in everyone:
            self.body.record_contribution(slot, table[everyone] - table[everyone - {slot}])
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
            evaluation_accuracy=self.evaluation.accuracy,
            gradient_norm=None if measures is None else measures.gradient_norm,
            previous_loss=None if previous is None else previous.loss,
            previous_accuracy=None if previous is None else previous.accuracy,
            depth=self.body.host_depth,
            outcomes=self.task.classes,
            rows=len(self.train.x),
            rent=self.rent,
        )
        return Snapshot(host, slots)
