"""A second look: the usual seed is planted at once, and kept only if that is predicted to pay once it can be."""

from dataclasses import dataclass, replace

import torch

from esper.contracts import Action, ActionCodec, ObservationFields, Op
from esper.controller.constant import ConstantByRent
from esper.controller.gain_networks import GainNetworks, inputs_of, measured
from esper.controller.planting import Planted, Planting, PlantingState
from esper.controller.policy import Arrays, Decision, decision_for, rent_in, size_in
from esper.controller.ranker import Ranker


@dataclass(frozen=True)
class SeedKeeper(Planting):
    """Plants before the first epoch what `constant` plants, and does as the ranker does where that plants nothing.

    By when the seed can be kept, a fifth of the horizon has gone by and shown more than any look at the host alone: it
    is fossilised if the gain predicted of it exceeds its rent, and pruned otherwise.
    """

    networks: GainNetworks
    """They predict what a seed that lives will have gained in the end."""
    ranker: Ranker
    name: str = "keeper"

    @property
    def fields(self) -> ObservationFields:
        return self.ranker.fields

    def usual(self, observation: Arrays, codec: ActionCodec) -> Planted:
        """What `constant` plants; empty where it plants nothing."""
        return ConstantByRent(self.fields).decide(observation, codec, epoch=0) or ()

    def decide(self, observation: Arrays, codec: ActionCodec, epoch: int) -> Planted | None:
        return self.usual(observation, codec) or self.ranker.decide(observation, codec, epoch)

    def act(
        self, observation: Arrays, state: PlantingState, generator: torch.Generator
    ) -> tuple[Decision, PlantingState]:
        decision, after = super().act(observation, state, generator)
        action = state.codec.decode(decision.choices)
        if action.op is not Op.FOSSILIZE or after.planted != self.usual(observation, state.codec):
            return decision, after
        assert action.slot is not None
        if self.worth(observation, state.codec.slots.index(action.slot)) > 0:
            return decision, after
        return decision_for(Action(Op.PRUNE, action.slot), state.codec), replace(after, planted=())

    def worth(self, observation: Arrays, slot: int) -> float:
        """What keeping the seed of that slot is predicted to bring: its gain in quality less its rent."""
        rent = rent_in(observation, self.fields) * size_in(observation, slot, self.fields)
        return self.gain(observation, slot) - rent

    def gain(self, observation: Arrays, slot: int) -> float:
        """What the seed of that slot is predicted to gain in quality."""
        (gain,) = self.networks.predict(inputs_of(measured(observation), self.networks.names, self.fields)[slot, :1])
        return float(gain)
