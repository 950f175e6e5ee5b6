"""What there was to win, against answers that were worked out by hand."""

import math

import numpy as np
import pytest

from esper.runs.exam.nested_bootstrap import means
from esper.runs.exam.statistics import Bootstrap
from esper.runs.exam.winnings import MOST_TRAININGS, Winnings, oracle_gains, reached
from esper.runs.survey import search_by_seed
from tests.runs.exam.surveys import HOST, SURE, UNSURE, made_tasks

QUICK = Bootstrap(resamples=99)
NAMES = [f"family:small-exam/{number}" for number in range(6)]
WORSE = [HOST, *[[(0.4, 0.9)] * 2] * 4]


def one(qualities, rent=0.0):
    (task,) = made_tasks(NAMES[:1], qualities, rent).values()
    return task


def constant(gain):
    """A policy that gains the same on both seeds of all tasks."""
    return means({"it": np.full((len(NAMES), 2), gain)}, QUICK)["it"]


@pytest.fixture(scope="module")
def winnings():
    return Winnings.of(list(made_tasks(NAMES, SURE).values()), QUICK)


def test_the_oracle_chooses_on_one_seed_and_is_scored_on_the_other():
    # By seed 1 the pair, which gains 0.06 on seed 0; by seed 0 the first single, which loses 0.05 on seed 1.
    assert oracle_gains([one(UNSURE)])[0] == pytest.approx([0.06, -0.05])


def test_the_oracle_pays_rent_in_choosing_and_in_the_score():
    paid = 0.1 * math.log(2)
    assert oracle_gains([one(UNSURE, rent=0.1)])[0] == pytest.approx([0.06 - paid, -0.05 - paid])
    # At rent 0.3 the pair is still best on seed 1, and nothing on seed 0 is worth its rent.
    assert oracle_gains([one(UNSURE, rent=0.3)])[0] == pytest.approx([0.06 - 3 * paid, 0.0])


@pytest.mark.parametrize(
    ("count", "gains"),
    [
        # By seed 1: the second single if it was drawn, for 0.02 on seed 0, else the host alone.
        # By seed 0: the first single for -0.05 on seed 1, else the second for 0.1, else the host alone.
        (1, [0.02 / 3, (-0.05 + 0.1 + 0.0) / 3]),
        (2, [(0.02 + 0.02 + 0.0) / 3, (-0.05 - 0.05 + 0.1) / 3]),
        (3, [0.02, -0.05]),
        (32, [0.02, -0.05]),
    ],
)
def test_search_is_the_mean_over_all_draws_of_so_many_singles(count, gains):
    assert search_by_seed(one(UNSURE), count) == pytest.approx(gains)


def test_who_sees_nothing_that_pays_keeps_the_host_alone():
    assert oracle_gains([one(WORSE)])[0].tolist() == [0.0, 0.0]
    assert search_by_seed(one(WORSE), 2).tolist() == [0.0, 0.0]


def test_winnings_are_means_over_tasks(winnings):
    assert winnings.oracle.estimate().value == pytest.approx(0.2)
    assert [each.value for each in winnings.search[:4]] == pytest.approx([0.2 / 3, 0.4 / 3, 0.2, 0.2])
    assert len(winnings.search) == MOST_TRAININGS


def test_a_policy_has_a_share_of_the_oracle_and_is_worth_trainings(winnings):
    share, trainings = winnings.share(constant(0.1)), winnings.trainings(constant(0.1))
    assert (share.low, share.value, share.high) == pytest.approx((0.5, 0.5, 0.5))
    assert (trainings.low, trainings.value, trainings.high) == pytest.approx((1.5, 1.5, 1.5))
    assert winnings.trainings(constant(0.0)).value == 0
    assert winnings.trainings(constant(0.3)).value == MOST_TRAININGS + 1


def test_there_is_no_share_of_nothing():
    nothing = Winnings.of(list(made_tasks(NAMES, WORSE).values()), QUICK)
    assert nothing.share(constant(0.1)) is None


def test_a_curve_that_begins_or_ends_at_the_gain_reaches_it_there():
    assert reached(np.array([1.0, 4.0]), np.array([[1.0, 2.0, 4.0]] * 2)).tolist() == [1.0, 3.0]
