"""An episode told in events: what was decided, what it brought, and what probes saw along the way."""

from collections.abc import Mapping
from typing import Any

from esper.contracts import ActionCodec, Event, Head
from esper.controller import Decision
from esper.environment import GrowEnv, Probe
from esper.rl import Acted, MemoryState
from esper.telemetry import (
    DecisionMade,
    GradientCollector,
    GradientsSeen,
    RewardPaid,
    RolledBack,
    decision_made,
    memory_figures,
)


class EpisodeRecorder:
    """A sink that keeps an episode's events, and turns decisions, rewards and what a probe sees into events."""

    def __init__(self, detailed: bool = False) -> None:
        self.events: list[Event] = []
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
        self.write(RewardPaid(epoch, reward, terms, info["quality"], info["loss"], growth, contributions))
        if self._detailed:
            self.write(GradientsSeen(epoch, self._gradients.figures()))
            self._gradients = GradientCollector()
        if info["panic"] is not None:
            self.write(RolledBack(epoch, info["panic"]))


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
