"""The gardener: three lines in anybody's training loop."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import chain, combinations
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from esper.contracts import (
    ACCURACY_GRAIN,
    LOSS_GRAIN,
    EsperError,
    HostSnapshot,
    OperationRefused,
    SlotId,
    Snapshot,
    Stage,
    Verdict,
)
from esper.controller import Policy, find_policy
from esper.environment import FIELDS, Observer
from esper.gardener.budget import Budget, offers_of
from esper.gardener.course import Course, Scale
from esper.gardener.errors import BadSetting, NoScore, TooManySteps, WrongState
from esper.gardener.ground import break_ground
from esper.gardener.keeper import Keeper
from esper.gardener.loop import Loop
from esper.gardener.plan import GrowthPlan, PlannedPlace
from esper.gardener.processes import of_the_first, share_buffers
from esper.gardener.progress import Progress, in_words
from esper.gardener.report import Report, report_of
from esper.gardener.score import Answer, Direction, Evaluate, answers_for
from esper.gardener.seat import PolicySeat
from esper.gardener.settings import DEFAULT_RENT, require_budget, require_epochs, require_rent, require_scale
from esper.gardener.story import Story
from esper.growth import Body, Coalition, Costs, Thresholds, judge
from esper.growth.proof import Example
from esper.telemetry import RolledBack, decision_made

DEFAULT_CONTROLLER = "tamiyo"
FORMAT = 1
"""Of a saved gardener."""
MOST_SUBSETS = 3
"""Of so many seeds all subsets are evaluated at the end, so that what is delivered is among them."""
logger = logging.getLogger("esper.gardener")


@dataclass(eq=False, repr=False)
class Gardener:
    """Grows a model while somebody else's loop trains it: make it before the scheduler, step it after every epoch.

    >>> import esper, torch
    >>> model = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))
    >>> optimizer = torch.optim.Adam(model.parameters())
    >>> gardener = esper.Gardener(model, optimizer, example=torch.zeros(4, 2), epochs=1)
    >>> progress = gardener.step(lambda model: 0.5)           # after an epoch of your own
    >>> model = gardener.harvest()                            # a plain module
    """

    model: nn.Module
    optimizer: Optimizer
    _: KW_ONLY
    example: Example
    """A batch of the model's inputs, as it takes them: one tensor, positional or keyword arguments."""
    epochs: int
    """How often `step` will be called."""
    at: str | Sequence[SlotId] = "auto"
    """Where to grow: names of submodules, a pattern such as `layer*`, or `auto` for a few good places."""
    controller: str | Path | Policy = DEFAULT_CONTROLLER
    """Who decides: a policy by name, such as ranker, heuristic, constant or a shipped controller, a file, an object."""
    rent: float = DEFAULT_RENT
    """How much quality a factor e of size must bring to pay."""
    max_added_parameters: int | None = None
    """The most that all that grows may add."""
    max_added_flops: int | None = None
    """The most operations of a forward pass, for one sample, that all that grows may add."""
    direction: Direction = "max"
    """Whether a higher or a lower score is better."""
    scale: Scale | None = None
    """The worst and the best score. Without it a score is a fraction, and a loss counts from its first value to 0."""
    directory: str | Path | None = None
    """Where events are written, for `esper query` and reports."""

    def __post_init__(self) -> None:
        self._require_settings()
        policy = self.controller
        if isinstance(policy, str | Path):
            policy = find_policy(str(policy), FIELDS)
        elif not (hasattr(policy, "start") and hasattr(policy, "act")):
            raise BadSetting(
                f"controller is {policy!r}; give the name of a policy such as {DEFAULT_CONTROLLER!r}, 'ranker' or "
                "'none', a file, a Schedule, or an object with `start` and `act`"
            )
        grain = LOSS_GRAIN if self.direction == "min" else ACCURACY_GRAIN
        self._thresholds = Thresholds(horizon=self.epochs, min_contribution=grain)
        self._story = Story(self.directory)
        self._ground = break_ground(self.model, self.optimizer, self.example, self.at, self._thresholds, self._story)
        self.body: Body = self._ground.body
        self._budget = Budget(self.max_added_parameters, self.max_added_flops)
        self._offers = offers_of(self.body)
        self._course = Course(self.direction, self.scale, self._ground.outcomes)
        try:
            self._observer = Observer(self.body.snapshots(), self._thresholds, grain)
            self._seat = PolicySeat(policy, self._observer.codec)
            self._try_out()
            self._story.introduce(self.body, self.epochs, self.rent, self._ground.places.left_out)
        except BaseException:
            self._ground.give_back()
            raise
        self._keeper: Keeper | None = None
        self._loop = Loop(self.body, self._ground.optimizer)
        self._panic: str | None = None
        """Why nothing is decided any more."""
        logger.info("%s", self.plan())

    def _require_settings(self) -> None:
        require_epochs(self.epochs)
        require_scale(self.scale, self.direction)
        require_rent(self.rent)
        for name in ("max_added_parameters", "max_added_flops"):
            require_budget(name, getattr(self, name))

    def _try_out(self) -> None:
        """What is wrong with the controller shows when it decides for the first time."""
        try:
            self._seat.rehearse(self._observer.observe(self._snapshot(None, None)))
        except EsperError as error:
            if self._budget == Budget(None, None):
                raise
            raise BadSetting(f"{error} (within the budget)") from error

    # Looking

    @property
    def epoch(self) -> int:
        """Epochs that were stepped."""
        return self.body.epoch

    @property
    def done(self) -> bool:
        """Whether all epochs were stepped."""
        return self.epoch >= self.epochs

    def costs(self) -> Costs:
        """Parameters and operations of the host, of what grows in it, of the live network and of the harvest."""
        return self.body.costs()

    def plan(self) -> GrowthPlan:
        """What could grow where, at which cost, and which places were left out; prints as a table."""
        found = self._ground.places
        places = tuple(
            PlannedPlace(each.slot, str(each.topology), each.shape, self._offers[each.slot]) for each in found.taken
        )
        return GrowthPlan(self.body.costs().host, places, self._budget, found.left_out)

    def report(self) -> Report:
        """What was tried, kept and removed so far, what it brought and what it costs; prints as text."""
        return report_of(self._story.events)

    # The loop

    def step(self, evaluate: Evaluate | None = None, *, train_loss: float | None = None) -> Progress:
        """An epoch is over: evaluate the model, and decide what is to happen in the next one.

        `evaluate` is given the model and returns a score, or a dict of `accuracy` (or `score`) and `loss`. It is asked
        once more for every seed that may still go, without that seed. If it raises, nothing has happened.
        """
        evaluate = self._require_open(evaluate)
        share_buffers([each for slot in self.body.living() if slot.seed is not None for each in slot.seed.buffers()])
        wanted, course = self._coalitions(), self._course
        answers = of_the_first(answers_for(self.body, lambda: evaluate(self.model), wanted, self.direction))
        live = answers[0]
        course.require(live)
        # From here on nothing of the user's runs but the policy, if it is an object of theirs.
        grown = self._growth()
        course.take(live)
        self._panic = self._guarded(wanted, answers) or self._panic
        gradient_norm = self._loop.end()
        self.body.tick()
        loss = None if course.now is None else course.now.loss
        self._story.tell_epoch(self.body, grown, course.quality(course.now), loss)
        snapshot = self._snapshot(gradient_norm, train_loss)
        if self._panic is not None:
            done = f"grows no more, as it was rolled back: {self._panic}"
        else:
            done = "is at its end" if self.done else self._decide(snapshot)
        if self.done:
            self._conclude(dict(zip(wanted, answers, strict=True)))
        self._loop.begin()
        progress = Progress(self.epoch, self.epochs, live.score, live.loss, self._growth(), done)
        logger.info("%s", progress)
        return progress

    def _require_open(self, evaluate: Evaluate | None) -> Evaluate:
        if not self.body.slots:
            raise TooManySteps("the gardener has given the model back; make another one to go on growing")
        if self.done:
            raise TooManySteps(
                f"this would be step {self.epochs + 1} of {self.epochs}; make the gardener for as many epochs as the "
                "loop has, and call step once in each"
            )
        if not callable(evaluate):
            given = "nothing" if evaluate is None else f"a {type(evaluate).__name__}"
            raise NoScore(
                f"step was given {given}; give the function that computes the score, as in step(evaluate), because it "
                "is also asked what the model is worth without each seed"
            )
        return evaluate

    def _coalitions(self) -> list[Coalition]:
        """The live network, and without each seed that may still go; at the end, all that may be delivered."""
        everyone = self.body.blended()
        kept = {slot.id for slot in self.body.living() if slot.state.stage is Stage.FOSSILIZED}
        free = sorted(everyone - kept)
        at_end = self.epoch + 1 == self.epochs and len(free) <= MOST_SUBSETS
        without = chain.from_iterable(combinations(free, size) for size in (range(len(free) + 1) if at_end else (0, 1)))
        return [everyone.difference(each) for each in without]

    def _guarded(self, wanted: Sequence[Coalition], answers: Sequence[Answer]) -> str | None:
        """Note what seeds are worth, unless there was a catastrophe: then bring back what was good, and say why."""
        course = self._course
        if self._keeper is None:
            self._keeper = Keeper(self.body, self._ground.optimizer, course.guess())
        metric = course.metric
        self.body.record_qualities(
            {each: metric.quality(told.score) for each, told in zip(wanted, answers, strict=True)}
        )
        panic = self._keeper.check(course.worth(answers[0]))
        if panic is not None:
            self._keeper.roll_back()
            course.forget()
            self._story.write(RolledBack(self.epoch, panic))
            logger.warning("epoch %d: %s; model and optimizer are as they last were good", self.epoch + 1, panic)
        return panic

    def _snapshot(self, gradient_norm: float | None, train_loss: float | None) -> Snapshot:
        """What is known. A user's loop does not say how many rows it trains on, and perhaps no losses."""
        slots, now, before = self.body.snapshots(), self._course.now, self._course.before
        host = HostSnapshot(
            epoch=self.epoch,
            horizon=self.epochs,
            parameters=self.body.host_parameters,
            total_parameters=self.body.host_parameters + sum(slot.parameters for slot in slots),
            train_loss=train_loss,
            evaluation_loss=None if now is None else now.loss,
            evaluation_quality=self._course.quality(now),
            gradient_norm=gradient_norm,
            previous_loss=None if before is None else before.loss,
            previous_quality=self._course.quality(before),
            depth=self.body.host_depth,
            outcomes=self._ground.outcomes,
            rent=self.rent,
        )
        return Snapshot(host, self._budget.narrowed(slots, self._offers))

    def _decide(self, snapshot: Snapshot) -> str:
        """Let the controller decide and do it; what was done, in words."""
        observation = self._observer.observe(snapshot)
        choices = self._seat.decide(observation)
        action = self._observer.codec.decode(choices)
        verdict = Verdict(())
        for slot in snapshot.slots:
            if slot.slot == action.slot:
                verdict = judge(action, slot, self._thresholds)
        if verdict:
            verdict = self.body.execute(action)
        else:
            self._story.write(OperationRefused(self.epoch, action.op.name, action.slot, verdict.reasons))
        refused = () if verdict else verdict.reasons
        forced = int(observation["mask_op"].sum()) == 1
        self._story.write(decision_made(self.epoch, self._seat.codec, choices, forced=forced, refused=refused))
        return in_words(action) + (f", which was refused: {'; '.join(refused)}" if refused else "")

    # The end

    def harvest(self, averaged: nn.Module | None = None) -> nn.Module:
        """A plain copy of the model with what was kept, and with what its gate would let be kept now.

        With `averaged`, an average that follows the model by `average_with`, it has the averaged weights.
        """
        if averaged is None:
            plain = self.body.harvest()
        else:
            host = self.body.host
            own = {name: value.clone() for name, value in host.state_dict().items()}
            host.load_state_dict(getattr(averaged, "module", averaged).state_dict())
            try:
                plain = self.body.harvest()
            finally:
                host.load_state_dict(own)
        self._conclude({})
        return plain

    def ungraft(self) -> nn.Module:
        """The model as it was, without anything that grew; the optimiser keeps the host's parameters."""
        self._loop.leave()
        return self.body.ungraft()

    def average_with(self, averaged: nn.Module) -> None:
        """Let an average of the model, made after the gardener, have every seed that the model has."""
        self.body.average_with(averaged)

    def _conclude(self, answers: Mapping[Coalition, Answer]) -> None:
        """Tell what came of it; the quality of what is delivered is known only if it was evaluated."""
        delivered = frozenset(fossil.slot for fossil in self.body.delivered())
        quality = self._course.quality(answers.get(delivered))
        self._story.conclude(self.body, self._seat.policy.name, quality, self._panic)

    # Saving

    def state_dict(self) -> dict[str, Any]:
        """Everything but the weights, which are in the model's and the optimiser's own states.

        Load it before these two: it grows the seeds whose weights they hold.
        """
        return {
            "format": FORMAT,
            "epochs": self.epochs,
            "body": self.body.get_extra_state(),
            "seat": self._seat.state_dict(),
            "course": self._course.state_dict(),
            "keeper": None if self._keeper is None else self._keeper.state_dict(),
            "steps": self._loop.steps_before,
            "panic": self._panic,
            "story": self._story.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where the saved gardener was; then load the model's state, the optimiser's and the scheduler's."""
        if not isinstance(state, Mapping) or state.get("format") != FORMAT:
            raise WrongState("this is not the state of a gardener; give what `Gardener.state_dict()` returned")
        if state["epochs"] != self.epochs:
            raise WrongState(
                f"the saved gardener was made for {state['epochs']} epochs, this one for {self.epochs}; give as many"
            )
        seat = self._seat.replayed(state["seat"])
        self.body.take_shape(state["body"])
        self._seat = seat
        self._course.load_state_dict(state["course"])
        self._keeper = None
        if state["keeper"] is not None:
            self._keeper = Keeper(self.body, self._ground.optimizer, self._course.guess())
            self._keeper.load_state_dict(state["keeper"])
        self._panic = state["panic"]
        self._story.load_state_dict(state["story"])
        self._loop.steps_before = state["steps"]
        self._loop.begin()

    def _growth(self) -> float:
        """The parameters of the live network over the host's."""
        seeds = sum(parameter.numel() for slot in self.body.living() for parameter in slot.seed_parameters)
        return 1.0 + seeds / max(1, self.body.host_parameters)
