"""Which parameters an optimiser has: always the host's and those of the seeds that are present, never others."""

from collections.abc import Sequence
from typing import Any

from torch.optim import Optimizer

from esper.growth.slot import Slot

SLOT_KEY = "esper_slot"
"""The key in a parameter group that names the slot whose seed it holds."""


class Membership:
    """Keeps one parameter group per present seed, behind the host's groups and in slot order.

    The fixed order makes an optimiser's `state_dict` fit any body whose slots are in the same state.
    """

    def __init__(self, optimizer: Optimizer, slots: Sequence[Slot], **options: Any) -> None:
        self.optimizer = optimizer
        self._slots = slots
        self._options = options
        self.sync()

    def sync(self) -> None:
        """Add the newborn, drop the gone with their momentum, leave everybody else's state alone."""
        groups = self.optimizer.param_groups
        seeds = {group[SLOT_KEY]: group for group in groups if SLOT_KEY in group}
        before = {parameter for group in seeds.values() for parameter in group["params"]}
        groups[:] = [group for group in groups if SLOT_KEY not in group]
        for slot in self._slots:
            if slot.seed is None:
                continue
            if slot.id in seeds:
                groups.append({**seeds[slot.id], "params": slot.seed_parameters})
            else:
                self.optimizer.add_param_group({"params": slot.seed_parameters, SLOT_KEY: slot.id, **self._options})
        present = {parameter for slot in self._slots for parameter in slot.seed_parameters}
        for parameter in before - present:
            self.optimizer.state.pop(parameter, None)
