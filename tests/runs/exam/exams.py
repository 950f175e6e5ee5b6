"""Small exams, held without pictures: those are drawn in the tests of the report."""

import sys
from dataclasses import replace

import pytest

from esper.runs.exam import Exam

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
