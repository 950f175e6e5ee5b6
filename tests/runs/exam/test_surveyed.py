"""Only a survey of the same tasks, on the same seeds, by the same families is laid beside an exam."""

from dataclasses import replace

import pytest

from esper.environment import find_task
from esper.runs.exam import ExamConfig
from esper.runs.exam.surveyed import UnfitSurvey
from esper.runs.survey import BadSurvey, write_survey
from tests.runs.exam.surveys import SURE, made_table

SMALL, FAR = "family:small-exam", "family:far-exam"


def names_of(family, count=2):
    return [f"{family}/{number}" for number in range(count)]


@pytest.fixture
def survey(tmp_path):
    """Of two tasks on seeds 0 and 1."""
    path = tmp_path / "survey.parquet"
    write_survey(made_table(dict.fromkeys(names_of(SMALL), SURE)), path)
    return path


@pytest.fixture
def config(survey):
    return ExamConfig(task=(SMALL,), tasks=2, policy=("none", "random"), survey=(str(survey),))


def test_every_task_of_the_family_is_found_at_the_rent_of_the_exam(config):
    config.check()
    assert {name: task.rent for name, task in config.surveyed().items()} == config.rents()
    assert {task.rent for task in replace(config, rent=0.2).surveyed().values()} == {0.2}
    assert list(replace(config, tasks=1).surveyed()) == names_of(SMALL, 1)


def test_a_family_without_a_survey_stands_beside_one_with_it(config):
    assert list(replace(config, task=(FAR, SMALL)).surveyed()) == names_of(SMALL)
    assert replace(config, survey=()).surveyed() == {}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"tasks": 3},
            "no task 'family:small-exam/2'; give --tasks 2, or make .*: esper survey small-exam --tasks 3",
        ),
        ({"task": (FAR,)}, "survey.parquet is of family:small-exam, and the exam is on family:far-exam; give a survey"),
        ({"seeds": 3}, "on the seeds 0 to 1, and the exam is on 0 to 2; give --seeds 2 --first-seed 0"),
        ({"first_seed": 1}, "on the seeds 0 to 1, and the exam is on 1 to 2"),
        ({"seeds": 1}, "who chooses on one seed is scored on another; give --seeds 2 or more"),
    ],
)
def test_a_survey_of_something_else_is_refused(config, changed, message):
    with pytest.raises(UnfitSurvey, match=message):
        replace(config, **changed).check()


def test_a_survey_by_another_esper_is_refused(config, survey):
    table = made_table(dict.fromkeys(names_of(SMALL), SURE))
    dearer = tuple(replace(row, rent=find_task(row.task).rent + 0.1) for row in table.rows)
    write_survey(replace(table, rows=dearer), survey)
    with pytest.raises(UnfitSurvey, match="another task of the name 'family:small-exam/0'"):
        config.check()


def test_a_file_that_makes_no_survey_is_refused(config, survey):
    table = made_table(dict.fromkeys(names_of(SMALL), SURE))
    nothing = tuple(replace(row, parameters=0) for row in table.rows)
    for broken in (replace(table, courses=()), replace(table, rows=nothing)):
        write_survey(broken, survey)
        with pytest.raises(BadSurvey, match=r"survey\.parquet cannot be read as a survey"):
            config.check()
    with pytest.raises(BadSurvey, match="nowhere is no file of a survey"):
        replace(config, survey=("nowhere",)).check()
