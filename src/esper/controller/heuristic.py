"""A controller of a few plain rules: grow on a plateau, keep what helps, remove what does not, learn which seeds do."""

import math
from dataclasses import dataclass, field, fields, replace
from typing import TypeVar

import torch

from esper.contracts import ACCURACY_GRAIN, WAIT, Action, ActionCodec, AlphaSpeed, EsperError, ObservationFields, Op
from esper.controller.features import places
from esper.controller.policy import Arrays, Decision, decision_for, legal_ops

T = TypeVar("T")


class InvalidHeuristic(EsperError):
    """A setting of the heuristic lies outside its range."""


def _setting(default: float, low: float, high: float) -> float:
    setting: float = field(default=default, metadata={"range": (low, high)})
    return setting


def _count(default: int, low: int) -> int:
    setting: int = field(default=default, metadata={"range": (low, math.inf)})
    return setting


@dataclass(frozen=True)
class HeuristicConfig:
    """When to do what. Contributions and qualities are fractions, as accuracies are: where smaller differences count,
    as in losses, all of them stand for as much smaller ones. Shares are of the horizon.

    `min_contribution`: a held seed is kept from here on. `patience_holding`: epochs below it, one after the other,
    that cost a held seed its place.
    `min_improvement`, `plateau_epochs`: quality is on a plateau when for so many epochs it was not that much better
    than the best before. `max_active`: seeds at a time that are neither fossils nor gone. `last_start`: share of the
    horizon after which nothing germinates.
    `optimism`: what every blueprint is expected to bring at first. `mixing_bonus`: what is expected on top of that from
    those that mix positions or channels, because the others only rescale what the host has. `seed_size`: logarithm of
    the factor by which a seed of the right size grows the host. `size_weight`: what is expected less of a seed that is
    too small or too large, per factor e. `disappointment`: how far an expectation falls when a seed brought nothing.
    """

    min_contribution: float = _setting(0.02, -1.0, 1.0)
    patience_holding: int = _count(3, 1)
    min_improvement: float = _setting(0.01, 0.0, 1.0)
    plateau_epochs: int = _count(2, 1)
    max_active: int = _count(2, 1)
    last_start: float = _setting(0.7, 0.0, 1.0)
    optimism: float = _setting(0.1, 0.0, 1.0)
    mixing_bonus: float = _setting(0.1, 0.0, 1.0)
    seed_size: float = _setting(math.log(2.0), 0.0, 10.0)
    size_weight: float = _setting(0.08, 0.0, 1.0)
    disappointment: float = _setting(0.2, 0.0, 1.0)

    def __post_init__(self) -> None:
        for setting in fields(self):
            value, (low, high) = getattr(self, setting.name), setting.metadata["range"]
            if not low <= value <= high:
                allowed = f"of at least {low}" if high == math.inf else f"from {low:g} to {high:g}"
                raise InvalidHeuristic(f"{setting.name} is {value}; give a number {allowed}")


@dataclass(frozen=True)
class HeuristicState:
    """What is remembered of an episode: expectations by blueprint, and by slot the blueprint that was planted there.

    `stale_epochs` counts epochs since quality last rose clearly above `best_quality`, or since a seed germinated.
    `low_epochs` counts for each slot the last epochs in which its held seed's contribution was too low.
    """

    codec: ActionCodec
    expected: tuple[float, ...]
    planted: tuple[int | None, ...]
    low_epochs: tuple[int, ...]
    best_quality: float | None = None
    stale_epochs: int = 0


@dataclass(frozen=True)
class Sight:
    """What the rules look at. `None` is "not measured"; all but the first two have one entry per slot."""

    progress: float
    quality: float | None
    legal: dict[Op, tuple[bool, ...]]
    contribution: tuple[float | None, ...]
    holding: tuple[bool, ...]
    active: tuple[bool, ...]
    anomaly: tuple[bool, ...]
    expense: tuple[tuple[float | None, ...], ...]
    """By slot and blueprint: what is expected less for that seed's size, less the bonus for mixing; None where it does
    not fit."""


Step = tuple[Action, HeuristicState]


