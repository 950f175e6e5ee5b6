"""The bar for learned controllers: plant once what a regression predicts to be best, if it pays."""

from dataclasses import dataclass

import numpy as np

from esper.contracts import ActionCodec, ObservationFields
from esper.controller.constant import ConstantByRent
from esper.controller.features import places
from esper.controller.gain_networks import GainNetworks, Table, inputs_of, measured
from esper.controller.planting import Planted, Planting
from esper.controller.policy import Arrays, rent_in

LOOKS = 1
"""Epochs of the host alone, at most, before the decision: by then gradients that newborns would get are known."""
GAIN = "gain_push"
"""A number that is there when those gradients have been measured."""
LEAD = 0.03
"""Quality by which another seed must be predicted to gain more than the usual one, if that pays: of many predictions
the highest is the one that flatters most."""


@dataclass(frozen=True)
class Ranker(Planting):
    """Plants the seed whose predicted gain in quality exceeds its rent by most; nothing if none does.

    The seed that `constant` plants at this rent has a lead, if it pays. It decides as soon as first-order gains are
    measured, and after one epoch in any case.
    """

    networks: GainNetworks
    fields: ObservationFields
    name: str = "ranker"

    def decide(self, observation: Arrays, codec: ActionCodec, epoch: int) -> Planted | None:
        if epoch < LOOKS and not self.has_gains(observation):
            return None
        worths = self.worths(observation, codec)
        slot, blueprint = np.unravel_index(int(np.argmax(worths)), worths.shape)
        return ((codec.slots[slot], codec.blueprints[blueprint]),) if worths[slot, blueprint] > 0 else ()

    def has_gains(self, observation: Arrays) -> bool:
        """Whether it is known of any seed what a newborn would gain."""
        at = places(self.fields.blueprints, [GAIN])[GAIN]
        return bool(observation["blueprints_valid"][..., at].any())

    def worths(self, observation: Arrays, codec: ActionCodec) -> Table:
        """What each seed is worth to it, (slots, blueprints): the predicted gain in quality less rent, and the lead.

        Minus infinity for what does not fit.
        """
        arrays = measured(observation)
        gains = self.networks.predict(inputs_of(arrays, self.networks.names, self.fields))
        cost = arrays["blueprints"][..., places(self.fields.blueprints, ["cost"])["cost"]]
        paid: Table = gains - rent_in(observation, self.fields) * cost
        worths: Table = np.where(observation["mask_slot_blueprint"] == 1, paid, -np.inf)
        for slot, blueprint in ConstantByRent(self.fields).decide(observation, codec, epoch=0) or ():
            usual = codec.slots.index(slot), codec.blueprints.index(blueprint)
            worths[usual] += LEAD * (worths[usual] > 0)
        return worths
