"""Episodes without a network: real stages and gates, invented qualities.

A seed adds its blueprint's `gain` to the quality in proportion to alpha. With `dependence` the host has adapted to
the seed: switched off, it takes that much away. The twin is the host alone.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from esper.contracts import (
    WAIT,
    Action,
    AlphaSpeed,
    AlphaTarget,
    HostSnapshot,
    Op,
    SlotSnapshot,
    Snapshot,
    Stage,
    Topology,
)
from esper.growth import Thresholds, judge
from esper.growth.gates import ready
from esper.growth.lifecycle import Plan, SlotState
from esper.rewards import Ending, Mode, RewardConfig, Transition, Twin, contribution, reward

OUTCOMES = 10
HOST_PARAMETERS = 230
BLUEPRINTS = ("helpful", "useless", "harmful", "ransom", "moderate")
SLOTS = ("a", "b", "c")


@dataclass(frozen=True)
class Effect:
    gain: float = 0.0
    dependence: float = 0.0
    parameters: int = 400


EFFECTS = {
    "helpful": Effect(gain=0.15),
    "useless": Effect(),
    "harmful": Effect(gain=-0.05),
    "ransom": Effect(dependence=0.12),
    "moderate": Effect(gain=0.15),
}
TARGET_OF = {"moderate": AlphaTarget.HALF}
"""Where a seed is to be blended to; others stay at full strength."""

Player = Callable[[Snapshot], Action]
Table = dict[frozenset[str], float]


def steady(epoch: int) -> float:
    return 0.4


def rising(epoch: int) -> float:
    return 0.4 + 0.003 * epoch


def declining(epoch: int) -> float:
    return 0.4 - 0.003 * epoch


@dataclass(frozen=True)
class World:
    """What an episode plays in. With `strict` gates a seed is kept only for a measured contribution."""

    host: Callable[[int], float] = steady
    slots: tuple[str, ...] = SLOTS
    horizon: int = 25
    strict: bool = True
    crash_at: int | None = None

    @property
    def thresholds(self) -> Thresholds:
        return Thresholds(horizon=self.horizon, min_contribution=0.01 if self.strict else -1.0)


@dataclass
class Episode:
    world: World
    states: dict[str, SlotState] = field(default_factory=dict)
    epoch: int = 0
    ended: Ending = Ending.RUNNING

    def __post_init__(self) -> None:
        self.states = {slot: SlotState() for slot in self.world.slots}
        self.table = self.evaluate()

    @property
    def twin(self) -> Twin:
        quality = self.world.host(self.epoch)
        return Twin(quality, loss_of(quality))

    def evaluate(self) -> Table:
        blended = [slot for slot, state in self.states.items() if state.schedule.alpha > 0.0]
        sizes = range(len(blended) + 1) if len(blended) <= 4 else (0, len(blended) - 1, len(blended))
        coalitions = itertools.chain.from_iterable(itertools.combinations(blended, size) for size in sizes)
        return {frozenset(coalition): self.quality(coalition) for coalition in coalitions}

    def quality(self, coalition: Sequence[str]) -> float:
        value = self.world.host(self.epoch)
        for slot, state in self.states.items():
            if state.plan is not None:
                effect = EFFECTS[state.plan.blueprint]
                value += state.schedule.alpha * (effect.gain if slot in coalition else -effect.dependence)
        return value

    def snapshot(self) -> Snapshot:
        slots = tuple(self.slot(name, state) for name, state in self.states.items())
        full = self.table[max(self.table, key=len)]
        total = HOST_PARAMETERS + sum(slot.parameters for slot in slots)
        host = HostSnapshot(
            self.epoch,
            self.world.horizon,
            HOST_PARAMETERS,
            total,
            evaluation_loss=loss_of(full),
            evaluation_quality=full,
        )
        return Snapshot(host, slots)

    def slot(self, name: str, state: SlotState) -> SlotSnapshot:
        plan = state.plan
        seen = SlotSnapshot(
            slot=name,
            topology=Topology.CNN,
            channels=8,
            position=self.world.slots.index(name),
            blueprints=BLUEPRINTS,
            stage=state.stage,
            age=state.age,
            blueprint=plan.blueprint if plan else None,
            alpha=state.schedule.alpha,
            alpha_target=state.alpha_target,
            alpha_mode=state.schedule.mode,
            parameters=EFFECTS[plan.blueprint].parameters if plan else 0,
            gradient_norm=1.0 if plan else None,
            contribution=state.contribution,
        )
        return replace(seen, ready=ready(seen, self.world.thresholds))

    def step(self, asked: Action) -> Transition:
        """In the environment's order: execute, train, evaluate, governor, tick."""
        before, table, twin = self.snapshot(), self.table, self.twin
        action = asked if legal(asked, before, self.world) else WAIT
        if action.slot is not None:
            self.states[action.slot] = after(self.states[action.slot], action)
        self.epoch += 1
        self.table = self.evaluate()
        if self.epoch == self.world.crash_at:
            self.roll_back()
        self.tick()
        if self.ended is Ending.RUNNING and self.epoch == self.world.horizon:
            self.ended = Ending.TRUNCATED
        now = self.snapshot()
        kept_quality = self.table.setdefault(now.delivered, self.quality(tuple(now.delivered)))
        kept_loss = loss_of(kept_quality)
        return Transition(before, now, action, table, self.table, twin, self.twin, self.ended, kept_loss)

    def roll_back(self) -> None:
        self.ended = Ending.TERMINATED
        for name, state in self.states.items():
            self.states[name] = state if state.stage is Stage.FOSSILIZED else SlotState()
        self.table = self.evaluate()

    def tick(self) -> None:
        for name, state in self.states.items():
            measured = contribution(self.table, name) if state.schedule.alpha > 0.0 else None
            self.states[name] = replace(state, contribution=measured).ticked(self.world.thresholds)


