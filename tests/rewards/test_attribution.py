"""Attribution by its axioms, on random games."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esper.rewards import IncompleteTable, NotAPair, contribution, gain, interaction, shapley, shares

SEEDS = "abcde"
qualities = st.floats(0.0, 1.0)


def subsets(seeds):
    return [frozenset(some) for size in range(len(seeds) + 1) for some in itertools.combinations(seeds, size)]


def tables_of(seeds):
    coalitions = subsets(seeds)
    values = st.lists(qualities, min_size=len(coalitions), max_size=len(coalitions))
    return values.map(lambda drawn: dict(zip(coalitions, drawn, strict=True)))


games = st.integers(1, 5).flatmap(lambda size: tables_of(SEEDS[:size]))
effects = st.dictionaries(st.sampled_from(SEEDS), st.floats(-1.0, 1.0), min_size=2)


def additive(effect, host=0.3):
    return {coalition: host + sum(effect[seed] for seed in coalition) for coalition in subsets(sorted(effect))}


def without_pairs(table):
    """All on, all off, and all but one: what is evaluated of large coalitions."""
    full = max(table, key=len)
    return {coalition: table[coalition] for coalition in table if len(coalition) in {0, len(full) - 1, len(full)}}


def close(left, right):
    return math.isclose(left, right, abs_tol=1e-9)


def by_orders(table):
    """Shapley values by their definition: the mean marginal gain over all orders."""
    full = sorted(max(table, key=len))
    totals = dict.fromkeys(full, 0.0)
    orders = list(itertools.permutations(full))
    for order in orders:
        for place, seed in enumerate(order):
            totals[seed] += table[frozenset(order[: place + 1])] - table[frozenset(order[:place])]
    return {seed: total / len(orders) for seed, total in totals.items()}


@given(games)
def test_shapley_values_are_mean_marginal_gains_over_all_orders(table):
    values, expected = shapley(table), by_orders(table)
    assert values.keys() == expected.keys()
    assert all(close(values[seed], expected[seed]) for seed in expected)


@given(games)
def test_shapley_values_and_shares_sum_to_full_minus_empty(table):
    whole = table[max(table, key=len)] - table[frozenset()]
    assert gain(table) == whole
    assert close(sum(shapley(table).values()), whole)
    assert close(sum(shares(table).values()), whole)
    assert close(sum(shares(without_pairs(table)).values()), whole)


@given(games)
def test_seeds_that_do_the_same_get_the_same(table):
    sizes = {coalition: table[frozenset(SEEDS[: len(coalition)])] for coalition in table}
    for values in (shapley(sizes), shares(without_pairs(sizes))):
        assert max(values.values()) - min(values.values()) < 1e-9


@given(games)
def test_seed_that_changes_nothing_gets_nothing(table):
    with_dummy = {coalition | extra: table[coalition] for coalition in table for extra in (set(), {"dummy"})}
    assert close(shapley(with_dummy)["dummy"], 0.0)
    assert contribution(with_dummy, "dummy") == 0.0
    for seed in max(table, key=len):
        assert close(interaction(with_dummy, seed, "dummy"), 0.0)


@given(st.integers(1, 5).flatmap(lambda size: st.tuples(tables_of(SEEDS[:size]), tables_of(SEEDS[:size]))))
def test_values_of_a_sum_of_games_are_the_sums_of_their_values(pair):
    first, second = pair
    both = {coalition: first[coalition] + second[coalition] for coalition in first}
    for solve in (shapley, lambda table: shares(without_pairs(table))):
        one, two, sums = solve(first), solve(second), solve(both)
        assert all(close(sums[seed], one[seed] + two[seed]) for seed in sums)


@given(effects)
def test_in_an_additive_game_everybody_gets_his_own_effect_and_nothing_interacts(effect):
    table = additive(effect)
    for seed, own in effect.items():
        assert close(contribution(table, seed), own)
        assert close(shapley(table)[seed], own)
        assert close(shares(without_pairs(table))[seed], own)
    for first, second in itertools.combinations(effect, 2):
        assert close(interaction(table, first, second), 0.0)


@given(tables_of("ab"))
def test_two_seeds_share_alike_with_and_without_the_middle_of_the_table(table):
    one, both = shapley(table), shares(without_pairs(table))
    assert all(close(one[seed], both[seed]) for seed in "ab")


@given(st.integers(2, 5).flatmap(lambda size: tables_of(SEEDS[:size])))
def test_interaction_is_what_the_presence_of_one_changes_in_the_value_of_the_other(table):
    with_b = {coalition - {"b"}: value for coalition, value in table.items() if "b" in coalition}
    without_b = {coalition: value for coalition, value in table.items() if "b" not in coalition}
    assert close(interaction(table, "a", "b"), shapley(with_b)["a"] - shapley(without_b)["a"])
    assert close(interaction(table, "a", "b"), interaction(table, "b", "a"))


def test_interaction_tells_complements_from_substitutes():
    need = {coalition: float(coalition >= {"a", "b"}) for coalition in subsets("abc")}
    either = {coalition: float(bool(coalition & {"a", "b"})) for coalition in subsets("abc")}
    assert interaction(need, "a", "b") == pytest.approx(1.0)
    assert interaction(either, "a", "b") == pytest.approx(-1.0)


def test_seed_outside_the_full_coalition_is_not_measured():
    """R4-M18."""
    table = {frozenset(): 0.2, frozenset("a"): 0.5}
    assert contribution(table, "b") is None
    assert interaction(table, "a", "b") is None
    assert contribution({frozenset(): 0.2, frozenset("a"): 0.2}, "a") == 0.0
    assert shapley({frozenset(): 0.2}) == {}
    assert shares({frozenset(): 0.2}) == {}


@pytest.mark.parametrize(
    ("ask", "missing"),
    [
        (lambda table: shapley(table), r"lacks \{a\}, \{b\}, \{c\};"),
        (lambda table: interaction(table, "a", "b"), r"lacks \{a\}, \{b\}, \{c\};"),
    ],
)
def test_incomplete_table_is_refused_with_what_it_lacks(ask, missing):
    table = without_pairs(additive({"a": 0.1, "b": 0.2, "c": 0.3}))
    with pytest.raises(IncompleteTable, match=missing):
        ask(table)


def test_partial_tables_name_the_coalition_that_a_question_needs():
    with pytest.raises(IncompleteTable, match=r"lacks \{\}"):
        gain({frozenset("ab"): 0.5})
    with pytest.raises(IncompleteTable, match=r"lacks \{b\}"):
        contribution({frozenset("ab"): 0.5}, "a")
    with pytest.raises(IncompleteTable, match=r"lacks \{a, b\}, the coalition of all"):
        gain({frozenset("a"): 0.5, frozenset("b"): 0.5, frozenset(): 0.1})
    with pytest.raises(IncompleteTable, match="empty"):
        gain({})
    table = without_pairs(additive(dict.fromkeys("abcdefgh", 0.1)))
    with pytest.raises(IncompleteTable, match="and 242 more"):
        shapley(table)


def test_a_seed_does_not_interact_with_itself():
    with pytest.raises(NotAPair, match="'a' was given twice"):
        interaction(additive({"a": 0.1, "b": 0.1}), "a", "a")
