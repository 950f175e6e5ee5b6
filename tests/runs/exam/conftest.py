"""One tiny exam, held once."""

from types import SimpleNamespace

import pytest

from esper.runs.exam import ExamConfig
from tests.runs.exam.exams import EVERYONE, hold
from tests.runs.worlds import tiny_task


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """An exam that nobody interrupted: how it was asked for, where it is, its rows."""
    directory = tmp_path_factory.mktemp("recorded")
    task = tiny_task(directory, horizon=12)
    config = ExamConfig(task=(task,), policy=EVERYONE, seeds=2, backend="serial")
    return SimpleNamespace(config=config, directory=directory / "exam", rows=hold(config, directory / "exam"))
