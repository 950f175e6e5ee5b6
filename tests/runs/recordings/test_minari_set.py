"""A recording comes back from a Minari data set as it was, and hostile data sets are refused."""

import json
import shutil
import sys

import h5py
import minari
import numpy as np
import pytest

from esper.runs.recordings import BadRecording, DataSetExists, MissingMinari, Recording, from_minari, to_minari
from esper.runs.recordings.minari_set import BadName
from tests.runs.recordings.recordings import files_in


@pytest.fixture(scope="module")
def carried(recorded, tmp_path_factory):
    """The recording as a data set."""
    path = tmp_path_factory.mktemp("sets") / "grow-v0"
    assert to_minari(Recording.open(recorded.path), path) == 6
    return path


def test_the_way_to_minari_and_back_changes_no_bit(recorded, carried, tmp_path):
    assert from_minari(carried, tmp_path / "back") == 6
    assert files_in(tmp_path / "back") == files_in(recorded.path)
    assert [each.name for each in tmp_path.iterdir()] == ["back"]


def test_minari_itself_reads_what_was_written(recorded, carried, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(carried.parent))
    loaded = minari.load_dataset("grow-v0")
    assert (loaded.total_episodes, loaded.total_steps) == (6, sum(each.steps for each in recorded.trajectories))
    for episode, each in zip(loaded.iterate_episodes(), recorded.trajectories, strict=True):
        assert np.array_equal(episode.rewards, each.rewards)
        assert np.array_equal(episode.actions, each.choices)
        assert np.array_equal(episode.observations["slots"], each.observation["slots"])
        assert np.array_equal(episode.infos["log_probs"][:-1], each.log_probs)
        assert list(episode.truncations) == [False] * (each.steps - 1) + [True]
        assert all(action in loaded.action_space for action in episode.actions)


def test_a_place_that_is_taken_or_a_name_that_minari_cannot_take_is_refused(recorded, carried, tmp_path):
    opened = Recording.open(recorded.path)
    with pytest.raises(DataSetExists, match="grow-v0 is there already; give a place that is new or empty"):
        to_minari(opened, carried)
    with pytest.raises(DataSetExists, match="is there already"):
        from_minari(carried, recorded.path)
    with pytest.raises(BadName, match="'grow' cannot name a Minari data set"):
        to_minari(opened, tmp_path / "grow")
    assert list(tmp_path.iterdir()) == []


def test_without_minari_the_message_says_what_to_install(recorded, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "minari", None)
    monkeypatch.setattr("esper.runs.recordings.minari_set.find_spec", lambda name: None if name == "minari" else name)
    with pytest.raises(MissingMinari, match=r"minari is not installed here; pip install 'esper-growth\[minari\]'"):
        to_minari(Recording.open(recorded.path), tmp_path / "grow-v0")


def metadata(change):
    def damage(path):
        file = path / "data" / "metadata.json"
        told = json.loads(file.read_text())
        change(told)
        file.write_text(json.dumps(told))

    return damage


def main_data(change):
    def damage(path):
        with h5py.File(path / "data" / "main_data.hdf5", "a") as file:
            change(file)

    return damage


def _replaced(group, name, value):
    del group[name]
    group[name] = value


def _huge(file):
    del file["episode_1/rewards"]
    file["episode_1"].create_dataset("rewards", shape=(10**12,), dtype="f8", chunks=(1000,))


DAMAGES = [
    (lambda path: (path / "data" / "metadata.json").unlink(), "is no Minari data set that 'esper recording to-minari'"),
    (lambda path: (path / "data" / "main_data.hdf5").unlink(), "cannot be read as a Minari data set"),
    (lambda path: (path / "data" / "main_data.hdf5").write_bytes(b"HDF"), "cannot be read as a Minari data set"),
    (metadata(lambda told: told.pop("esper")), "is no Minari data set that 'esper recording to-minari' wrote"),
    (metadata(lambda told: told.update(esper='{"version": 9}')), "is a recording of version 9"),
    (metadata(lambda told: told.pop("action_space")), "is not of format hdf5, or names no spaces"),
    (metadata(lambda told: told.update(total_episodes=7)), "cannot be read as a Minari data set"),
    (main_data(_huge), r"rewards has 8,000,000,000,000 bytes"),
    (
        main_data(lambda file: _replaced(file, "episode_1/rewards", h5py.ExternalLink("other.hdf5", "/x"))),
        "rewards lies elsewhere",
    ),
    (main_data(lambda file: _replaced(file, "episode_1/rewards", np.zeros(6))), "episode 1: .* checksum differs"),
    (main_data(lambda file: _replaced(file, "episode_1/rewards", np.full(6, np.nan))), "episode 1: step 0: rewards is"),
    (main_data(lambda file: _replaced(file, "episode_1/actions", np.full((6, 8), 9))), "episode 1: step 0: choice_op"),
    (main_data(lambda file: file["episode_1"].attrs.update({"esper": "{"})), "episode 1: "),
    (main_data(lambda file: file["episode_1"].attrs.update({"esper": "{}"})), "episode 1: "),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_a_damaged_or_hostile_data_set_is_refused_and_nothing_is_left(carried, tmp_path, damage, message):
    path = tmp_path / "grow-v0"
    shutil.copytree(carried, path)
    damage(path)
    with pytest.raises(BadRecording, match=message):
        from_minari(path, tmp_path / "back")
    assert [each.name for each in tmp_path.iterdir()] == ["grow-v0"]
