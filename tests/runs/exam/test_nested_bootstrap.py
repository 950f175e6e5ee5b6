"""Means over tasks and seeds, resampled in two levels."""

import numpy as np
import pytest

from esper.runs.exam.nested_bootstrap import LEAST_TASKS, means
from esper.runs.exam.statistics import Bootstrap

QUICK = Bootstrap(resamples=199)


def normal(tasks, seeds, between=0.1, within=0.1, seed=0):
    random = np.random.default_rng(seed)
    return random.normal(0.5, between, (tasks, 1)) + random.normal(0.0, within, (tasks, seeds))


def mean(table, bootstrap=QUICK):
    return means({"it": table}, bootstrap)["it"]


def test_resamples_are_those_of_drawing_tasks_and_then_seeds_of_each():
    table = np.array([[0.0, 0.4], [1.0, 1.0], [0.3, 0.9], [0.2, 0.2], [0.7, 0.1]])
    found = mean(table, Bootstrap(resamples=40_000))
    random, plain = np.random.default_rng(9), []
    for _ in range(10_000):
        drawn = [table[task, random.integers(2, size=2)].mean() for task in random.integers(5, size=5)]
        plain.append(np.mean(drawn))
    assert found.value == pytest.approx(table.mean())
    for share in (0.025, 0.25, 0.5, 0.75, 0.975):
        assert np.quantile(found.draws, share) == pytest.approx(np.quantile(plain, share), abs=0.012)


def test_their_spread_is_that_of_tasks_and_of_seeds_within_them():
    table = normal(12, 3)
    exact = (table.mean(axis=1).var() + table.var(axis=1).mean() / 3) / 12
    assert mean(table, Bootstrap(resamples=20_000)).draws.var() == pytest.approx(exact, rel=0.05)


def test_the_interval_holds_the_truth_of_other_tasks_in_about_95_of_100_cases():
    times = 200
    found = [mean(normal(40, 2, seed=seed)).estimate() for seed in range(times)]
    assert 0.90 <= sum(each.low <= 0.5 <= each.high for each in found) / times <= 0.99


def test_a_difference_that_is_the_same_everywhere_has_an_interval_without_width():
    table = normal(8, 2)
    both = means({"one": table + 0.25, "other": table}, QUICK)
    found = (both["one"] - both["other"]).estimate()
    assert (found.low, found.value, found.high) == pytest.approx((0.25, 0.25, 0.25))


def test_differences_and_ratios_of_means_are_those_of_every_resample():
    tables = {"one": normal(7, 2, seed=1), "other": normal(7, 2, seed=2)}
    both, apart = means(tables, QUICK), {name: mean(table) for name, table in tables.items()}
    assert all(both[name].draws == pytest.approx(apart[name].draws) for name in tables)
    difference = both["one"] - both["other"]
    assert difference.draws == pytest.approx(mean(tables["one"] - tables["other"]).draws)
    half = mean(tables["one"] / 2) / both["one"]
    assert (half.estimate().low, half.value, half.estimate().high) == pytest.approx((0.5, 0.5, 0.5))


def test_few_tasks_have_no_interval():
    assert mean(normal(LEAST_TASKS - 1, 9)).estimate().is_point
    assert not mean(normal(LEAST_TASKS, 1)).estimate().is_point


def test_many_rows_are_resampled_in_pieces_of_one_sequence():
    found = mean(normal(3_000, 2), Bootstrap(resamples=1_500))
    assert len(found.draws) == len(set(found.draws)) == 1_500
    assert found.draws.std() == pytest.approx(np.sqrt((0.01 + 0.01 / 2 + 0.01 / 4) / 3_000), rel=0.15)
