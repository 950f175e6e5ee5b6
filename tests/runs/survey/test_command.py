"""`esper survey` and `esper fit`."""

import json

import pytest

from esper.cli import main
from tests.runs.worlds import tiny_task
from tests.test_cli import said_by


def test_a_survey_is_made_told_and_fitted(surveyed, tmp_path, capsys):
    told = said_by(capsys, "survey", str(surveyed.path))
    assert "1 tasks; score points over the host alone" in told
    assert "| oracle | " in told
    found = json.loads(said_by(capsys, "survey", str(surveyed.path), "--json"))
    assert [each["choice"] for each in found][:2] == ["oracle", "search 1"]
    words = ["--steps", "5", "--out", str(tmp_path / "mine.safetensors")]
    assert "of 1 tasks, SHA-256" in said_by(capsys, "fit", "ranker", str(surveyed.path), *words)
    assert "of 2 tasks, SHA-256" in said_by(capsys, "fit", "ranker", str(surveyed.path), str(surveyed.path), *words)
    ended = said_by(
        capsys, "play", "--policy", f"ranker:{tmp_path / 'mine.safetensors'}", "--task", tiny_task(tmp_path)
    )
    assert "the end" in ended


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["survey", "smal"], "no family 'smal'; did you mean 'small'"),
        (["survey", "small/3"], "'small/3' is a task; give a family"),
        (["survey", "nowhere.parquet"], "nowhere.parquet is no file of a survey"),
        (["survey", "small", "--tasks", "0"], "tasks is 0; give a number from 1"),
        (["survey", "small", "--fit", "nowhere.parquet"], "nowhere.parquet is no file of a survey"),
        (["fit", "ranker"], "no survey was given; name at least one file"),
        (["fit", "ranker", "nowhere.parquet"], "nowhere.parquet is no file of a survey"),
        (["fit", "ranker", "nowhere.parquet", "--members", "0"], "members = 0; give a value from 1"),
    ],
)
def test_a_survey_or_fit_that_cannot_be_made_exits_2_and_leaves_nothing(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
