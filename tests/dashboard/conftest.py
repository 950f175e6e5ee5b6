"""A run that was really trained, once for all tests of the page: its directory is copied by whoever changes it."""

import shutil

import pytest

from tests.runs.worlds import small_config, tiny_task, trained


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """The directory of a finished run with twins, evaluations and a comparison with the controls."""
    home = tmp_path_factory.mktemp("recorded")
    config = small_config(home, reward="twin", compare=1, episodes=4)
    tiny_task(home, horizon=14)
    directory, _ = trained(home / "run", config)
    return directory.path


@pytest.fixture
def copied(recorded, tmp_path):
    """The same in a directory of its own."""
    return shutil.copytree(recorded, tmp_path / "run")
