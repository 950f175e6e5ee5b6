"""How much may be added: what would exceed it is not offered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from esper.contracts import Operator, SlotId, SlotSnapshot
from esper.growth import Body, Cost, find_blueprint, newborn_cost

Offers = Mapping[SlotId, Mapping[str, Cost]]
"""What each blueprint costs in each slot, the gate that a seed may get included."""


def offers_of(body: Body) -> dict[SlotId, dict[str, Cost]]:
    """The costs of all seeds that could be planted."""
    return {
        slot.id: {
            name: newborn_cost(find_blueprint(name, slot.site.topology), slot.site, Operator.GATE)
            for name in slot.site.blueprints
        }
        for slot in body.slots
    }


@dataclass(frozen=True)
class Budget:
    """The most that all seeds together may add; None for as much as you like. Operations are those of one sample."""

    parameters: int | None
    flops: int | None

    def narrowed(self, slots: Sequence[SlotSnapshot], offers: Offers) -> tuple[SlotSnapshot, ...]:
        """The same slots, in which what is too expensive now cannot germinate."""
        spent = Cost(0, 0)
        for slot in slots:
            spent += offers[slot.slot][slot.blueprint] if slot.blueprint else Cost(0, 0)
        return tuple(
            replace(
                slot, blueprints=tuple(name for name in slot.blueprints if self.holds(spent + offers[slot.slot][name]))
            )
            for slot in slots
        )

    def holds(self, cost: Cost) -> bool:
        """Whether so much may be added."""
        within_parameters = self.parameters is None or cost.parameters <= self.parameters
        return within_parameters and (self.flops is None or cost.flops <= self.flops)
