"""One tiny recording, made once."""

from types import SimpleNamespace

import pytest

from esper.runs.recordings import Recording
from tests.runs.recordings.recordings import collected, record_config


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """A recording that nobody interrupted: how it was asked for, its directory, its file, its episodes, its schema."""
    folder = tmp_path_factory.mktemp("recorded")
    config, path = record_config(folder), folder / "recording"
    assert collected(config, path) == 6
    (file,) = path.glob("*.parquet")
    opened = Recording.open(path)
    return SimpleNamespace(
        config=config, path=path, file=file, trajectories=list(opened.trajectories()), schema=opened.schema
    )