class Heuristic:
    """The rules, in their order: fossilise what helps, prune what does not, advance, germinate on a plateau, wait."""

    name = "heuristic"

    def __init__(self, fields: ObservationFields, config: HeuristicConfig | None = None) -> None:
        self.config = config or HeuristicConfig()
        self._host = places(fields.host, ("progress", "quality"))
        self._slot = places(fields.slots, ("stage_holding", "stage_fossilized", "seed", "contribution", "anomaly"))
        self._blueprint = places(fields.blueprints, ("cost", "kind_mix_space", "kind_mix_channels"))

    def start(self, codec: ActionCodec) -> HeuristicState:
        slots = len(codec.slots)
        return HeuristicState(
            codec=codec,
            expected=(self.config.optimism,) * len(codec.blueprints),
            planted=(None,) * slots,
            low_epochs=(0,) * slots,
        )

    def act(
        self, observation: Arrays, state: HeuristicState, generator: torch.Generator
    ) -> tuple[Decision, HeuristicState]:
        """The first rule that applies decides; nothing is drawn."""
        sight = self._see(observation, state.codec.grain / ACCURACY_GRAIN)
        state = self._noted(state, sight)
        for rule in (self._fossilize, self._prune, self._advance, self._germinate):
            step = rule(sight, state)
            if step is not None:
                action, state = step
                return decision_for(action, state.codec), state
        return decision_for(WAIT, state.codec), state

    # Looking

    def _see(self, observation: Arrays, scale: float) -> Sight:
        """Qualities are read on the task's own scale, which is 1 for accuracies."""
        host, host_valid = observation["host"], observation["host_valid"]
        slots, slots_valid = observation["slots"], observation["slots_valid"]
        column = {name: slots[:, place].tolist() for name, place in self._slot.items()}
        measured = slots_valid[:, self._slot["contribution"]].tolist()
        legal, quality = legal_ops(observation), self._host["quality"]
        return Sight(
            progress=float(host[self._host["progress"]]),
            quality=float(host[quality]) / scale if host_valid[quality] else None,
            legal={op: tuple(legal[op].tolist()) for op in Op},
            contribution=tuple(
                v / scale if ok else None for v, ok in zip(column["contribution"], measured, strict=True)
            ),
            holding=tuple(map(bool, column["stage_holding"])),
            active=tuple(bool(s and not f) for s, f in zip(column["seed"], column["stage_fossilized"], strict=True)),
            anomaly=tuple(map(bool, column["anomaly"])),
            expense=self._expenses(observation),
        )

    def _expenses(self, observation: Arrays) -> tuple[tuple[float | None, ...], ...]:
        offers, place = observation["blueprints"], self._blueprint
        mixes = offers[..., place["kind_mix_space"]] + offers[..., place["kind_mix_channels"]]
        misfit = abs(offers[..., place["cost"]] - self.config.seed_size)
        expense = self.config.size_weight * misfit - self.config.mixing_bonus * mixes
        return tuple(
            tuple(value if fits else None for value, fits in zip(*row, strict=True))
            for row in zip(expense.tolist(), observation["mask_slot_blueprint"].tolist(), strict=True)
        )

    def _noted(self, state: HeuristicState, sight: Sight) -> HeuristicState:
        """The state once plateau and patience took note of the last epoch; what was not measured moves neither."""
        slots = zip(state.low_epochs, sight.holding, sight.contribution, strict=True)
        low = tuple(self._low_epochs(*slot) for slot in slots)
        state = replace(state, low_epochs=low)
        if sight.quality is None:
            return state
        if state.best_quality is None or sight.quality > state.best_quality + self.config.min_improvement:
            return replace(state, best_quality=sight.quality, stale_epochs=0)
        return replace(state, stale_epochs=state.stale_epochs + 1)

    def _low_epochs(self, before: int, held: bool, contribution: float | None) -> int:
        if held and contribution is None:
            return before
        return before + 1 if held and self._is_low(contribution) else 0

    def _is_low(self, contribution: float | None) -> bool:
        return contribution is not None and contribution < self.config.min_contribution

    # Rules

    def _fossilize(self, sight: Sight, state: HeuristicState) -> Step | None:
        for slot, contribution in enumerate(sight.contribution):
            if sight.legal[Op.FOSSILIZE][slot] and contribution is not None and not self._is_low(contribution):
                return Action(Op.FOSSILIZE, state.codec.slots[slot]), _learned(state, slot, contribution)
        return None

    def _prune(self, sight: Sight, state: HeuristicState) -> Step | None:
        """A broken seed goes at once and teaches nothing about its blueprint; a useless one is ramped down."""
        for slot, name in enumerate(state.codec.slots):
            if not sight.legal[Op.PRUNE][slot]:
                continue
            if sight.anomaly[slot]:
                return Action(Op.PRUNE, name, alpha_speed=AlphaSpeed.INSTANT), _learned(state, slot, 0.0)
            if state.low_epochs[slot] >= self.config.patience_holding:
                lesson = -self.config.disappointment
                return Action(Op.PRUNE, name, alpha_speed=AlphaSpeed.FAST), _learned(state, slot, lesson)
        return None

    def _advance(self, sight: Sight, state: HeuristicState) -> Step | None:
        for slot, legal in enumerate(sight.legal[Op.ADVANCE]):
            if legal:
                return Action(Op.ADVANCE, state.codec.slots[slot]), state
        return None

    def _germinate(self, sight: Sight, state: HeuristicState) -> Step | None:
        """The seed and the place from which most is expected after its expense; of equals the best fit, the first."""
        on_plateau = state.stale_epochs >= self.config.plateau_epochs
        room = sum(sight.active) < self.config.max_active
        if not (on_plateau and room and sight.progress <= self.config.last_start):
            return None
        offers = [
            (state.expected[seed] - expense, -expense, -slot, -seed)
            for slot, legal in enumerate(sight.legal[Op.GERMINATE])
            for seed, expense in enumerate(sight.expense[slot])
            if legal and expense is not None
        ]
        if not offers:
            return None
        slot, seed = (-index for index in max(offers)[2:])
        action = Action(Op.GERMINATE, state.codec.slots[slot], blueprint=state.codec.blueprints[seed])
        return action, replace(state, planted=_changed(state.planted, slot, seed), stale_epochs=0)


def _learned(state: HeuristicState, slot: int, lesson: float) -> HeuristicState:
    """The state after the seed in `slot` was kept or removed."""
    seed = state.planted[slot]
    if seed is None:
        return state
    expected = _changed(state.expected, seed, state.expected[seed] + lesson)
    return replace(state, expected=expected, planted=_changed(state.planted, slot, None))


def _changed(values: tuple[T, ...], place: int, value: T) -> tuple[T, ...]:
    return (*values[:place], value, *values[place + 1 :])
