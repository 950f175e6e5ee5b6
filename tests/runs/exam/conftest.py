"""One tiny exam, held once."""

from types import SimpleNamespace

import pytest

from esper.runs.exam import ExamConfig
from tests.runs.exam.exams import EVERYONE, hold
from tests.runs.worlds import tiny_task


@pytest.fixture(scope="session")
def asked(tmp_path_factory):
    """How that exam is asked for."""
    task = tiny_task(tmp_path_factory.mktemp("asked"), horizon=12)
    return ExamConfig(task=(task,), policy=EVERYONE, seeds=2, backend="serial")


@pytest.fixture(scope="session")
def recorded(asked, tmp_path_factory):
    """An exam that nobody interrupted: how it was asked for, where it is, its rows."""
    directory = tmp_path_factory.mktemp("recorded") / "exam"
    return SimpleNamespace(config=asked, directory=directory, rows=hold(asked, directory))
