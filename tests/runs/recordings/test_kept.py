"""Runs and exams keep their episodes when they are asked to, and are the same runs and exams."""

from dataclasses import replace

import pytest
import torch

from esper.rl import load_checkpoint
from esper.runs import Run, RunDirectory
from esper.runs.exam import ExamConfig
from esper.runs.recordings import BadRecording, Recording
from tests.runs.exam.exams import Witness, hold, timeless
from tests.runs.recordings.recordings import files_in
from tests.runs.worlds import silent, small_config, tiny_task, trained


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of two rounds that kept its episodes."""
    folder = tmp_path_factory.mktemp("run")
    config = small_config(folder, rounds=2, compare=1, trajectories=True)
    return config, trained(folder / "run", config)[0]


def test_a_run_keeps_the_episodes_of_every_round_whole(run):
    _, directory = run
    assert list(files_in(directory.path / "recording")) == [
        "round-00000-train.parquet",
        "round-00001-evaluate.parquet",
        "round-00001-train.parquet",
        "round-00002-compare.parquet",
    ]
    opened = Recording.open(directory.path)
    assert (opened.schema.reward, opened.policies) == ("frugal", ("learned", "greedy", "none", "heuristic", "random"))
    learned = list(opened.only(["learned"]).trajectories())
    assert [each.about.round for each in learned] == [0] * 3 + [1] * 3
    assert all(each.about.drawn and each.values is not None for each in learned)
    assert not any(each.about.drawn or each.log_probs.any() for each in opened.only(["greedy"]).trajectories())


def test_keeping_episodes_changes_nothing_else(run, tmp_path):
    config, directory = run
    other, _ = trained(tmp_path / "run", replace(config, trajectories=False))
    assert not (other.path / "recording").exists()
    one, two = (load_checkpoint(each.checkpoint(2)).weights for each in (directory, other))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_round_that_is_played_again_writes_the_same_file_again(run):
    config, directory = run
    before = files_in(directory.path / "recording")
    directory.checkpoint(2).unlink()
    Run(RunDirectory.open(directory.path), config, silent()).resume()
    assert files_in(directory.path / "recording") == before


@pytest.fixture
def exam_config(tmp_path):
    policies = ("none", "heuristic", "scratch:heuristic")
    return ExamConfig(task=(tiny_task(tmp_path),), policy=policies, seeds=2, backend="serial", trajectories=True)


def test_an_exam_keeps_the_episodes_of_those_that_grow_also_after_ctrl_c(exam_config, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        hold(exam_config, tmp_path / "exam", Witness(limit=3))
    with pytest.raises(BadRecording, match="has no recording"):
        Recording.open(tmp_path / "exam")
    rows = hold(exam_config, tmp_path / "exam")
    found = list(Recording.open(tmp_path / "exam").trajectories())
    assert [(each.about.policy, each.about.seed) for each in found] == [
        ("none", 0), ("heuristic", 0), ("none", 1), ("heuristic", 1),
    ]  # fmt: skip
    assert {each.name for each in (tmp_path / "exam" / "recording").iterdir()} == {"part-00000.parquet"}
    assert timeless(rows) == timeless(hold(replace(exam_config, trajectories=False), tmp_path / "plain"))
    assert not (tmp_path / "plain" / "recording").exists()
