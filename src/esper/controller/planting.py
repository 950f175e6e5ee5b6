"""Policies that decide once what to plant, and then see it through as fast as the gates allow."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch

from esper.contracts import WAIT, ActionCodec, SlotId
from esper.controller.policy import Arrays, Decision, decision_for, legal_ops
from esper.controller.schedule import Schedule, ScheduledSeed

Planted = tuple[tuple[SlotId, str], ...]
"""Slots, and the blueprint for each."""


@dataclass(frozen=True)
class PlantingState:
    """Where an episode stands: the epoch of the next decision, and what was decided to plant; None before that."""

    codec: ActionCodec
    epoch: int = 0
    planted: Planted | None = None


class Planting(ABC):
    """What to plant is for others to say."""

    name: str

    def start(self, codec: ActionCodec) -> PlantingState:
        return PlantingState(codec)

    @abstractmethod
    def decide(self, observation: Arrays, codec: ActionCodec, epoch: int) -> Planted | None:
        """What to plant, perhaps nothing; None to look on for another epoch."""

    def act(
        self, observation: Arrays, state: PlantingState, generator: torch.Generator
    ) -> tuple[Decision, PlantingState]:
        """The next step of what was decided; nothing is drawn."""
        codec, epoch = state.codec, state.epoch
        planted = self.decide(observation, codec, epoch) if state.planted is None else state.planted
        action = WAIT
        if planted:
            plan = Schedule(tuple(ScheduledSeed(0, slot, blueprint) for slot, blueprint in planted))
            action = plan.choose(codec.slots, legal_ops(observation), epoch)
        return decision_for(action, codec), replace(state, epoch=epoch + 1, planted=planted)
