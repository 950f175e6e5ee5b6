"""Numbers with their intervals."""

import itertools
import math
import random
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from esper.runs.exam.statistics import (
    Bootstrap,
    Estimate,
    PolicyNotPlayed,
    UnmatchedPairs,
    estimate,
    interquartile_mean,
    pairs_of,
    rows_of,
    share_above_zero,
)
from tests.runs.exam.rows import made_rows

QUICK = Bootstrap(resamples=199)
qualities = st.lists(st.integers(0, 1000).map(lambda each: each / 1000), min_size=2, max_size=12)


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def of_one_task(statistic, values, bootstrap=QUICK):
    return estimate(statistic, values, ["toy"] * len(values), bootstrap)


def test_interquartile_mean_drops_whole_values_only():
    for size, kept in [(1, [0]), (3, [0, 1, 2]), (4, [1, 2]), (7, range(1, 6)), (8, range(2, 6))]:
        values = np.arange(size) ** 2.0
        assert interquartile_mean(values) == pytest.approx(np.mean([values[each] for each in kept]))


def test_interval_holds_percentiles_of_all_possible_resamples():
    values = [0.0, 0.1, 0.5, 0.6, 0.65]
    exact = np.percentile([np.mean(each) for each in itertools.product(values, repeat=5)], [2.5, 97.5])
    found = of_one_task(np.mean, values, Bootstrap())
    assert (found.low, found.high) == pytest.approx(tuple(exact), abs=0.011)


def test_interval_holds_the_truth_in_about_95_of_100_cases():
    generator, held, times = np.random.default_rng(5), 0, 200
    for _ in range(times):
        found = of_one_task(interquartile_mean, generator.normal(0.5, 0.1, size=40))
        held += found.low <= 0.5 <= found.high
    assert 0.90 <= held / times <= 0.99


def test_interval_does_not_read_or_move_the_global_generators():
    values = [0.1, 0.5, 0.9, 0.2]
    np.random.seed(1)
    random.seed(1)
    before = np.random.get_state()[1].copy(), random.getstate()
    first = of_one_task(interquartile_mean, values)
    assert (np.random.get_state()[1] == before[0]).all()
    assert random.getstate() == before[1]
    np.random.seed(2)
    assert of_one_task(interquartile_mean, values) == first
    assert of_one_task(interquartile_mean, values, Bootstrap(1, 20)) != first


def test_a_large_sample_is_resampled_in_pieces():
    values = np.random.default_rng(0).normal(size=5_000)
    found = of_one_task(np.mean, values, Bootstrap(resamples=999))
    assert found.high - found.low == pytest.approx(2 * 1.96 / math.sqrt(5_000), rel=0.15)


def test_one_seed_gives_a_point_that_is_clear_of_nothing():
    found = of_one_task(np.mean, [0.4])
    assert found == Estimate(0.4, 0.4, 0.4, count=1, is_point=True)
    assert not found.is_clear_of_zero


def test_equal_values_give_an_interval_without_width_that_is_no_point():
    assert of_one_task(interquartile_mean, [0.25] * 7) == Estimate(0.25, 0.25, 0.25, count=7)


def test_tasks_are_resampled_each_by_itself():
    values = [0.9] * 5 + [0.1] * 5
    found = estimate(np.mean, values, ["easy"] * 5 + ["hard"] * 5, QUICK)
    assert found.low == found.high == found.value == pytest.approx(0.5)
    pooled = of_one_task(np.mean, values)
    assert pooled.high - pooled.low > 0.3


def test_a_task_with_one_seed_keeps_it_in_every_resample():
    found = estimate(np.mean, [0.0, 1.0, 0.5], ["two", "two", "one"], QUICK)
    assert (found.low, found.value, found.high) == pytest.approx((0.5 / 3, 0.5, 2.5 / 3))
    alone = estimate(np.mean, [0.0, 1.0], ["one", "other"], QUICK)
    assert alone == Estimate(0.5, 0.5, 0.5, count=2, is_point=True)


@settings(max_examples=25)
@given(values=qualities, shift=st.integers(-64, 64))
def test_translation_moves_value_and_interval_alike(values, shift):
    for statistic in (np.mean, interquartile_mean):
        here, there = (of_one_task(statistic, each) for each in (values, [value + shift for value in values]))
        moved = (here.value + shift, here.low + shift, here.high + shift)
        assert (there.value, there.low, there.high) == pytest.approx(moved, abs=1e-9)


@settings(max_examples=25)
@given(values=qualities)
def test_interval_lies_within_the_values_and_around_the_mean(values):
    found = of_one_task(np.mean, values)
    assert min(values) - 1e-12 <= found.low <= found.high <= max(values) + 1e-12
    assert found.low <= found.value + 1e-12


@given(values=st.lists(st.floats(-1, 1), min_size=1, max_size=12))
def test_shares_above_and_below_zero_make_one(values):
    above, below = share_above_zero(values), share_above_zero([-each for each in values])
    assert above.value + below.value == pytest.approx(1)
    assert (above.low, above.high) == pytest.approx((1 - below.high, 1 - below.low))
    assert 0 <= above.low <= above.value <= above.high <= 1


def test_a_difference_of_zero_counts_half():
    assert share_above_zero([0.0, 0.0, 0.7, -0.1]).value == 0.5
    assert share_above_zero([0.0, 0.7]).value == 0.75


def test_interval_of_the_share_is_wilsons():
    for wins, count in [(0, 1), (1, 1), (3, 5), (50, 50), (0, 50), (17, 40)]:
        found = share_above_zero([0.1] * wins + [-0.1] * (count - wins))
        known = stats.binomtest(wins, count).proportion_ci(method="wilson")
        assert (found.value, found.low, found.high) == pytest.approx((wins / count, known.low, known.high))
        assert found.low < found.high


def test_pairs_are_of_one_task_and_seed_whatever_the_order_of_the_rows():
    rows = made_rows("toy", learned=[0.5, 0.7], random=[0.4, 0.2]) + made_rows("game", learned=[0.2], random=[0.3])
    random.Random(3).shuffle(rows)
    pairs = pairs_of(rows, "learned", "random")
    assert [(one.task, one.seed, one.quality, other.quality) for one, other in pairs] == [
        ("game", 0, 0.2, 0.3),
        ("toy", 0, 0.5, 0.4),
        ("toy", 1, 0.7, 0.2),
    ]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            made_rows(learned=[0.1, 0.2], random=[0.1]),
            "1 of their rows stand alone.*seed 1 of task 'toy'.*'random' lacks",
        ),
        (made_rows(learned=[0.1], random=[0.1, 0.2]), "seed 1 of task 'toy', which 'random' has and 'learned' lacks"),
        ([*made_rows("a", learned=[0.1]), *made_rows("b", random=[0.1])], "2 of their rows stand alone"),
    ],
)
def test_rows_that_are_no_pairs_are_refused(rows, message):
    with pytest.raises(UnmatchedPairs, match=message):
        pairs_of(rows, "learned", "random")


def test_a_policy_that_did_not_play_is_named_with_the_nearest():
    with pytest.raises(PolicyNotPlayed, match=r"no row is of policy 'lerned'; did you mean 'learned'\?"):
        rows_of(made_rows(learned=[0.1]), "lerned")
