"""What a gardener could do: the places, what each blueprint would cost there, and what was left out."""

from dataclasses import dataclass

from esper.contracts import SlotId
from esper.gardener.budget import Budget
from esper.growth import Cost


@dataclass(frozen=True)
class PlannedPlace:
    """A place with the shape of its features in the example, and the cost of each blueprint in it.

    Costs are parameters, and operations of a forward pass of one sample, with the gate that a seed may get.
    """

    slot: SlotId
    topology: str
    shape: tuple[int, ...]
    costs: dict[str, Cost]


@dataclass(frozen=True)
class GrowthPlan:
    """Prints as a table. `left_out` has the reasons by the names of submodules."""

    host: Cost
    places: tuple[PlannedPlace, ...]
    budget: Budget
    left_out: dict[str, str]

    def __str__(self) -> str:
        lines = [f"{self.host.parameters:,} parameters, {self.host.flops:,} operations per sample; places to grow:"]
        for place in self.places:
            lines.append(f"  {place.slot}: {place.topology} features {' x '.join(map(str, place.shape))}")
            lines += [f"    {name:<12} {self._cost(cost)}" for name, cost in place.costs.items()]
        lines += [f"  not {name}: {why}" for name, why in self.left_out.items()]
        return "\n".join(lines)

    def _cost(self, cost: Cost) -> str:
        beyond = "" if self.budget.holds(cost) else "  (beyond the budget)"
        return f"+{cost.parameters:,} parameters, +{cost.flops:,} operations{beyond}"
