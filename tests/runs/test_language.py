"""Whoever decides on images decides on texts too, and what comes of it is told in the unit of the task."""

from dataclasses import replace
from pathlib import Path

import pytest

from esper.environment import SplitJudge, find_task
from esper.rewards import Mode
from esper.runs import Game, Job, Purpose
from esper.runs.exam.examiner import Control, Examined, Examiner, StaticJob
from esper.runs.exam.summary import Terms, summarise
from esper.runs.exam.tables import tables_of

TASK = """
name = "tiny-text"
text = "words.txt"
slots = ["block0.attention", "block0"]
horizon = 6
batches = 6
batch_size = 8
learning_rate = 0.02
seed_learning_rate = 0.02
judged_by = "bits per character"
rent = 0.001
min_contribution = -1.0
[host]
kind = "gpt"
layers = 1
width = 8
heads = 2
context = 16
"""


@pytest.fixture(scope="module")
def task(tmp_path_factory) -> str:
    path: Path = tmp_path_factory.mktemp("texts") / "tiny-text.toml"
    path.with_name("words.txt").write_text("it was the best of times, it was the worst of times; " * 60)
    path.write_text(TASK)
    return str(path)


@pytest.fixture(scope="module")
def examined(task) -> dict[str, Examined]:
    examiner = Examiner(Game(reward=Mode.SOLO, record=False))
    played = {
        policy: examiner.play(Job(task, 0, policy, Purpose.COMPARE)) for policy in ("none", "heuristic", "tamiyo")
    }
    grown = played["tamiyo"]
    for control in Control:
        name = f"{control}:tamiyo"
        job = StaticJob(task, 0, name, Purpose.COMPARE, control, grown.fossils, grown.row.parameters)
        played[name] = examiner.play(job)
    return played


def test_controllers_of_images_and_rules_play_texts(examined):
    assert all(each.finished.panic is None and each.finished.epochs == 6 for each in examined.values())
    assert examined["none"].row.growth == 1.0


def test_rankers_play_texts(task):
    examiner = Examiner(Game(reward=Mode.SOLO, record=False))
    assert examiner.play(Job(task, 0, "ranker", Purpose.COMPARE)).finished.epochs == 6


def test_controls_of_a_grown_transformer_have_its_topology_and_its_size(examined):
    grown, scratch, widened = (examined[name].row for name in ("tamiyo", "scratch:tamiyo", "widened:tamiyo"))
    assert scratch.parameters == grown.parameters
    assert widened.parameters >= grown.parameters


def test_an_exam_tells_bits_per_character(examined):
    rows = [replace(each.row) for each in examined.values()]
    none = next(row for row in rows if row.policy == "none")
    assert none.told == pytest.approx(none.loss / 0.6931472, rel=1e-5)
    summary = summarise(rows, Terms("tamiyo"))
    policies, differences = list(tables_of(summary.tasks[0], summary))[:2]
    assert policies.header[:3] == ("policy", "bits per character", "quality %")
    assert policies.lines[0][1].text == f"{none.told:.3f}"
    assert differences.header[1] == "bits per character"


def test_the_metric_of_a_task_is_that_of_its_judges(task):
    found = find_task(task)
    split = found.load(None).test
    assert SplitJudge(split, found.classes, found.judged_by).metric == found.metric_on(split)
