"""The bar for learned controllers: plant once what a regression predicts to be best, if it pays."""

from dataclasses import dataclass

import numpy as np

from esper.contracts import ActionCodec, ObservationFields
from esper.controller.features import places
from esper.controller.gain_networks import GainNetworks, inputs_of, measured
from esper.controller.planting import Planted, Planting
from esper.controller.policy import Arrays, rent_in

LOOKS = 1
"""Epochs of the host alone before the decision: by then it has shown the gradients that newborns would get."""


@dataclass(frozen=True)
class Ranker(Planting):
    """Plants the seed whose predicted gain in quality exceeds its rent by most; nothing if none does."""

    networks: GainNetworks
    fields: ObservationFields
    name: str = "ranker"

    def decide(self, observation: Arrays, codec: ActionCodec, epoch: int) -> Planted | None:
        if epoch < LOOKS:
            return None
        arrays = measured(observation)
        gains = self.networks.predict(inputs_of(arrays, self.networks.names, self.fields))
        cost = arrays["blueprints"][..., places(self.fields.blueprints, ["cost"])["cost"]]
        paid = np.where(
            observation["mask_slot_blueprint"] == 1, gains - rent_in(observation, self.fields) * cost, -np.inf
        )
        slot, blueprint = np.unravel_index(int(np.argmax(paid)), paid.shape)
        return ((codec.slots[slot], codec.blueprints[blueprint]),) if paid[slot, blueprint] > 0 else ()
