"""`esper record` and `esper recording`."""

import pytest

from esper.cli import main
from tests.runs.recordings.recordings import files_in
from tests.runs.worlds import tiny_task
from tests.test_cli import said_by


def test_a_recording_is_made_told_carried_and_gone_on_with(recorded, tmp_path, capsys):
    words = ["record", "--policy", "none", "random", "--task", tiny_task(tmp_path), "--backend", "serial"]
    path = tmp_path / "mine"
    told = said_by(capsys, *words, "--episodes", "1", "--out", str(path))
    assert told.startswith("none, random: 2 episodes\n")
    assert told.endswith(f"{path}: 2 episodes played, 0 were there\n")
    told = said_by(capsys, *words, "--episodes", "2", "--out", str(path))
    assert "none, random: 4 episodes, 2 of them known\n" in told
    assert told.endswith(f"{path}: 2 episodes played, 2 were there\n")
    told = said_by(capsys, "recording", "show", str(path))
    assert "4 episodes; version 1, reward frugal, discount 1, rent the task's" in told
    assert "certain" in told
    assert "drawn" in told
    assert "4 episodes" in said_by(capsys, "recording", "to-minari", str(path), str(tmp_path / "set" / "mine-v0"))
    back = str(tmp_path / "back")
    assert "4 episodes" in said_by(capsys, "recording", "from-minari", str(tmp_path / "set" / "mine-v0"), back)
    assert "4 episodes; version 1" in said_by(capsys, "recording", "show", back)
    assert len(files_in(tmp_path / "back")) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["record", "--policy", "heuristics"], "no policy 'heuristics'; did you mean 'heuristic'?"),
        (["record", "--policy", "none", "none"], "--policy names none, none; name at least one, each once"),
        (["record", "--task", "family:smal"], "no family 'smal'; did you mean 'small'"),
        (["record", "--episodes", "0"], "episodes = 0; give a value from 1"),
        (["record", "--reward", "twins"], "no reward mode 'twins'; did you mean 'twin'?"),
        (["record", "--device", "gpu"], "gpu"),
        (["record", "--backend", "serial", "--workers", "3"], "backend 'serial' has one worker, not 3"),
        (["recording", "show", "nowhere"], "nowhere has no recording; give what 'esper record' made"),
        (["recording", "show", "nowhere", "there"], "'show' takes a source"),
        (["recording", "to-minari", "nowhere"], "'to-minari' takes a source and a target"),
        (["recording", "to-minari", "nowhere", "there"], "nowhere has no recording"),
        (["recording", "from-minari", "nowhere", "there"], "nowhere is no Minari data set"),
    ],
)
def test_what_cannot_be_done_exits_2_and_leaves_nothing(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
