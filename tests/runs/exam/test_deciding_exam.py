"""An exam of deciding by the command: held, stopped, gone on with, added to, and refused."""

import json

import pytest

from esper.cli import main
from esper.runs.exam import ExamConfig
from esper.runs.survey import write_survey
from tests.runs.exam.exams import Witness, hold
from tests.runs.exam.surveys import SURE, made_table

FAMILY = "family:small-exam"
POLICIES = ("none", "constant:first:largest")
WORDS = ["exam", "--task", FAMILY, "--tasks", "2", "--policy", *POLICIES, "--backend", "serial"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With a survey, and an exam on two seeds of two tasks that was stopped after three episodes."""
    folder = tmp_path_factory.mktemp("deciding")
    write_survey(made_table({f"{FAMILY}/{number}": SURE for number in range(2)}), folder / "survey.parquet")
    config = ExamConfig(task=(FAMILY,), tasks=2, policy=POLICIES, backend="serial")
    with pytest.raises(KeyboardInterrupt):
        hold(config, folder / "exam", Witness(limit=3))
    return folder


@pytest.fixture
def said(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)

    def said(*words, code=0):
        assert main([*WORDS, *words]) == code
        captured = capsys.readouterr()
        return captured.err if code else captured.out

    return said


def test_the_command_goes_on_and_then_knows_all(said, folder):
    told = said("--out", "exam", "--survey", "survey.parquet")
    assert "8 episodes, 3 of them known" in told
    assert "on 2 tasks, 2 seeds each (0 to 1)" in told.replace("\n", " ")
    assert "What there was to win" in told
    assert "8 episodes, 8 of them known" in said("--out", "exam", "--survey", "survey.parquet")
    assert {path.name for path in (folder / "exam").iterdir()} == {
        "exam.csv", "exam.html", "exam.json", "exam.lock", "exam.md", "exam.parquet", "rows.jsonl", "status.json",
        "family-small-exam.png", "family-small-exam.svg",
    }  # fmt: skip


def test_without_a_survey_the_page_says_what_is_missing(said, folder):
    (family,) = json.loads(said("--out", "exam", "--json"))["families"]
    assert family["prize"] is None
    assert [each["policy"] for each in family["policies"]] == ["constant:first:largest"]
    page = (folder / "exam" / "exam.md").read_text(encoding="utf-8")
    assert "No survey of this family was given, so there is no figure" in page
    assert "family-small-exam.png" not in page


def test_what_cannot_be_held_is_refused_before_the_first_episode(said, folder):
    for words, message in (
        (["--task", "family:smal"], "no family 'smal'; did you mean 'small'?"),
        (["--tasks", "3", "--survey", "survey.parquet"], "no task 'family:small-exam/2'; give --tasks 2"),
        (["--task", "family:far-exam", "--survey", "survey.parquet"], "is of family:small-exam, and the exam is on"),
        (["--survey", "nowhere.parquet"], "nowhere.parquet is no file of a survey"),
    ):
        assert message in " ".join(said(*words, "--out", "refused", code=2).split())
    assert not (folder / "refused").exists()
