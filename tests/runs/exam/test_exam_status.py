"""An exam says how far it is and how it ended, for whoever looks at its directory."""

import pytest

from esper.runs.exam.exam_status import ExamProgress
from esper.telemetry import ExamStatus, RunState, read_status, state_now


class Heard:
    """Remembers what a person is told."""

    def __init__(self):
        self.told = []

    def stage(self, title, total, done):
        self.told.append((title, total, done))

    def advance(self):
        self.told.append("advance")

    def note(self, sentence):
        self.told.append(sentence)


def test_an_exam_that_goes_on_says_how_far_it_is_and_the_person_hears_the_same(tmp_path):
    heard, file = Heard(), tmp_path / "status.json"
    with ExamProgress(tmp_path, "esper exam", heard) as progress:
        progress.stage("spirals: none", 3, 1)
        status = read_status(file, ExamStatus)
        assert (status.stage, status.done, status.total, status.command) == ("spirals: none", 1, 3, "esper exam")
        assert state_now(file, ExamStatus) is RunState.RUNNING
        progress.advance()
        progress.note("a worker was replaced")
    assert heard.told == [("spirals: none", 3, 1), "advance", "a worker was replaced"]
    status = read_status(file, ExamStatus)
    assert (status.state, status.done) == (RunState.FINISHED, 2)


@pytest.mark.parametrize(
    ("error", "state"), [(KeyboardInterrupt(), RunState.INTERRUPTED), (ValueError("no room"), RunState.FAILED)]
)
def test_how_an_exam_ended_is_written_down(tmp_path, error, state):
    with pytest.raises(type(error)), ExamProgress(tmp_path, "esper exam", Heard()):
        raise error
    status = read_status(tmp_path / "status.json", ExamStatus)
    assert status.state is state
    assert status.reason == ("ValueError: no room" if state is RunState.FAILED else None)
