"""A ranker learns from a survey which seed pays, and says so of tasks that it has not seen."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from esper.controller import BEST_BY_RENT, GROUPS
from esper.environment import FIELDS
from esper.runs.survey import (
    RENT_BANDS,
    FitConfig,
    InvalidFit,
    best_by_host,
    best_by_rent,
    findings_of,
    fit_gain_networks,
    read_survey,
)
from esper.runs.survey.report import ranked_gains
from tests.runs.exam.surveys import HOST, made_table
from tests.test_results import ROOT

CONFIG = FitConfig(members=2, hidden=16, steps=150, looks=1)
PUSH, LOSS = FIELDS.blueprints.index("gain_push"), FIELDS.host.index("train_loss")


def told_by_push(count, first=0):
    """A survey in which the better of two seeds is the one with the larger push, or none if the host is at its end."""
    draw = np.random.default_rng(first)
    names = [f"family:small/{first + number}" for number in range(count)]
    good, bad, none = [(0.8, 0.8)] * 2, [(0.45, 0.45)] * 2, [(0.5, 0.5)] * 2
    kinds = dict(zip(names, draw.integers(3, size=count), strict=True))
    outcomes = {0: [HOST, good, bad, bad, none], 1: [HOST, bad, good, bad, none], 2: [HOST, bad, bad, bad, none]}
    table = made_table({name: outcomes[int(kind)] for name, kind in kinds.items()})
    for course in table.courses:
        kind = kinds[course.task]
        course.host[..., LOSS] = 3.0 if kind == 2 else 1.0
        course.offers[..., PUSH] = draw.normal(size=course.offers.shape[:-1]) * 0.1
        if kind < 2:
            course.offers[:, 0, kind, PUSH] += 2.0  # mlp is the first blueprint, norm the second
    return table


@pytest.fixture(scope="module")
def fitted():
    table = told_by_push(40)
    return fit_gain_networks(table.tasks, table.fields, CONFIG)


def gains(table, networks, rent=0.05):
    return np.array([ranked_gains(replace(task, rent=rent), networks, table.fields).mean() for task in table.tasks])


def test_a_ranker_plants_what_pays_and_nothing_where_nothing_does(fitted):
    other = told_by_push(30, first=100)
    best = [max(0.0, (task.test.mean(axis=1) - 0.5)[1:].max() - 0.05 * np.log(2)) for task in other.tasks]
    assert gains(other, fitted).mean() > 0.9 * np.mean(best)
    assert gains(other, fitted, rent=1.0).tolist() == [0.0] * 30, "no gain pays such a rent"


def test_without_what_the_choice_depends_on_a_ranker_gains_less(fitted):
    table, other = told_by_push(40), told_by_push(30, first=100)
    names = [name for name in fitted.names if name not in GROUPS["first-order gain"]]
    blind = fit_gain_networks(table.tasks, table.fields, CONFIG, names)
    assert gains(other, blind).mean() < 0.6 * gains(other, fitted).mean()


def test_the_same_seed_fits_the_same_ranker_and_leaves_the_global_random_numbers_alone(fitted):
    table, before = told_by_push(40), torch.get_rng_state()
    again = fit_gain_networks(table.tasks, table.fields, CONFIG).state_dict()
    assert all(torch.equal(one, again[name]) for name, one in fitted.state_dict().items())
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"members": 0}, "members = 0; give a value from 1 to 1,000"), ({"looks": 7}, "looks = 7; give .* from 1 to 6")],
)
def test_settings_with_which_nothing_can_be_fitted_are_refused(changes, message):
    with pytest.raises(InvalidFit, match=message):
        replace(CONFIG, **changes).check()


def test_the_constants_of_the_package_are_the_best_by_rent_on_the_survey_of_the_training_family():
    best = best_by_rent(read_survey(ROOT / "surveys" / "small.parquet").tasks)
    named = {bound: str(best.best[band]) for bound, band in RENT_BANDS.items()}
    assert named == BEST_BY_RENT


def test_the_best_constant_for_a_kind_of_host_is_chosen_among_its_tasks():
    table = told_by_push(12)
    by_host = best_by_host(table.tasks)
    assert set(by_host.best) == {
        "dense" if course.traits["kernel"] == "none" else f"kernel {course.traits['kernel']}"
        for course in table.courses
    }
    for task in table.tasks:
        assert by_host(task, 0) in range(len(task.structures))


def test_findings_tell_the_prize_the_constants_and_on_another_survey_what_features_are_worth():
    table = told_by_push(10)
    alone = {each.choice: each for each in findings_of(table)}
    assert list(alone)[:7] == ["oracle", *(f"search {count}" for count in (1, 2, 4, 8, 16, 32))]
    assert {"constant, one", "constant, by rent", "constant, by host"} <= {*alone}
    assert not any(name.startswith("ranker") for name in alone)
    assert alone["oracle"].gain.mean >= alone["search 1"].gain.mean
