"""Numbers of an exam with their intervals."""

import itertools
import math
import random
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from esper.runs.exam.row import ExamRow
from esper.runs.exam.statistics import (
    Bootstrap,
    Estimate,
    PolicyNotPlayed,
    Quantity,
    UnmatchedPairs,
    compare,
    estimate,
    interquartile_mean,
    measures,
    paired_difference,
    pareto_front,
    points_per_thousand_parameters,
    probability_of_improvement,
    summarise_policies,
)
from tests.runs.exam.rows import made_row, made_rows

QUICK = Bootstrap(seed=0, resamples=199)
ACCURACY = measures(rent=0.1)[Quantity.ACCURACY]
accuracies = st.lists(st.integers(0, 1000).map(lambda each: each / 1000), min_size=2, max_size=12)
two_policies = st.integers(2, 12).flatmap(
    lambda size: st.tuples(*[st.lists(st.floats(0, 1), min_size=size, max_size=size)] * 2)
)


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_mean_and_interquartile_mean_are_those_made_by_hand():
    rows = made_rows(learned=[0.1, 0.2, 0.3, 0.8])
    found = summarise_policies(rows, rent=0.1, bootstrap=QUICK)["learned"]
    assert found[Quantity.ACCURACY].mean.value == pytest.approx(0.35)
    assert found[Quantity.ACCURACY].iqm.value == pytest.approx(0.25)
    assert found[Quantity.SCORE].mean.value == pytest.approx(0.35 - 0.1 * math.log(2))
    assert found[Quantity.AREA].mean.value == pytest.approx(0.175)
    assert {metric: found[metric].mean.value for metric in list(Quantity)[3:]} == {
        Quantity.GROWTH: 2.0,
        Quantity.TRAINING_FLOPS: 200_000.0,
        Quantity.INFERENCE_FLOPS: 400.0,
        Quantity.PARAMETERS: 200.0,
    }


@pytest.mark.parametrize(("size", "kept"), [(1, [0]), (3, [0, 1, 2]), (4, [1, 2]), (7, range(1, 6)), (8, range(2, 6))])
def test_interquartile_mean_drops_whole_values_only(size, kept):
    values = np.arange(size) ** 2.0
    assert interquartile_mean(values) == pytest.approx(np.mean([values[each] for each in kept]))


def test_interval_holds_percentiles_of_all_possible_resamples():
    values = [0.0, 0.1, 0.5, 0.6, 0.65]
    exact = np.percentile([np.mean(each) for each in itertools.product(values, repeat=5)], [2.5, 97.5])
    found = estimate(np.mean, values, ["toy"] * 5, Bootstrap(resamples=9_999))
    assert (found.low, found.high) == pytest.approx(tuple(exact), abs=0.011)


def test_interval_does_not_read_or_move_the_global_generators():
    def found():
        return estimate(interquartile_mean, [0.1, 0.5, 0.9, 0.2], ["toy"] * 4, QUICK)

    np.random.seed(1)
    random.seed(1)
    before = np.random.get_state()[1].copy(), random.getstate()
    first = found()
    assert (np.random.get_state()[1] == before[0]).all()
    assert random.getstate() == before[1]
    np.random.seed(2)
    assert found() == first
    other_seed = estimate(interquartile_mean, [0.1, 0.5, 0.9, 0.2], ["toy"] * 4, Bootstrap(1, 20))
    assert other_seed != first


def test_a_large_sample_is_resampled_in_pieces():
    values = np.random.default_rng(0).normal(size=5_000)
    found = estimate(np.mean, values, ["toy"] * 5_000, Bootstrap(resamples=999))
    assert found.high - found.low == pytest.approx(2 * 1.96 / math.sqrt(5_000), rel=0.15)


def test_one_seed_gives_a_point_and_says_so():
    found = summarise_policies(made_rows(learned=[0.4]), rent=0.1, bootstrap=QUICK)["learned"][Quantity.ACCURACY]
    assert found.mean == found.iqm == Estimate(0.4, 0.4, 0.4, count=1, is_point=True)
    assert not found.mean.is_clear_of_zero


def test_equal_values_give_an_interval_without_width_that_is_no_point():
    found = summarise_policies(made_rows(learned=[0.1] * 7), rent=0.1, bootstrap=QUICK)["learned"]
    for summary in found.values():
        for each in (summary.mean, summary.iqm):
            assert each.low == each.value == each.high
            assert not each.is_point
            assert math.isfinite(each.value)


def test_a_policy_without_growth_has_growth_one_and_its_accuracy_as_score():
    rows = [made_row("none", seed, accuracy, parameters=100) for seed, accuracy in enumerate([0.1, 0.3])]
    found = summarise_policies(rows, rent=0.5, bootstrap=QUICK)["none"]
    assert found[Quantity.GROWTH].mean == Estimate(1.0, 1.0, 1.0, count=2)
    assert found[Quantity.SCORE] == found[Quantity.ACCURACY]


