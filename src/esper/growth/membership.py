"""Which parameters an optimiser has: always the host's and those of the seeds that are present, never others."""

from collections.abc import Sequence
from typing import Any

from torch import nn
from torch.optim import Optimizer

from esper.growth.slot import Slot

SLOT_KEY = "esper_slot"
"""The key in a parameter group that names the slot whose seed it holds."""


class Membership:
    """Adds newborn seeds to an optimiser and drops those that are gone, with their momentum.

    Without options seeds join the optimiser's last group, so that whatever schedules its learning rate goes on as
    before. With options (a learning rate of their own, say) each seed has a group of its own behind the host's.
    Seeds stand in slot order, so an optimiser's `state_dict` fits any body whose slots are in the same state.
    """

    def __init__(self, optimizer: Optimizer, slots: Sequence[Slot], **options: Any) -> None:
        self.optimizer = optimizer
        self._slots = slots
        self._options = options
        self._seeds: list[nn.Parameter] = []
        self.sync()

    def sync(self) -> None:
        """Make the optimiser's parameters the live ones; the state of everybody who stays is left alone."""
        seeds = [parameter for slot in self._slots for parameter in slot.seed_parameters]
        if self._options:
            self._give_groups()
        else:
            group = self.optimizer.param_groups[-1]
            gone = set(self._seeds)
            group["params"][:] = [parameter for parameter in group["params"] if parameter not in gone] + seeds
        for parameter in set(self._seeds) - set(seeds):
            self.optimizer.state.pop(parameter, None)
        self._seeds = seeds

    def _give_groups(self) -> None:
        groups = self.optimizer.param_groups
        before = {group[SLOT_KEY]: group for group in groups if SLOT_KEY in group}
        groups[:] = [group for group in groups if SLOT_KEY not in group]
        for slot in self._slots:
            if slot.seed is None:
                continue
            if slot.id in before:
                groups.append({**before[slot.id], "params": slot.seed_parameters})
            else:
                self.optimizer.add_param_group({"params": slot.seed_parameters, SLOT_KEY: slot.id, **self._options})
