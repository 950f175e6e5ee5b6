"""A picture of one episode."""

from rich.console import Console

from esper.contracts import Stage, StageChanged
from esper.runs import Game, narrate_episode
from esper.telemetry import StageSpan, spans
from tests.runs.worlds import tiny_task


def changed(epoch: int, before: Stage, after: Stage, slot: str = "a") -> StageChanged:
    return StageChanged(epoch, slot, before, after, ())


def test_spans_last_from_one_change_to_the_next_and_the_last_to_the_horizon():
    events = [
        changed(1, Stage.DORMANT, Stage.GERMINATED),
        changed(2, Stage.GERMINATED, Stage.TRAINING),
        changed(3, Stage.DORMANT, Stage.GERMINATED, "b"),
    ]
    assert spans(events, 9) == [
        StageSpan("a", Stage.GERMINATED, 1, 2),
        StageSpan("a", Stage.TRAINING, 2, 9),
        StageSpan("b", Stage.GERMINATED, 3, 9),
    ]


def test_a_slot_that_is_dormant_again_has_no_span_and_one_of_no_length_is_left_out():
    events = [
        changed(1, Stage.DORMANT, Stage.GERMINATED),
        changed(1, Stage.GERMINATED, Stage.PRUNED),
        changed(2, Stage.PRUNED, Stage.DORMANT),
    ]
    assert spans(events, 9) == [StageSpan("a", Stage.PRUNED, 1, 2)]


def test_an_episode_is_told_beside_its_twin_and_drawn(tmp_path):
    picture = tmp_path / "episode.png"
    with (tmp_path / "said.txt").open("w") as said:
        task = tiny_task(tmp_path, horizon=12)
        narrate_episode("heuristic", task, 0, Game(), Console(file=said, width=200), picture)
    text = (tmp_path / "said.txt").read_text()
    assert text.count("without growth") == 13, "once an epoch, and once at the end"
    assert f"picture: {picture}" in text
    assert picture.read_bytes().startswith(b"\x89PNG")