def test_tasks_are_resampled_each_by_itself():
    apart = made_rows("easy", learned=[0.9] * 5) + made_rows("hard", learned=[0.1] * 5)
    found = summarise_policies(apart, rent=0.1, bootstrap=QUICK)["learned"][Quantity.ACCURACY].mean
    assert found.low == found.high == found.value == pytest.approx(0.5)
    pooled = estimate(np.mean, [0.9] * 5 + [0.1] * 5, ["one"] * 10, QUICK)
    assert pooled.high - pooled.low > 0.3


def test_a_task_with_one_seed_keeps_it_in_every_resample():
    found = estimate(np.mean, [0.0, 1.0, 0.5], ["two", "two", "one"], QUICK)
    assert (found.low, found.value, found.high) == pytest.approx((0.5 / 3, 0.5, 2.5 / 3))
    alone = estimate(np.mean, [0.0, 1.0], ["one", "other"], QUICK)
    assert alone == Estimate(0.5, 0.5, 0.5, count=2, is_point=True)


@given(values=accuracies, shift=st.integers(-64, 64))
def test_translation_moves_value_and_interval_alike(values, shift):
    for statistic in (np.mean, interquartile_mean):
        here = estimate(statistic, values, ["toy"] * len(values), QUICK)
        there = estimate(statistic, [each + shift for each in values], ["toy"] * len(values), QUICK)
        moved = (here.value + shift, here.low + shift, here.high + shift)
        assert (there.value, there.low, there.high) == pytest.approx(moved, abs=1e-9)


@given(values=accuracies)
def test_interval_lies_within_the_values_and_around_the_mean(values):
    found = estimate(np.mean, values, ["toy"] * len(values), QUICK)
    assert min(values) - 1e-12 <= found.low <= found.high <= max(values) + 1e-12
    assert found.low <= found.value + 1e-12


@given(values=accuracies)
def test_a_policy_differs_from_itself_by_exactly_nothing(values):
    rows = made_rows(learned=values)
    found = compare(rows, "learned", "learned", rent=0.1, bootstrap=QUICK)
    zero = Estimate(0.0, 0.0, 0.0, count=len(values))
    assert found.accuracy == found.score == zero
    assert found.more_accurate.value == found.better_score.value == 0.5


@given(two_policies)
def test_probabilities_of_improvement_of_both_sides_make_one(values):
    rows = made_rows(learned=values[0], random=values[1])
    there = probability_of_improvement(rows, "learned", "random", ACCURACY)
    back = probability_of_improvement(rows, "random", "learned", ACCURACY)
    assert there.value + back.value == pytest.approx(1)
    assert (there.low, there.high) == pytest.approx((1 - back.high, 1 - back.low))
    assert 0 <= there.low <= there.value <= there.high <= 1


@given(two_policies)
def test_differences_of_both_sides_are_opposite(values):
    rows = made_rows(learned=values[0], random=values[1])
    there = paired_difference(rows, "learned", "random", ACCURACY, QUICK)
    back = paired_difference(rows, "random", "learned", ACCURACY, QUICK)
    assert (there.value, there.low, there.high) == pytest.approx((-back.value, -back.high, -back.low), abs=1e-9)


@settings(max_examples=15)
@given(two_policies, st.randoms(use_true_random=False))
def test_order_of_rows_changes_nothing(values, shuffler):
    rows = made_rows("toy", learned=values[0], random=values[1]) + made_rows("game", learned=[0.1], random=[0.4])
    mixed = list(rows)
    shuffler.shuffle(mixed)
    assert summarise_policies(mixed, 0.1, QUICK) == summarise_policies(rows, 0.1, QUICK)
    assert compare(mixed, "learned", "random", 0.1, QUICK) == compare(rows, "learned", "random", 0.1, QUICK)


def test_pairs_are_of_one_task_and_seed():
    rows = [
        *made_rows("toy", learned=[0.5, 0.7], random=[0.4, 0.2]),
        *made_rows("game", learned=[0.2], random=[0.3]),
    ]
    found = paired_difference(rows, "learned", "random", ACCURACY, QUICK)
    assert found.value == pytest.approx((0.1 + 0.5 - 0.1) / 3)
    assert found.count == 3
    assert probability_of_improvement(rows, "learned", "random", ACCURACY).value == pytest.approx(2 / 3)


def test_pairing_makes_the_interval_narrower_than_the_spread_of_the_seeds():
    seeds = np.random.default_rng(0).uniform(0.1, 0.8, size=30)
    rows = made_rows(learned=seeds + 0.02 + 0.001 * np.arange(30) / 30, random=seeds)
    found = compare(rows, "learned", "random", rent=0.1, bootstrap=QUICK).accuracy
    assert 0.02 < found.low < found.high < 0.021
    assert found.is_clear_of_zero


def test_a_tie_counts_half():
    rows = made_rows(learned=[0.5, 0.5, 0.9, 0.1], random=[0.5, 0.5, 0.2, 0.2])
    assert probability_of_improvement(rows, "learned", "random", ACCURACY).value == 0.5
    rows = made_rows(learned=[0.5, 0.9], random=[0.5, 0.2])
    assert probability_of_improvement(rows, "learned", "random", ACCURACY).value == 0.75


