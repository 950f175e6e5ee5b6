"""A recording is the same wherever it is made, however often it is stopped, and whatever is added to it later."""

import shutil
from dataclasses import replace
from pathlib import Path

import filelock
import pytest

from esper.runs.directory import Unwritable
from esper.runs.recordings import BadRecording, OtherRecording, Recording, RecordingBusy
from esper.runs.recordings.directory import RecordingDirectory
from esper.runs.seeds import TRAINING_SEEDS
from tests.runs.recordings.recordings import POLICIES, collected, files_in


def about(path: Path) -> list[tuple[str, int]]:
    return [(each.about.policy, each.about.seed) for each in Recording.open(path).trajectories()]


def test_every_policy_plays_every_seed_and_no_seed_is_of_an_exam(recorded):
    seeds = TRAINING_SEEDS[:2]
    assert about(recorded.path) == [(policy, seed) for seed in seeds for policy in POLICIES]
    assert {each.name for each in recorded.path.iterdir()} == {
        "recording.json", "recording.lock", "part-00000.parquet",
    }  # fmt: skip


def test_what_is_there_is_not_played_again_and_stays_as_it_is(recorded):
    before = files_in(recorded.path)
    assert collected(recorded.config, recorded.path) == 0
    assert files_in(recorded.path) == before


@pytest.mark.slow
def test_processes_make_the_same_recording_bit_for_bit(recorded, tmp_path):
    config = replace(recorded.config, backend="process", workers=2)
    assert collected(config, tmp_path / "again") == 6
    assert files_in(tmp_path / "again") == files_in(recorded.path)


def test_an_interrupted_recording_goes_on_and_ends_like_one_that_was_not(recorded, tmp_path, monkeypatch):
    path, add, added = tmp_path / "recording", RecordingDirectory.add, []

    def stop_at_the_fourth(directory, trajectory):
        add(directory, trajectory)
        added.append(trajectory.about.seed)
        if len(added) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(RecordingDirectory, "add", stop_at_the_fourth)
    with pytest.raises(KeyboardInterrupt):
        collected(recorded.config, path)
    assert files_in(path) == {}
    pending = sorted((path / "pending").iterdir())
    pending[0].write_bytes(pending[0].read_bytes()[:-20])  # as a broken disk leaves it
    (path / "pending" / ".x.part").write_bytes(b"half")  # as a crash leaves it
    assert collected(recorded.config, path) == 3
    assert files_in(path) == files_in(recorded.path)
    assert not (path / "pending").exists()


def test_a_crash_between_a_part_and_what_it_was_made_of_leaves_nothing_twice(recorded, tmp_path):
    path = tmp_path / "recording"
    shutil.copytree(recorded.path, path)
    directory = RecordingDirectory(path, recorded.schema)
    for each in recorded.trajectories:
        directory.add(each)
    assert collected(recorded.config, path) == 0
    assert files_in(path) == files_in(recorded.path)
    assert not (path / "pending").exists()


def test_more_episodes_and_policies_are_added_in_further_parts(recorded, tmp_path):
    path = tmp_path / "recording"
    shutil.copytree(recorded.path, path)
    assert collected(replace(recorded.config, episodes=3, policy=("none", "random")), path) == 4
    assert files_in(path)["part-00000.parquet"] == files_in(recorded.path)["part-00000.parquet"]
    first = TRAINING_SEEDS[0]
    assert about(path)[6:] == [
        ("none", first), ("none", first + 1), ("none", first + 2), ("random", first + 2),
    ]  # fmt: skip


def test_a_part_that_was_removed_is_recorded_again_as_it_was(recorded, tmp_path):
    path = tmp_path / "recording"
    shutil.copytree(recorded.path, path)
    (path / recorded.file.name).unlink()
    assert collected(replace(recorded.config, policy=("random",), episodes=1), path) == 1
    assert about(path) == about(recorded.path)[:1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reward": "twin"}, "is of other rules: reward 'frugal', not 'twin'; give another --out"),
        ({"discount": 0.9}, "is of other rules: discount 1.0, not 0.9"),
        ({"rent": 0.5}, "is of other rules: rent None, not 0.5"),
    ],
)
def test_other_rules_are_not_mixed_into_a_recording(recorded, change, message):
    before = files_in(recorded.path)
    with pytest.raises(OtherRecording, match=message):
        collected(replace(recorded.config, **change), recorded.path)
    assert files_in(recorded.path) == before


def test_a_policy_whose_file_has_changed_is_not_mixed_into_a_recording(recorded, tmp_path):
    path, task = tmp_path / "recording", Path(recorded.config.task[0])
    shutil.copytree(recorded.path, path)
    text = task.read_text()
    try:
        task.write_text(text.replace("horizon = 6", "horizon = 7"))
        with pytest.raises(OtherRecording, match=r"knows '.*tiny\.toml' with other contents"):
            collected(recorded.config, path)
    finally:
        task.write_text(text)


def test_a_part_of_other_rules_that_was_put_there_is_refused(recorded, tmp_path):
    path, other = tmp_path / "recording", tmp_path / "other"
    shutil.copytree(recorded.path, path)
    collected(replace(recorded.config, reward="twin", policy=("none",), episodes=1), other)
    shutil.copy(other / "part-00000.parquet", path / "part-00001.parquet")
    with pytest.raises(BadRecording, match=r"part-00001.parquet is of other rules .*reward 'twin', not 'frugal'"):
        collected(recorded.config, path)


def test_a_directory_of_something_else_or_in_use_or_broken_is_refused(recorded, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(OtherRecording, match="is not empty and holds no recording"):
        collected(recorded.config, tmp_path)
    with pytest.raises(Unwritable, match="cannot be written"):
        collected(recorded.config, tmp_path / "mine.txt" / "below")
    path = tmp_path / "recording"
    path.mkdir()
    with filelock.FileLock(path / "recording.lock"), pytest.raises(RecordingBusy, match="by another 'esper record'"):
        collected(recorded.config, path)
    (path / "recording.json").write_text("{}")
    with pytest.raises(OtherRecording, match=r"recording.json cannot be read .*; give another --out"):
        collected(recorded.config, path)
