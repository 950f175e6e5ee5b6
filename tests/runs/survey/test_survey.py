"""A survey is the same wherever it is made, however often it is stopped, and whatever is added to it later."""

import shutil
from dataclasses import replace

import filelock
import numpy as np
import pytest

from esper.controller import Schedule
from esper.environment import FIELDS, find_task
from esper.runs.directory import Unwritable
from esper.runs.player import Game
from esper.runs.survey import BadSurvey, InvalidSurvey, SurveyConfig, read_survey, write_survey
from esper.runs.survey.lines import OtherSurvey, SurveyBusy, SurveyLines
from esper.runs.survey.survey import structures_of
from esper.runs.survey.surveyor import Surveyor, job_of
from tests.runs.exam.surveys import SURE, made_table
from tests.runs.survey.surveys import FAMILY, TASK, make


def facts(table):
    """Everything in a survey, comparable."""
    courses = [
        (each.task, each.seed, each.slots, each.blueprints, each.traits, each.host.tobytes(), each.offers.tobytes())
        for each in table.courses
    ]
    return sorted(table.rows, key=lambda row: (row.seed, row.structure)), sorted(courses, key=lambda each: each[1])


def test_every_single_seed_and_the_host_alone_are_trained_on_every_seed(surveyed):
    (task,) = surveyed.table.tasks
    assert task.structures == ("", *(f"layer0:{name}" for name in ("norm", "low_rank", "mlp_small", "mlp")))
    assert task.evaluation.shape == task.test.shape == (5, 2)
    assert np.all(task.growth_log[0] == 0)
    assert np.all(task.growth_log[1:] > 0), "what was planted was kept"
    assert (task.rent, task.courses[0].traits) == (find_task(TASK).rent, find_task(TASK).traits)


class Holding(Surveyor):
    """Grows structures and never fossilises them."""

    def policy_for(self, job):
        grown = super().policy_for(job)
        return Schedule(tuple(replace(seed, fossilize=False) for seed in grown.seeds))


def test_a_structure_that_is_held_is_surveyed_like_one_that_is_fossilised():
    job = job_of(TASK, 0, [("layer0", "mlp")])
    game = Game(reward="solo", record=False)
    held, kept = Holding(game).play(job), Surveyor(game).play(job)
    assert (held.finished.ops.get("FOSSILIZE", 0), kept.finished.ops["FOSSILIZE"]) == (0, 1)
    assert held.row.parameters > held.row.host_parameters
    assert held.row == kept.row


def test_what_the_host_alone_showed_is_kept_with_gains_from_the_first_epoch_on(surveyed):
    course = surveyed.table.courses[0]
    assert course.host.shape == (6, len(FIELDS.host))
    assert course.offers.shape == (6, 1, 4, len(FIELDS.blueprints))
    assert np.isfinite(course.offers[..., FIELDS.blueprints.index("gain_norm")]).all()
    assert np.isnan(course.slot_features[..., FIELDS.slots.index("contribution")]).all()
    assert len(course.qualities) == find_task(TASK).horizon


def test_reading_gives_what_was_written_and_leaves_nothing_beside(surveyed):
    assert facts(read_survey(surveyed.path)) == facts(surveyed.table)
    assert {each.name for each in surveyed.path.parent.iterdir()} <= {surveyed.path.name, f"{surveyed.path.name}.lock"}


def test_an_interrupted_survey_goes_on_and_ends_like_one_that_was_not(surveyed, tmp_path, monkeypatch):
    path, add, added = tmp_path / "survey.parquet", SurveyLines.add, []

    def stop_at_the_fourth(lines, played):
        add(lines, played)
        added.append(played.row)
        if len(added) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(SurveyLines, "add", stop_at_the_fourth)
    with pytest.raises(KeyboardInterrupt):
        make(surveyed.config, path)
    assert not path.exists()
    lines = path.with_name("survey.parquet.lines")
    lines.write_bytes(lines.read_bytes()[:-20])  # as a crash leaves it
    assert facts(make(surveyed.config, path)) == facts(surveyed.table)
    assert len(added) == 4 + 7, "three whole lines were not trained again"
    assert not lines.exists()


def test_a_survey_is_added_to_and_what_it_has_is_not_trained_again(surveyed, tmp_path, monkeypatch):
    one_seed, path, added, add = replace(surveyed.config, seeds=1), tmp_path / "survey.parquet", [], SurveyLines.add
    make(one_seed, path)
    monkeypatch.setattr(SurveyLines, "add", lambda lines, played: (added.append(played.row.seed), add(lines, played)))
    assert facts(make(surveyed.config, path)) == facts(surveyed.table)
    assert added == [1] * 5


