"""What an exam of families found, on rows and surveys that were never played."""

import json

import pytest

from esper.runs.exam import Terms, deciding_summary
from esper.runs.exam.deciding import summarise_families, summarise_family
from esper.runs.exam.deciding_figure import GainFigure, spread
from esper.runs.exam.deciding_report import page_of
from esper.runs.exam.statistics import Bootstrap, PolicyNotPlayed, UnmatchedPairs
from tests.runs.exam.rows import made_row
from tests.runs.exam.surveys import SURE, made_tasks

FAMILY = "family:small-exam"
NAMES = [f"{FAMILY}/{number}" for number in range(6)]
DENSE = {"family:small-exam/2", "family:small-exam/3"}
TERMS = Terms("good", Bootstrap(resamples=99))


def rows_with(**gains):
    """No growth at 0.5, and policies by what they gain on each task and seed; nothing has grown but in `dear`."""
    return [
        made_row(policy, seed, 0.5 + gain(task), task, parameters=200 if policy == "dear" else 100)
        for policy, gain in {"none": lambda task: 0.0, **gains}.items()
        for task in NAMES
        for seed in (0, 1)
    ]


ROWS = rows_with(
    good=lambda task: 0.1, dear=lambda task: 0.1, dense=lambda task: 0.1 if task in DENSE else 0.0
)  # fmt: skip


@pytest.fixture(scope="module")
def family():
    return summarise_family(FAMILY, ROWS, TERMS, made_tasks(NAMES, SURE))


def test_gains_are_above_no_growth_and_pay_rent(family):
    found = {each.policy: each for each in family.policies}
    assert list(found) == ["good", "dear", "dense"]
    assert found["good"].score.value == found["dear"].quality.value == pytest.approx(0.1)
    assert found["dear"].score.value == pytest.approx(0.1 - 0.1 * 0.693147)
    assert (found["good"].grew, found["dear"].grew, found["dear"].growth) == (0.0, 1.0, 2.0)
    assert found["dense"].score.value == pytest.approx(0.1 / 3)
    assert found["dense"].score.low < 0.1 / 3 < found["dense"].score.high


def test_a_survey_shows_what_there_was_to_win_and_the_share_of_it(family):
    good = family.policies[0]
    assert family.prize.oracle.value == pytest.approx(0.2)
    assert good.oracle_share.value == pytest.approx(0.5)
    assert good.trainings.value == pytest.approx(1.5)
    assert family.prize.host_quality == family.control_quality == 0.5


def test_tasks_are_grouped_by_host_kernel_data_optimizer_and_rent(family):
    found = {(group.by, group.kind): group for group in family.groups}
    assert {by for by, _ in found} == {"host", "kernel", "data", "optimizer", "rent"}
    dense, conv = found["host", "dense"], found["host", "conv"]
    assert (dense.tasks, dense.gains["dense"].value) == (2, pytest.approx(0.1))
    assert (conv.tasks, conv.gains["dense"].value) == (4, 0.0)
    assert dense.oracle.value == pytest.approx(0.2)
    assert sum(group.tasks for (by, _), group in found.items() if by == "kernel") == 4
    assert found["rent", "0.03 to 0.1"].tasks == 6


def test_the_reference_is_compared_with_all_others_task_by_task(family):
    against = {each.against: each for each in family.differences}
    assert list(against) == ["none", "dear", "dense"]
    assert against["dense"].score.value == pytest.approx(0.2 / 3)
    assert against["dense"].better_score.value == pytest.approx(5 / 6)
    assert against["dear"].better.value == 0.5


def test_rows_that_do_not_pair_are_refused():
    with pytest.raises(UnmatchedPairs, match="'dense' has no row for seed 1 of task 'family:small-exam/5'"):
        summarise_family(FAMILY, ROWS[:-1], TERMS, {})
    with pytest.raises(PolicyNotPlayed, match="no row is of policy 'none'"):
        summarise_family(FAMILY, [row for row in ROWS if row.policy != "none"], TERMS, {})


def test_families_are_told_apart_and_only_the_surveyed_one_has_a_prize():
    stages = {"family:one": NAMES[:3], "family:other": NAMES[3:]}
    found = summarise_families(ROWS, stages, TERMS, made_tasks(NAMES[:3], SURE))
    assert [(each.title, each.tasks, each.prize is None) for each in found] == [
        ("family:one", 3, False),
        ("family:other", 3, True),
    ]
    leads = [part.lead for part in page_of(found, TERMS, "esper exam", {}).parts[::2]]
    assert "in the survey 50.0 %" in leads[0]
    assert "No survey of this family was given, so there is no figure" in leads[1]
    assert "'esper survey other --tasks 3 --seeds 2' makes one" in leads[1]


def test_a_summary_is_json():
    told = json.loads(json.dumps(deciding_summary(ROWS, {FAMILY: NAMES}, TERMS, made_tasks(NAMES, SURE))))
    (family,) = told["families"]
    assert len(family["prize"]["search"]) == 32
    assert family["policies"][0]["oracle_share"]["value"] == pytest.approx(0.5)


def test_the_figure_is_the_same_for_the_same_numbers(family):
    figure = GainFigure(family, family.prize, "good")
    assert figure.draw("png").startswith(b"\x89PNG")
    assert figure.draw("svg") == figure.draw("svg")


def test_labels_stay_apart_and_inside():
    found = spread([0.0, 0.1, 0.1, 9.9, 10.0], gap=1.0, low=0.0, high=10.0)
    assert min(above - below for above, below in zip(found[1:], found, strict=False)) >= 1.0 - 1e-9
    assert (min(found), max(found)) == (0.0, 10.0)
