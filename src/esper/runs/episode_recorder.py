"""An episode told in events: what was decided, what it brought, and what probes saw along the way."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from esper.contracts import ActionCodec, Event, Head, Stage, StageChanged
from esper.controller import Decision
from esper.environment import GrowEnv, Probe
from esper.rl import Acted, MemoryState
from esper.telemetry import (
    DecisionMade,
    EpisodeStarted,
    GradientCollector,
    GradientsSeen,
    LiveFile,
    RewardPaid,
    RolledBack,
    SeedLife,
    decision_made,
    memory_figures,
)

ENDS = (Stage.FOSSILIZED, Stage.PRUNED)
"""The stages that end a seed's life in a slot."""


class EpisodeRecorder:
    """A sink that keeps an episode's events, and turns decisions, rewards and what a probe sees into events."""

    def __init__(self, detailed: bool = False, live: LiveFile | None = None) -> None:
        self.events: list[Event] = []
        self._live = live
        self._detailed = detailed
        self._gradients = GradientCollector()
        self._states: list[MemoryState] = []

    @property
    def probe(self) -> Probe | None:
        """What is to be shown the gradients of host and seeds; None if nobody asks for them."""
        return (lambda gradients: self._gradients.see(gradients)) if self._detailed else None

    def remember(self, state: MemoryState) -> None:
        """A state of the controller's memory."""
        if self._detailed:
            self._states.append(state)

    def begin(self, env: GrowEnv, task: str, policy: str, purpose: str) -> None:
        """An episode begins, as it is called in the log."""
        assert env.episode is not None
        slots, host = env.episode.snapshot.slots, env.episode.snapshot.host
        names, blueprints = tuple(slot.slot for slot in slots), tuple(env.codec.blueprints)
        horizon, metric = env.task.horizon, env.episode.judge.metric
        self.write(EpisodeStarted(0, task, policy, purpose, horizon, host.parameters, names, blueprints, metric))
        self._tell()

    def conclude(self) -> None:
        """The episode is over."""
        examined = memory_figures(self._states)
        if examined is not None:
            self.write(examined)

    def write(self, event: Event) -> None:
        self.events.append(event)

    def narrate(self, env: GrowEnv, decision: Decision, forced: bool, reward: float, info: Mapping[str, Any]) -> None:
        """What was decided and paid in the epoch that has just passed."""
        assert env.episode is not None
        host = env.episode.snapshot.host
        epoch = host.epoch - 1
        self.write(describe(epoch, env.codec, decision, forced, info["refused"]))
        growth = host.total_parameters / host.parameters
        slots = env.episode.snapshot.slots
        contributions = {slot.slot: slot.contribution for slot in slots if slot.contribution is not None}
        terms = {str(name): value for name, value in info["reward_terms"].items()}
        figures = (info["quality"], info["loss"], growth, contributions)
        alphas = {slot.slot: round(slot.alpha, 4) for slot in slots}
        self.write(RewardPaid(epoch, reward, terms, *figures, env.twin_quality, alphas))
        if self._detailed:
            self.write(GradientsSeen(epoch, self._gradients.figures()))
            self._gradients = GradientCollector()
        if info["panic"] is not None:
            self.write(RolledBack(epoch, info["panic"]))
        self._tell()

    def seeds(self) -> tuple[SeedLife, ...]:
        """The lives of all seeds so far, in the order in which they germinated."""
        return lives(self.events)

    def _tell(self) -> None:
        """Show what is new to whoever looks on."""
        if self._live is not None:
            self._live.show(self.events)


def lives(events: Iterable[Event]) -> tuple[SeedLife, ...]:
    """The seeds of an episode: a life begins with GERMINATED, and ends with FOSSILIZED or PRUNED if it does."""
    found: list[SeedLife] = []
    growing: dict[str, int] = {}
    for event in events:
        match event:
            case StageChanged(epoch, slot, _, Stage.GERMINATED):
                growing[slot] = len(found)
                found.append(SeedLife(slot, None, epoch, None, Stage.GERMINATED.name))
            case StageChanged(epoch, slot, _, after) if slot in growing:
                over = after in ENDS
                at = growing.pop(slot) if over else growing[slot]
                found[at] = replace(found[at], stage=after.name, ended=epoch if over else None)
            case DecisionMade(epoch, "GERMINATE", slot) if slot in growing and not event.refused:
                at = growing[slot]
                found[at] = replace(found[at], blueprint=event.blueprint)
    return tuple(found)


def describe(
    epoch: int, codec: ActionCodec, decision: Decision, forced: bool, refused: tuple[str, ...]
) -> DecisionMade:
    """A decision in words, with the probabilities of all heads that had a choice."""
    acted = decision.acted
    return decision_made(
        epoch,
        codec,
        decision.choices,
        forced=forced,
        refused=refused,
        value=None if acted is None else acted.values.item(),
        probabilities=None if acted is None else _probabilities(acted, codec),
    )


def _probabilities(acted: Acted, codec: ActionCodec) -> dict[str, tuple[float, ...]]:
    rows = [row for level in acted.distributions for row in level[0]]
    return {
        head.value: tuple(round(number, 4) for number in row.exp()[:size].tolist())
        for head, size, row, free in zip(Head, codec.sizes, rows, acted.free[0].tolist(), strict=True)
        if free
    }
