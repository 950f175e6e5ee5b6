"""Episodes are shown while they are played, and nobody depends on it."""

from esper.telemetry import LiveFile, forget_live, read_log
from tests.telemetry.cases import decision, episode


def test_what_is_shown_are_lines_of_the_log_and_the_next_episode_replaces_them(tmp_path):
    events = episode()
    file = LiveFile(tmp_path, 3, 17)
    for end in range(1, len(events) + 1):
        file.show(events[:end])
        assert [each.event for each in read_log(file.path)] == events[:end]
    assert {(each.round, each.episode) for each in read_log(file.path)} == {(3, 17)}
    LiveFile(tmp_path, 4, 18).show([decision(0, "WAIT")])
    assert [(each.round, each.episode) for each in read_log(file.path)] == [(4, 18)]
    assert len(list(tmp_path.iterdir())) == 1, "a process has one file"


def test_where_there_is_no_folder_nothing_is_shown_and_nothing_fails(tmp_path):
    LiveFile(tmp_path / "elsewhere", 0, 1).show([decision(0, "WAIT")])
    assert not (tmp_path / "elsewhere").exists()


def test_what_was_left_is_forgotten_and_other_files_stay(tmp_path):
    folder = tmp_path / "live"
    forget_live(folder)
    LiveFile(folder, 0, 1).show([decision(0, "WAIT")])
    (folder / "mine.txt").write_text("kept")
    forget_live(folder)
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]