@pytest.mark.parametrize(("wins", "count"), [(0, 1), (1, 1), (3, 5), (50, 50), (0, 50), (17, 40)])
def test_interval_of_the_probability_is_wilsons(wins, count):
    rows = made_rows(learned=[0.5] * count, random=[0.4] * wins + [0.6] * (count - wins))
    found = probability_of_improvement(rows, "learned", "random", ACCURACY)
    known = stats.binomtest(wins, count).proportion_ci(method="wilson")
    assert (found.value, found.low, found.high) == pytest.approx((wins / count, known.low, known.high))
    assert found.low < found.high


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            made_rows(learned=[0.1, 0.2], random=[0.1]),
            "1 of their rows stand alone.*seed 1 of task 'toy'.*'random' lacks",
        ),
        (made_rows(learned=[0.1], random=[0.1, 0.2]), "seed 1 of task 'toy', which 'random' has and 'learned' lacks"),
        ([*made_rows("a", learned=[0.1]), *made_rows("b", random=[0.1])], "2 of their rows stand alone"),
        ([*made_rows(learned=[0.1]) * 2, *made_rows(random=[0.1])], "'learned' has more than one row for seed 0"),
    ],
)
def test_rows_that_are_no_pairs_are_refused(rows, message):
    with pytest.raises(UnmatchedPairs, match=message):
        paired_difference(rows, "learned", "random", ACCURACY, QUICK)
    with pytest.raises(UnmatchedPairs, match=message):
        probability_of_improvement(rows, "learned", "random", ACCURACY)


def test_a_policy_that_did_not_play_is_named_with_the_nearest():
    with pytest.raises(PolicyNotPlayed, match=r"no row is of policy 'lerned'; did you mean 'learned'\?"):
        compare(made_rows(learned=[0.1]), "learned", "lerned", 0.1, QUICK)


def test_points_are_counted_per_thousand_parameters_that_were_added():
    rows = [
        made_row("none", 0, 0.1, parameters=100),
        made_row("none", 1, 0.2, parameters=100),
        made_row("learned", 0, 0.5, parameters=600),
        made_row("learned", 1, 0.4, parameters=1600),
        made_row("pruner", 0, 0.3, parameters=100),
        made_row("pruner", 1, 0.2, parameters=90),
    ]
    assert points_per_thousand_parameters(rows, "learned", "none") == pytest.approx(100 * 0.6 / 2)
    assert points_per_thousand_parameters(rows, "none", "none") is None
    assert points_per_thousand_parameters(rows, "pruner", "none") is None


@pytest.mark.parametrize(
    ("costs", "values", "front"),
    [
        ([], [], ()),
        ([5], [0.1], (0,)),
        ([1, 2, 3], [0.3, 0.2, 0.1], (0,)),
        ([3, 2, 1], [0.3, 0.2, 0.1], (2, 1, 0)),
        ([1, 1], [0.5, 0.6], (1,)),
        ([1, 2], [0.5, 0.5], (0,)),
        ([1, 1, 2], [0.5, 0.5, 0.4], (0, 1)),
        ([1, 2, 3, 4, 4], [0.1, 0.5, 0.4, 0.9, 0.9], (0, 1, 3, 4)),
    ],
)
def test_front_of_points_made_by_hand(costs, values, front):
    assert pareto_front(costs, values) == front


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=15))
def test_every_point_is_on_the_front_or_behind_one_that_is(points):
    costs, values = zip(*points, strict=True)
    front = pareto_front(costs, values)
    assert front
    for index, (cost, value) in enumerate(points):
        better = [
            each for each in front if costs[each] <= cost and values[each] >= value and points[each] != points[index]
        ]
        assert bool(better) != (index in front)


@given(two_policies)
def test_every_number_is_finite(values):
    rows = made_rows(learned=values[0], random=values[1])
    for summaries in summarise_policies(rows, 0.1, QUICK).values():
        for summary in summaries.values():
            for each in (summary.mean, summary.iqm):
                assert all(map(math.isfinite, (each.value, each.low, each.high)))


@pytest.mark.parametrize("statistic", [np.mean, interquartile_mean])
def test_interval_holds_the_truth_in_about_95_of_100_cases(statistic):
    generator, held, times = np.random.default_rng(5), 0, 300
    for _ in range(times):
        found = estimate(statistic, generator.normal(0.5, 0.1, size=40), ["toy"] * 40, Bootstrap(0, 399))
        held += found.low <= 0.5 <= found.high
    assert 0.90 <= held / times <= 0.99


def test_every_metric_reads_a_row():
    row: ExamRow = made_row(accuracy=0.5, parameters=300)
    read = {metric: measure(row) for metric, measure in measures(rent=0.2).items()}
    assert read == {
        Quantity.ACCURACY: 0.5,
        Quantity.SCORE: row.score(0.2),
        Quantity.AREA: 0.25,
        Quantity.GROWTH: 3.0,
        Quantity.TRAINING_FLOPS: 300_000.0,
        Quantity.INFERENCE_FLOPS: 600.0,
        Quantity.PARAMETERS: 300.0,
    }
