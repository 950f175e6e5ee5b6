"""What an exam found, as numbers."""

import json
import math
import random
from dataclasses import replace

import numpy as np
import pytest

from esper.runs.exam import BadExam, Terms, exam_summary
from esper.runs.exam.statistics import Bootstrap, Estimate, PolicyNotPlayed, UnmatchedPairs
from esper.runs.exam.summary import compare, summarise
from tests.runs.exam.rows import at_rent, made_row, made_rows

TERMS = Terms(at_rent(0.1), "learned", bootstrap=Bootstrap(resamples=200))


def of_policies(rows, terms=TERMS):
    (section,) = summarise(rows, terms).tasks
    return {each.policy: each for each in section.policies}


def grown(policy, seed, accuracy, parameters):
    return made_row(policy, seed, accuracy, parameters=parameters)


def test_every_number_of_a_policy_is_that_made_by_hand():
    found = of_policies(made_rows(learned=[0.1, 0.2, 0.3, 0.8]))["learned"]
    assert found.accuracy.value == pytest.approx(0.35)
    assert found.iqm.value == pytest.approx(0.25)
    assert found.score.value == pytest.approx(0.35 - 0.1 * math.log(2))
    assert found.area == pytest.approx(0.175)
    assert (found.growth, found.parameters.value, found.training_flops.value) == (2.0, 200.0, 200_000.0)
    assert (found.inference_flops, found.rollbacks, found.seconds) == (400.0, 0, 1.5)
    assert (found.points_per_thousand, found.relative_training_flops) == (None, None)


def test_a_policy_without_growth_has_growth_one_and_its_accuracy_as_score():
    rows = [grown("none", seed, accuracy, 100) for seed, accuracy in enumerate([0.1, 0.3])]
    found = of_policies(rows, replace(TERMS, reference="none"))["none"]
    assert (found.growth, found.score, found.relative_training_flops) == (1.0, found.accuracy, 1.0)


def test_points_are_counted_per_thousand_parameters_that_were_added_to_the_control():
    rows = [grown("none", 0, 0.1, 100), grown("none", 1, 0.2, 100)]
    rows += [grown("learned", 0, 0.5, 600), grown("learned", 1, 0.4, 1600)]
    rows += [grown("pruner", 0, 0.3, 100), grown("pruner", 1, 0.2, 90)]
    found = of_policies(rows)
    assert found["learned"].points_per_thousand == pytest.approx(100 * 0.6 / 2)
    assert found["learned"].relative_training_flops == 11.0
    assert found["none"].points_per_thousand is found["pruner"].points_per_thousand is None


def test_pairing_makes_the_interval_narrower_than_the_spread_of_the_seeds():
    seeds = np.random.default_rng(0).uniform(0.1, 0.8, size=30).tolist()
    rows = made_rows(learned=[each + 0.02 + 0.001 * place / 30 for place, each in enumerate(seeds)], random=seeds)
    found = compare(rows, TERMS, "random")
    assert 0.02 < found.accuracy.low < found.accuracy.high < 0.021
    assert found.accuracy.is_clear_of_zero
    assert found.more_accurate.value == 1.0
    same = compare(rows, TERMS, "learned")
    assert same.accuracy == same.score == Estimate(0.0, 0.0, 0.0, count=30)


def test_order_of_rows_changes_no_number():
    rows = made_rows("toy", learned=[0.5, 0.7, 0.1], random=[0.4, 0.2, 0.9])
    mixed = [*rows[3:], *rows[:3]]
    random.Random(1).shuffle(mixed)
    before, after = of_policies(rows), of_policies(mixed)
    assert before == after
    assert compare(rows, TERMS, "random") == compare(mixed, TERMS, "random")


def two_tasks(**accuracies):
    """The second task is as the first, on a scale a tenth as wide."""
    easy = made_rows("easy", **accuracies)
    return easy + [replace(row, task="hard", accuracy=0.3 + row.accuracy / 10) for row in easy]


def pooled(rows, terms=TERMS):
    return {each.policy: each for each in summarise(rows, terms).together.policies}


def test_all_tasks_together_count_alike_after_each_is_normalised():
    rows = two_tasks(none=[0.1, 0.2, 0.3, 0.2], other=[0.3, 0.4, 0.5, 0.4], learned=[0.5, 0.6, 0.7, 0.6])
    found = pooled(rows)
    assert found["none"].iqm.value == pytest.approx(0.0)
    assert found["other"].iqm.value == pytest.approx(0.5)
    assert found["learned"].iqm.value == pytest.approx(1.0)
    assert found["learned"].iqm.count == 8
    assert found["learned"].iqm.low < 1.0 < found["learned"].iqm.high
    assert found["learned"].accuracy.value == pytest.approx((0.6 + 0.36) / 2), "means stay as they were measured"


def test_nothing_is_normalised_without_a_control_or_without_a_gain():
    grown_only = two_tasks(other=[0.3, 0.4], learned=[0.5, 0.6])
    assert all(each.iqm is None for each in pooled(grown_only).values())
    no_gain = two_tasks(none=[0.5, 0.6], learned=[0.5, 0.6])
    assert all(each.iqm is None for each in pooled(no_gain).values())
    control_on_one = [
        row for row in two_tasks(none=[0.1, 0.2], learned=[0.5, 0.6]) if row.task + row.policy != "hardnone"
    ]
    assert [each.iqm for each in pooled(control_on_one).values()] == [None]
    assert of_policies(made_rows(learned=[0.5, 0.6]))["learned"].iqm.value == pytest.approx(0.55)


def test_a_summary_is_what_json_can_hold():
    rows = two_tasks(none=[0.1, 0.2], learned=[0.5, 0.6])
    found = json.loads(json.dumps(exam_summary(rows, TERMS), allow_nan=False))
    assert [each["title"] for each in found["tasks"]] == ["easy", "hard"]
    (none, learned) = found["tasks"][0]["policies"]
    assert (none["policy"], learned["policy"]) == ("none", "learned")
    assert learned["accuracy"]["low"] <= learned["accuracy"]["value"] == pytest.approx(0.55)
    (difference,) = found["together"]["differences"]
    assert (difference["against"], difference["accuracy"]["count"]) == ("none", 4)
    assert found["terms"]["reference"] == "learned"


ROWS = made_rows(none=[0.1, 0.2], learned=[0.5, 0.6])


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ([], BadExam, "there are no rows"),
        (ROWS[:-1], UnmatchedPairs, "seed 1 of task 'toy', which 'none' has and 'learned' lacks"),
        ([*ROWS, ROWS[0]], BadExam, "'none' has 2 rows for seed 0 of task 'toy'"),
        (ROWS[:2], PolicyNotPlayed, "no row of task 'toy' is of the reference policy 'learned'; known: none"),
        ([*ROWS, made_row("none", 9, 0.5, "game")], PolicyNotPlayed, "no row of task 'game' is of the reference"),
        ([made_row(accuracy=1.5)], BadExam, "row 1 cannot be of an exam: Expected `float` <= 1.0"),
    ],
)
def test_rows_that_cannot_be_judged_are_refused(rows, error, message):
    with pytest.raises(error, match=message):
        summarise(rows, TERMS)


def test_a_rent_that_is_no_number_is_refused():
    with pytest.raises(BadExam, match="the rent of task 'toy' must be finite, and is nan"):
        summarise(ROWS, replace(TERMS, rents=at_rent(float("nan"))))