def loss_of(quality: float) -> float:
    return 2.5 * (1.0 - quality)


def after(state: SlotState, action: Action) -> SlotState:
    if action.op is Op.GERMINATE:
        plan = Plan(str(action.blueprint), action.style, action.tempo, action.alpha_target)
        return state.germinated(plan)
    if action.op is Op.ADVANCE:
        return state.advanced()
    if action.op is Op.PRUNE:
        return state.pruned(int(action.alpha_speed), action.alpha_curve)
    if action.op is Op.FOSSILIZE:
        return state.fossilized()
    return state.retargeted(action.alpha_target, int(action.alpha_speed), action.alpha_curve, action.style)


def legal(action: Action, snapshot: Snapshot, world: World) -> bool:
    if action.slot is None:
        return True
    slot = next(slot for slot in snapshot.slots if slot.slot == action.slot)
    return bool(judge(action, slot, world.thresholds))


def play(player: Player, world: World) -> list[Transition]:
    episode, steps = Episode(world), []
    while episode.ended is Ending.RUNNING:
        steps.append(episode.step(player(episode.snapshot())))
    return steps


def discounted(steps: Sequence[Transition], mode: Mode, config: RewardConfig) -> float:
    return sum(config.discount**t * reward(step, mode, config).total for t, step in enumerate(steps))


# Players


def nothing(snapshot: Snapshot) -> Action:
    return WAIT


def grower(
    blueprint: str, slots: Sequence[str] | None = None, keep: bool = True, hold: int = 3, world: World | None = None
) -> Player:
    """Take all slots, or some, the whole way; fossilise after `hold` epochs in HOLDING, or never."""
    world = world or World()

    def player(snapshot: Snapshot) -> Action:
        for slot in snapshot.slots:
            if slots is not None and slot.slot not in slots:
                continue
            for action in _onwards(slot, blueprint, keep, hold):
                if legal(action, snapshot, world):
                    return action
        return WAIT

    return player


def _onwards(slot: SlotSnapshot, blueprint: str, keep: bool, hold: int) -> Iterator[Action]:
    yield Action(Op.GERMINATE, slot.slot, blueprint=blueprint, alpha_target=TARGET_OF.get(blueprint, AlphaTarget.FULL))
    yield Action(Op.ADVANCE, slot.slot)
    if keep and slot.age >= hold:
        yield Action(Op.FOSSILIZE, slot.slot)


def cycler(
    blueprint: str, stage: Stage = Stage.GERMINATED, speed: AlphaSpeed = AlphaSpeed.INSTANT, last: int = 15
) -> Player:
    """Germinate, prune as soon as `stage` is reached, and again; none germinates after epoch `last`."""
    grow = grower(blueprint, keep=False)

    def player(snapshot: Snapshot) -> Action:
        for slot in snapshot.slots:
            prune = Action(Op.PRUNE, slot.slot, alpha_speed=speed)
            if slot.stage is stage and legal(prune, snapshot, World()):
                return prune
        action = grow(snapshot)
        return WAIT if action.op is Op.GERMINATE and snapshot.host.epoch > last else action

    return player


def turntable(blueprint: str, speed: AlphaSpeed = AlphaSpeed.INSTANT, slots: Sequence[str] | None = None) -> Player:
    """Swing alpha between half and full whenever it stands still in HOLDING."""
    grow = grower(blueprint, slots, keep=False)

    def player(snapshot: Snapshot) -> Action:
        for slot in snapshot.slots:
            if slot.stage is Stage.HOLDING:
                target = AlphaTarget.HALF if slot.alpha == 1.0 else AlphaTarget.FULL
                return Action(Op.SET_ALPHA_TARGET, slot.slot, alpha_target=target, alpha_speed=speed)
        return grow(snapshot)

    return player


def everything_at_once(blueprint: str) -> Player:
    """Germinate in every slot first, then see."""
    grow = grower(blueprint, keep=False)

    def player(snapshot: Snapshot) -> Action:
        for slot in snapshot.slots:
            if slot.stage is Stage.DORMANT:
                return Action(Op.GERMINATE, slot.slot, blueprint=blueprint)
        return grow(snapshot)

    return player


def chooser(numbers: Sequence[int], blueprints: Sequence[str], world: World) -> Player:
    """Any legal play: the t-th number picks among the actions that are legal at epoch t."""

    def player(snapshot: Snapshot) -> Action:
        actions = [action for action in _all_actions(snapshot, blueprints) if legal(action, snapshot, world)]
        return actions[numbers[snapshot.host.epoch % len(numbers)] % len(actions)]

    return player


def _all_actions(snapshot: Snapshot, blueprints: Sequence[str]) -> Iterator[Action]:
    yield WAIT
    for slot in snapshot.slots:
        for blueprint in blueprints:
            yield Action(Op.GERMINATE, slot.slot, blueprint=blueprint)
        # Several times, so that random play reaches deep stages.
        yield from [Action(Op.ADVANCE, slot.slot)] * 8
        yield from [Action(Op.FOSSILIZE, slot.slot)] * 4
        for speed in (AlphaSpeed.INSTANT, AlphaSpeed.FAST):
            yield Action(Op.PRUNE, slot.slot, alpha_speed=speed)
            for target in AlphaTarget:
                yield Action(Op.SET_ALPHA_TARGET, slot.slot, alpha_target=target, alpha_speed=speed)
