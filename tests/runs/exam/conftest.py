"""One tiny exam, held once; exams here go without pictures, which are drawn in the tests of the report."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from esper.runs.exam import Exam, ExamConfig
from tests.runs.worlds import tiny_task

EVERYONE = ("none", "heuristic", "search:8", "scratch:heuristic", "widened:heuristic")
TRIALS = 8
ALL = TRIALS + 2 * len(EVERYONE)


class Witness:
    """Counts what is played; at `limit` somebody presses Ctrl-C."""

    def __init__(self, limit=None):
        self.stages, self.notes, self.played, self.limit = [], [], 0, limit

    def stage(self, title, total, done):
        self.stages.append((title, total, done))

    def advance(self):
        self.played += 1
        if self.played == self.limit:
            raise KeyboardInterrupt

    def note(self, sentence):
        self.notes.append(sentence)


def hold(config, directory, witness=None):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "matplotlib", None)
        return Exam(config, directory, witness or Witness()).hold()


def timeless(rows):
    return [replace(row, seconds=0.0) for row in rows]


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """An exam that nobody interrupted: how it was asked for, where it is, its rows."""
    directory = tmp_path_factory.mktemp("recorded")
    task = tiny_task(directory, horizon=12)
    config = ExamConfig(task=(task,), policy=EVERYONE, seeds=2, backend="serial")
    return SimpleNamespace(config=config, directory=directory / "exam", rows=hold(config, directory / "exam"))
