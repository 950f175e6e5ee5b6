"""Who brought how much: pure functions of one coalition table.

A table maps sets of seeds, named by their slots, to the evaluation quality (a fraction) of the network with exactly
these seeds on. Its largest coalition is the full one: every seed that shows in the output.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import combinations
from math import comb
from typing import TypeAlias

from esper.contracts import EsperError, SlotId

Table: TypeAlias = Mapping[frozenset[SlotId], float]


class IncompleteTable(EsperError):
    """A coalition that is needed was not evaluated."""


class NotAPair(EsperError):
    """An interaction was asked for between a seed and itself."""


def full_coalition(table: Table) -> frozenset[SlotId]:
    """All seeds on."""
    full = max(table, key=len, default=None)
    if full is None:
        raise IncompleteTable("the table is empty; evaluate at least the network with all its seeds on")
    together = frozenset().union(*table)
    if together != full:
        raise IncompleteTable(f"the table lacks {_named(together)}, the coalition of all its seeds; evaluate that too")
    return full


def contribution(table: Table, seed: SlotId) -> float | None:
    """What the full network loses without this seed; None if the seed does not show in it, as at alpha 0.

    >>> contribution({frozenset(): 0.2, frozenset({"stem"}): 0.5}, "stem")
    0.3
    >>> contribution({frozenset(): 0.2}, "stem") is None
    True
    """
    full = full_coalition(table)
    if seed not in full:
        return None
    return _quality(table, full) - _quality(table, full - {seed})


def gain(table: Table) -> float:
    """What all seeds together bring: all on minus all off."""
    return _quality(table, full_coalition(table)) - _quality(table, frozenset())


def interaction(table: Table, first: SlotId, second: SlotId) -> float | None:
    """What two seeds bring together beyond what each brings alone, averaged as for Shapley values over the others.

    Positive if they need each other, negative if one can stand in for the other, zero if their effects add up;
    None if either does not show in the full network. Needs every coalition.
    """
    if first == second:
        raise NotAPair(f"'{first}' was given twice; name two different seeds")
    full = full_coalition(table)
    if not {first, second} <= full:
        return None
    others = full - {first, second}
    _require(table, _subsets(full))
    return sum(
        (table[rest | {first, second}] - table[rest | {first}] - table[rest | {second}] + table[rest])
        / ((len(others) + 1) * comb(len(others), len(rest)))
        for rest in _subsets(others)
    )


def shapley(table: Table) -> dict[SlotId, float]:
    """Each seed's mean marginal gain over all orders of switching the seeds on. They sum to `gain(table)`.

    Needs every coalition.
    """
    full = full_coalition(table)
    _require(table, _subsets(full))
    values = dict.fromkeys(sorted(full), 0.0)
    for coalition in _subsets(full):
        weight = 1.0 / (len(full) * comb(len(full) - 1, len(coalition))) if coalition != full else 0.0
        for seed in full - coalition:
            values[seed] += weight * (table[coalition | {seed}] - table[coalition])
    return values


def shares(table: Table) -> dict[SlotId, float]:
    """The gain of all seeds together, divided among them: `shapley` if every coalition was evaluated.

    Otherwise each has its contribution, and what the contributions leave over (or claim too much) is split evenly,
    which is the Shapley value of two seeds and of any additive game. Either way the shares sum to `gain(table)`.
    """
    full = full_coalition(table)
    if len(table) == 2 ** len(full):
        return shapley(table)
    whole = _quality(table, full)
    removal = {seed: whole - _quality(table, full - {seed}) for seed in sorted(full)}
    rest = (gain(table) - sum(removal.values())) / len(full)
    return {seed: cost + rest for seed, cost in removal.items()}


def _quality(table: Table, coalition: frozenset[SlotId]) -> float:
    _require(table, (coalition,))
    return table[coalition]


def _require(table: Table, coalitions: Iterator[frozenset[SlotId]] | tuple[frozenset[SlotId], ...]) -> None:
    missing = [coalition for coalition in coalitions if coalition not in table]
    if missing:
        shown = ", ".join(_named(coalition) for coalition in missing[:4])
        more = f" and {len(missing) - 4} more" if len(missing) > 4 else ""
        raise IncompleteTable(f"the table lacks {shown}{more}; evaluate these coalitions too")


def _named(coalition: Collection[SlotId]) -> str:
    return "{" + ", ".join(sorted(coalition)) + "}"


def _subsets(seeds: Collection[SlotId]) -> Iterator[frozenset[SlotId]]:
    for size in range(len(seeds) + 1):
        yield from map(frozenset, combinations(sorted(seeds), size))