def test_processes_make_the_same_survey(surveyed, tmp_path):
    config = replace(surveyed.config, backend="process", workers=2)
    assert facts(make(config, tmp_path / "survey.parquet")) == facts(surveyed.table)


def test_pairs_are_of_two_slots_and_the_same_for_every_survey():
    name = "family:small-exam/1"
    few, more = (structures_of(SurveyConfig(pairs=count), name) for count in (2, 4))
    pairs = [each for each in more if len(each) == 2]
    assert len(pairs) == 4
    assert all(one[0] != other[0] for one, other in pairs)
    assert {each for each in few if len(each) == 2} <= set(pairs)


def test_a_few_single_seeds_are_drawn_for_the_task_and_the_same_for_every_survey():
    name = "family:small-exam/1"
    every, few, more = (structures_of(SurveyConfig(pairs=0, singles=count), name) for count in (0, 3, 5))
    assert [len(few), len(more)] == [4, 6]
    assert set(few) < set(more) < set(every)
    assert few[0] == (), "the host alone is always trained"


def test_a_survey_begins_with_the_task_it_is_told_to():
    assert SurveyConfig(tasks=2, first=7).task_names("small") == ["family:small/7", "family:small/8"]


def test_a_file_or_lines_of_another_family_are_not_added_to(surveyed, tmp_path):
    path = tmp_path / "survey.parquet"
    shutil.copy(surveyed.path, path)
    with pytest.raises(OtherSurvey, match=r"is of another family \(family:small-dev/1\); give another --out"):
        make(surveyed.config, path, family="small")
    path.unlink()
    path.with_name("survey.parquet.lines").write_text('{"family":"small"}\n')
    with pytest.raises(OtherSurvey, match=r"lines is of another survey .*; give another --out, or remove it"):
        make(surveyed.config, path)


def test_a_file_with_other_observations_is_not_added_to(surveyed, tmp_path):
    path, fields = tmp_path / "survey.parquet", surveyed.table.fields
    write_survey(replace(surveyed.table, fields=replace(fields, host=("pressure", *fields.host[1:]))), path)
    with pytest.raises(OtherSurvey, match="has the observations of another esper; give another --out"):
        make(surveyed.config, path)


def test_one_process_makes_a_survey_at_a_time(surveyed, tmp_path):
    path = tmp_path / "survey.parquet"
    with filelock.FileLock(tmp_path / "survey.parquet.lock"), pytest.raises(SurveyBusy, match="another 'esper survey'"):
        make(surveyed.config, path)


def test_a_place_that_cannot_be_written_to_is_told(surveyed, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Unwritable, match="cannot be written"):
        make(surveyed.config, tmp_path / "file" / "survey.parquet")


@pytest.mark.parametrize(
    ("changes", "family", "message"),
    [
        ({"tasks": 0}, FAMILY, "tasks is 0; give a number from 1 to 100,000"),
        ({"first": -1}, FAMILY, "first is -1; give a number from 0"),
        ({"singles": -1}, FAMILY, "singles is -1; give a number from 0 to 10,000"),
        ({"seeds": 0}, FAMILY, "seeds is 0; give a number from 1"),
        ({"pairs": -1}, FAMILY, "pairs is -1; give a number from 0 to 1,000"),
        ({}, "small/3", "'small/3' is a task; give a family, such as small, or a file that ends with .parquet"),
    ],
)
def test_a_survey_that_cannot_be_made_is_refused_before_anything_is_trained(changes, family, message):
    with pytest.raises(InvalidSurvey, match=message):
        replace(SurveyConfig(), **changes).check(family)


def test_a_file_that_is_no_survey_is_refused(tmp_path):
    path = tmp_path / "no.parquet"
    with pytest.raises(BadSurvey, match="is no file of a survey"):
        read_survey(path)
    path.write_bytes(b"PAR1 but no more")
    with pytest.raises(BadSurvey, match="cannot be read as a survey"):
        read_survey(path)
    table = made_table({"family:small-exam/0": SURE})
    write_survey(replace(table, courses=table.courses[:1]), path)
    with pytest.raises(BadSurvey, match="cannot be read as a survey"):
        read_survey(path)
