"""Which parameters an optimiser has: always the host's and those of the seeds that are present, never others."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from esper.contracts import EsperError, SlotId
from esper.growth.slot import Slot

NAMES_KEY = "param_names"
"""The key in a parameter group that names its parameters, if the optimiser was given names."""
SLOTS_KEY = "esper_slots"
"""The key in a parameter group that names the slots whose seeds it holds."""


class SchedulerFirst(EsperError):
    """A learning-rate scheduler was made before the optimiser had the groups of the slots."""


class Membership:
    """Adds newborn seeds to an optimiser and drops those that are gone, with their momentum.

    Seeds have groups of their own from the start, empty while there is none: schedulers that keep a list per group
    would fail with groups that come later, or treat them wrongly. Such a group is like the one that has most of the
    weights around the slot, but for the given options. Slots that are alike in this share one, since optimisers spend
    time on empty groups as well.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        slots: Sequence[Slot],
        around: Mapping[SlotId, Iterable[Iterable[nn.Parameter]]],
        **options: Any,
    ) -> None:
        """`around` has the parameters of the submodule in front of each slot, then those of what that is in."""
        if any("initial_lr" in group for group in optimizer.param_groups):
            raise SchedulerFirst(
                "the optimiser has a learning-rate scheduler already, which would miss the slots' parameter groups; "
                "make the scheduler after the call of optimise_with, or after the gardener"
            )
        self.optimizer, self._slots = optimizer, slots
        like = {slot.id: _group_of(around[slot.id], optimizer) for slot in slots}
        for group in [group for group in optimizer.param_groups if any(each is group for each in like.values())]:
            names: dict[str, list[str]] = {} if NAMES_KEY not in group else {NAMES_KEY: []}
            here = [name for name, each in like.items() if each is group]
            optimizer.add_param_group({**group, **options, **names, "params": [], SLOTS_KEY: here})
        self.sync()

    def sync(self) -> None:
        """Make the optimiser's parameters the live ones; the state of everybody who stays is left alone."""
        seeds = {slot.id: slot.seed_parameters for slot in self._slots}
        living = {parameter for parameters in seeds.values() for parameter in parameters}
        for group in self.optimizer.param_groups:
            before = group["params"]
            kept = [parameter for parameter in before if parameter not in living]
            now = [parameter for slot in group[SLOTS_KEY] for parameter in seeds[slot]] if SLOTS_KEY in group else kept
            for parameter in set(before) - set(now) - living:
                self.optimizer.state.pop(parameter, None)
            group["params"][:] = now
            if SLOTS_KEY in group and NAMES_KEY in group:
                group[NAMES_KEY] = [f"{slot}.{index}" for slot in group[SLOTS_KEY] for index in range(len(seeds[slot]))]
            self._begin_momentum(now)

    def _begin_momentum(self, parameters: Sequence[nn.Parameter]) -> None:
        """Fused SGD refuses a group of which only some have momentum: zeros begin alike. Others remember more."""
        state = self.optimizer.state
        moving = [parameter for parameter in parameters if _only_moves(state.get(parameter, {}))]
        for parameter in parameters if moving else ():
            state[parameter].setdefault("momentum_buffer", torch.zeros_like(parameter))


def _only_moves(remembered: Mapping[str, Any]) -> bool:
    return list(remembered) == ["momentum_buffer"] and remembered["momentum_buffer"] is not None


def _group_of(around: Iterable[Iterable[nn.Parameter]], optimizer: Optimizer) -> Mapping[str, Any]:
    """The group that has most of the first weights of which any group has some."""
    groups: Sequence[Mapping[str, Any]] = optimizer.param_groups
    for weights in around:
        wanted = {id(parameter) for parameter in weights}
        shares = [sum(each.numel() for each in group["params"] if id(each) in wanted) for group in groups]
        if any(shares):
            return groups[shares.index(max(shares))]
    return groups[-1]
