"""A body: a host with slots. Every change to it goes through `execute` and `tick`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from itertools import product
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from esper.checked import checked
from esper.contracts import (
    RULES,
    Action,
    AlphaRetargeted,
    Check,
    EsperError,
    Gain,
    Op,
    OperationRefused,
    Sink,
    SlotId,
    SlotSnapshot,
    Stage,
    StageChanged,
    Topology,
    Verdict,
    nearest,
)
from esper.growth import coalitions, gates, harvest
from esper.growth.accounting import Cost, Costs, costs_of, count_layers
from esper.growth.attachment import detach
from esper.growth.averages import Average
from esper.growth.blueprints import find_blueprint
from esper.growth.checkpoint import check_fits, states_of
from esper.growth.coalitions import Coalition
from esper.growth.first_order import MEASURED_AFTER, SETTLING_EPOCHS
from esper.growth.gates import Thresholds
from esper.growth.harvest import Fossil
from esper.growth.lifecycle import Plan, SlotState
from esper.growth.membership import Membership
from esper.growth.persistence import encode_slot
from esper.growth.proof import Example, first_difference, outputs
from esper.growth.slot import Slot


class UnknownSlot(EsperError):
    """No slot of that name."""


class HarvestDiffers(EsperError):
    """A plain network cannot be made of this body."""


class NotMeasurable(EsperError):
    """Contributions cannot be told from what was evaluated."""


class Body(nn.Module):
    """The host as `host`, with `slots` inside it, in the order in which they were named to `graft`.

    Calling the body calls the host. `epoch` counts ticks.
    """

    def __init__(
        self,
        host: nn.Module,
        slots: Sequence[Slot],
        host_cost: Cost,
        thresholds: Thresholds,
        generator: torch.Generator,
        sink: Sink,
        example: Example,
    ) -> None:  # `graft` makes it
        super().__init__()
        self.host = host
        self.slots = tuple(slots)
        self.execution_order = tuple(slot.id for slot in sorted(slots, key=lambda slot: slot.site.position))
        self.thresholds = thresholds
        self.epoch = 0
        self.quality: float | None = None
        """Of the live network when it was last evaluated."""
        self.sink = sink
        self._slots = {slot.id: slot for slot in slots}
        self._host_cost = host_cost
        self.host_depth = count_layers(host)
        self._generator = generator
        self._example = example
        self._membership: Membership | None = None
        self._changed: int | None = None
        """The epoch in which a seed last came or went."""
        self._averages: list[Average] = []

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.host(*args, **kwargs)

    # Reading

    def slot(self, name: SlotId) -> Slot:
        if name not in self._slots:
            raise UnknownSlot(f"no slot '{name}'; {nearest(name, self._slots)}")
        return self._slots[name]

    def snapshots(self) -> tuple[SlotSnapshot, ...]:
        """One frozen picture per slot, in slot order."""
        return tuple(self._snapshot(slot) for slot in self._slots.values())

    def _snapshot(self, slot: Slot) -> SlotSnapshot:
        seen = slot.snapshot(self.quality)
        return replace(seen, ready=gates.ready(seen, self.thresholds))

    @property
    def host_parameters(self) -> int:
        return self._host_cost.parameters

    def host_weights(self) -> list[nn.Parameter]:
        """The parameters of the host, without those of seeds."""
        seeds = {id(parameter) for slot in self.slots for parameter in slot.seed_parameters}
        return [parameter for parameter in self.host.parameters() if id(parameter) not in seeds]

    def costs(self) -> Costs:
        """Parameters and forward operations of host, seeds, the live and the kept network."""
        return costs_of(self._host_cost, self._slots.values(), {fossil.slot for fossil in self.delivered()})

    def living(self) -> list[Slot]:
        """The slots that hold a seed, fossils included."""
        return [slot for slot in self._slots.values() if slot.seed is not None]

    def blended(self) -> Coalition:
        """The slots whose seeds show in the output: alpha is above 0."""
        return frozenset(slot.id for slot in self._slots.values() if slot.alpha > 0.0)

    # Changing

    def judge(self, action: Action) -> Verdict:
        """Whether `action` would be executed now, and why. Changes nothing."""
        if action.slot is None:
            return Verdict((Check("nothing to do", action.op is Op.WAIT),))
        if action.slot not in self._slots:
            return Verdict((Check(f"no slot '{action.slot}'; {nearest(action.slot, self._slots)}", False),))
        return gates.judge(action, self._slots[action.slot].snapshot(self.quality), self.thresholds)

    def execute(self, action: Action) -> Verdict:
        """Execute `action` if it is legal and its gate lets it pass; else change nothing. Never raises for either."""
        verdict = self.judge(action)
        if not verdict:
            self.sink.write(OperationRefused(self.epoch, action.op.name, action.slot, verdict.reasons))
        elif action.op is not Op.WAIT:
            slot = self.slot(str(action.slot))
            state = _NEXT[action.op](slot.state, action, slot.site.topology)
            if action.op is Op.GERMINATE:
                state = replace(state, quality_at_birth=self.quality)
            self._become(slot, state, verdict.reasons)
        return verdict

    def tick(self) -> None:
        """One epoch has passed: publish its measurements, then age stages, alpha ramps and cooling, once."""
        self.epoch += 1
        for slot in self._slots.values():
            slot.publish_epoch()
            self._become(slot, slot.state.ticked(self.thresholds))

    def uproot(self) -> None:
        """Remove every seed that is not a fossil, whatever its stage, without ramp or gate."""
        for slot in self._slots.values():
            if Stage.PRUNED in RULES[slot.state.stage].may_become:
                self._become(slot, SlotState(Stage.PRUNED), ("uprooted",))

    def _become(self, slot: Slot, state: SlotState, reasons: tuple[str, ...] = ()) -> None:
        before, seed = slot.state, slot.seed
        slot.become(state, self._generator)
        if slot.seed is not seed:
            self._changed = self.epoch
        if self._membership is not None and slot.seed is not seed:
            self._membership.sync()
        for average in self._averages:
            average.follow(slot)
        if state.stage is not before.stage:
            self.sink.write(StageChanged(self.epoch, slot.id, before.stage, state.stage, reasons))
        if state.schedule.target != before.schedule.target and state.plan is not None:
            schedule = state.schedule
            self.sink.write(AlphaRetargeted(self.epoch, slot.id, schedule.start, schedule.target, schedule.ticks))

    # Training

    def optimise_with(self, optimizer: Optimizer, **seed_options: Any) -> None:
        """Let seeds join the optimiser when they germinate and leave it when removed.

        Every slot gets a group of its own now, like the one that has the submodule's weights but for `seed_options`
        such as `lr`. Any scheduler works, if it is made after this.
        """
        weights = {slot.id: self.host.get_submodule(slot.id).parameters() for slot in self.slots}
        self._membership = Membership(optimizer, self.slots, weights, **seed_options)

    def average_with(self, averaged: nn.Module) -> None:
        """Let seeds join an average of the model when they germinate and leave it when removed.

        `averaged` is an `AveragedModel`, or anything else that holds a copy of the model.
        """
        self._averages.append(Average(averaged, self.slots))

    def record_gradients(self) -> None:
        """Note the seeds' gradient norms; call it before the optimiser's step, after a gradient scaler's `unscale_`.

        A gradient that was not finite, but did no harm because its step was skipped, is left out.
        """
        for slot in self._slots.values():
            slot.record_gradients()

    def watch_gains(self) -> None:
        """Where it is due, let the training passes of this epoch tell what newborns would gain in empty slots.

        Call it before the epoch; the next tick publishes what was seen.
        """
        settled = self._changed is not None and self.epoch + 1 == self._changed + SETTLING_EPOCHS
        due = settled or self.epoch + 1 in MEASURED_AFTER
        for slot in self._slots.values():
            slot.meter.armed = slot.seed is None and (due or not slot.gains)

    def record_qualities(self, table: Mapping[Coalition, float]) -> None:
        """Note what the network is worth with some of its seeds left out, for each coalition that was evaluated.

        All seeds on must be among them. A seed contributes what the network loses without it; where that was not
        evaluated, its contribution is not measured.
        """
        everyone = self.blended()
        if everyone not in table:
            raise NotMeasurable(
                f"no quality was given for {sorted(everyone)}, all seeds that are there; evaluate the live network too"
            )
        self.quality = table[everyone]
        for slot in self.living():
            without = table.get(everyone - {slot.id})
            slot.state = replace(slot.state, contribution=None if without is None else self.quality - without)

    def record_anomaly(self, name: SlotId, what: str) -> None:
        """Note that something is wrong with this seed in this epoch."""
        self.slot(name).record_anomaly(what)

    # Counterfactuals and results

    def only(self, coalition: Iterable[SlotId]) -> AbstractContextManager[None]:
        """While this lasts, only the seeds of these slots are in the forward pass."""
        return coalitions.only(list(self._slots.values()), frozenset(coalition))

    def coalition_outputs(self, wanted: Iterable[Iterable[SlotId]], *args: Any, **kwargs: Any) -> dict[Coalition, Any]:
        """The output under each coalition of blended seeds, in evaluation mode and without touching state."""
        return coalitions.coalition_outputs(self.host, list(self._slots.values()), wanted, *args, **kwargs)

    def delivered(self) -> tuple[Fossil, ...]:
        """What `harvest()` builds in: the fossils, and the held seeds that their gate would let become fossils now.

        `plant` builds the same architecture into another host.
        """
        return harvest.fossils_of(slot for slot in self._slots.values() if self._snapshot(slot).delivered)

    def ungraft(self) -> nn.Module:
        """The host as it was grafted: the same object without slots, with the weights that it has now.

        All seeds, fossils too, are gone from it, from its optimiser and from its averages, and the body has no slots.
        """
        for slot in self.slots:
            slot.become(SlotState(), self._generator)
            detach(self.host.get_submodule(slot.id))
        if self._membership is not None:
            self._membership.sync()
        for average in self._averages:
            average.ungraft()
        self.slots, self.execution_order, self._slots = (), (), {}
        return self.host

    def harvest(self) -> nn.Module:
        """A plain copy of the host with what is `delivered()` built in and all other seeds left out.

        It puts out on the example what the body puts out with those seeds alone, to the last bit and in every mode, or
        `HarvestDiffers` is raised.
        """
        delivered = self.delivered()
        plain = harvest.harvest(self.host, self.slots, delivered)
        with self.only(fossil.slot for fossil in delivered):
            mode = first_difference(outputs(self.host, self._example), outputs(plain, self._example))
        if mode is not None:
            raise HarvestDiffers(f"the harvested network puts out something else in {mode}; keep the body instead")
        return plain

    # Saving and loading

    def get_extra_state(self) -> dict[str, Any]:
        slots = [encode_slot(slot.id, slot.state) for slot in self.slots]
        return {
            "epoch": self.epoch,
            "quality": self.quality,
            "generator": self._generator.get_state(),
            "slots": slots,
            "changed": self._changed,
            "gains": {slot.id: list(map(asdict, slot.gains)) for slot in self.slots},
        }

    def set_extra_state(self, saved: Any) -> None:
        self.epoch, self.quality = saved["epoch"], saved["quality"]
        self._generator.set_state(saved["generator"])
        self._changed = saved.get("changed")
        gains = saved.get("gains", {})
        for slot in self.slots:
            slot.gains = tuple(checked(Gain, each) for each in gains.get(slot.id, ()))

    def take_shape(self, extra_state: Any) -> None:
        """Grow and remove seeds as `get_extra_state` says it was; their weights are for the model's own state to bring.

        A state that does not fit changes nothing.
        """
        for slot, state in zip(self.slots, states_of(extra_state, self.slots), strict=True):
            slot.become(state, torch.Generator())
        self.set_extra_state(extra_state)
        self._sync()

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Take over a body saved in any stage; seeds are grown as needed. A state that does not fit changes nothing."""
        for slot, state in zip(self.slots, check_fits(state_dict, self.host, self.slots), strict=True):
            slot.become(state, torch.Generator())
        result = super().load_state_dict(state_dict, strict, assign)
        self._sync()
        return result

    def _sync(self) -> None:
        """Let optimiser and averages have the seeds that are there."""
        if self._membership is not None:
            self._membership.sync()
        for average, slot in product(self._averages, self.slots):
            average.follow(slot)


def _germinate(state: SlotState, action: Action, topology: Topology) -> SlotState:
    blueprint = find_blueprint(str(action.blueprint), topology)
    plan = Plan(blueprint.name, action.style, action.tempo, action.alpha_target)
    return state.germinated(plan, blueprint.birth)


def _set_alpha_target(state: SlotState, action: Action, topology: Topology) -> SlotState:
    return state.retargeted(action.alpha_target, int(action.alpha_speed), action.alpha_curve, action.style)


def _prune(state: SlotState, action: Action, topology: Topology) -> SlotState:
    return state.pruned(int(action.alpha_speed), action.alpha_curve)


_NEXT: dict[Op, Callable[[SlotState, Action, Topology], SlotState]] = {
    Op.GERMINATE: _germinate,
    Op.ADVANCE: lambda state, action, topology: state.advanced(),
    Op.SET_ALPHA_TARGET: _set_alpha_target,
    Op.PRUNE: _prune,
    Op.FOSSILIZE: lambda state, action, topology: state.fossilized(),
}
"""What each op makes of a slot's state."""
