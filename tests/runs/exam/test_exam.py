"""An exam is the same wherever it is held, however often it is stopped, and whatever is added to it later."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import esper
from esper.controller import NetworkConfig
from esper.environment import Split, Splits
from esper.rl import save_checkpoint
from esper.runs import TrainConfig
from esper.runs.directory import Unwritable
from esper.runs.exam import ExamConfig, read_rows
from esper.runs.exam.directory import ExamBusy, OtherExam
from esper.runs.exam.identity import fingerprint
from esper.runs.exam.results import ExamResults
from esper.runs.run import new_learner
from tests.runs.exam.exams import ALL, EVERYONE, TRIALS, Witness, hold, timeless
from tests.runs.worlds import tiny_task


@pytest.fixture
def quick(tmp_path):
    """Two policies on two seeds."""
    return ExamConfig(task=(tiny_task(tmp_path),), policy=("none", "random"), seeds=2, backend="serial")


@pytest.fixture
def copy(recorded, tmp_path):
    """The recorded exam, to do with as one likes."""
    return Path(shutil.copytree(recorded.directory, tmp_path / "copy"))


def controller(directory, seed=0):
    """A checkpoint of a newborn controller."""
    path = directory / "controller.pt"
    save_checkpoint(path, new_learner(TrainConfig(seed=seed, network=NetworkConfig(slot=8, trunk=16, memory=16))), {})
    return str(path)


def files_of(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


# Results


def test_an_exam_leaves_its_rows_and_its_report(recorded):
    keys = [(row.policy, row.seed) for row in recorded.rows]
    assert keys == [(policy, seed) for policy in EVERYONE for seed in (0, 1)]
    found = files_of(recorded.directory)
    assert {"exam.json", "rows.jsonl", "exam.csv", "exam.parquet", "exam.md", "exam.html"} <= set(found)
    assert read_rows(recorded.directory / "exam.csv") == recorded.rows
    assert b"heuristic" in found["exam.md"]


def test_controls_are_made_after_what_grew_on_the_same_seed(recorded):
    rows = {(row.policy, row.seed): row for row in recorded.rows}
    grown = {seed: rows["heuristic", seed].parameters for seed in (0, 1)}
    assert grown[0] != grown[1]
    for seed, parameters in grown.items():
        assert rows["scratch:heuristic", seed].parameters == parameters
        assert rows["widened:heuristic", seed].parameters >= parameters
    assert {row.host_parameters for row in rows.values()} == {47}


def test_workers_give_the_rows_of_one_process_bit_for_bit(recorded, tmp_path):
    many = hold(replace(recorded.config, backend="process", workers=2), tmp_path / "many")
    assert timeless(many) == timeless(recorded.rows)


def test_a_controller_plays_its_likeliest_choices_and_when_sampled_others(quick, tmp_path):
    brain = controller(tmp_path)
    rows = timeless(hold(replace(quick, policy=(brain, f"sampled:{brain}")), tmp_path / "exam"))
    assert [replace(row, policy="") for row in rows[:2]] != [replace(row, policy="") for row in rows[2:]]


def test_a_search_plays_the_schedule_that_it_leaves_in_the_directory(recorded, tmp_path):
    policy = f"schedule:{recorded.directory / 'schedule-tiny-8.toml'}"
    given = hold(replace(recorded.config, policy=(policy,)), tmp_path / "given")
    searched = [row for row in recorded.rows if row.policy == "search:8"]
    assert timeless(given) == [replace(row, policy=policy) for row in timeless(searched)]


def test_tasks_of_the_same_file_name_are_searched_one_by_one(quick, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    tasks = (tiny_task(tmp_path / "a"), tiny_task(tmp_path / "b", horizon=7))
    both, second = Witness(), Witness()
    rows = hold(replace(quick, task=tasks, policy=("search:8",), first_seed=7), tmp_path / "exam", both)
    assert [(row.task, row.seed) for row in rows] == [(task, seed) for task in tasks for seed in (7, 8)]
    assert both.played == 2 * (TRIALS + 2)
    assert len(list((tmp_path / "exam").glob("schedule-tiny-8*.toml"))) == 2
    assert (
        hold(replace(quick, task=tasks[1:], policy=("search:8",), first_seed=7), tmp_path / "exam", second) == rows[2:]
    )
    assert second.played == 0


def test_a_larger_search_pays_for_the_trials_that_a_smaller_one_has_not_made(recorded, copy):
    witness = Witness()
    hold(replace(recorded.config, policy=("search:20",)), copy, witness)
    assert witness.stages[0][1:] == (18, TRIALS)
    assert witness.played < 18 + 2


def test_the_reference_is_the_first_controller_unless_another_is_named(tmp_path):
    brain = controller(tmp_path)
    names = ("none", f"sampled:{brain}", brain, f"scratch:{brain}")
    assert ExamConfig(policy=names).compared() == f"sampled:{brain}"
    assert ExamConfig(policy=names, reference="none").compared() == "none"
    assert ExamConfig(policy=("none", "heuristic", "scratch:heuristic")).compared() == "scratch:heuristic"


# Interruptions


def test_an_interrupted_exam_goes_on_with_what_is_missing_and_ends_the_same(recorded, tmp_path):
    """It is interrupted in the middle of the search, and then before its last episode."""
    lines, played, kept = tmp_path / "exam" / "rows.jsonl", 0, b""
    for limit in (TRIALS - 1, ALL - TRIALS):
        with pytest.raises(KeyboardInterrupt):
            hold(recorded.config, tmp_path / "exam", Witness(limit))
        assert not (tmp_path / "exam" / "exam.md").exists()
        assert lines.read_bytes().startswith(kept)
        played, kept = played + limit, lines.read_bytes()
    witness = Witness()
    rows = hold(recorded.config, tmp_path / "exam", witness)
    assert witness.played == ALL - played == sum(total - done for _, total, done in witness.stages) == 1
    assert lines.read_bytes().startswith(kept)
    assert timeless(rows) == timeless(recorded.rows)


def started(task, out, kind):
    """An exam far from its end, in a process to which the signal was forbidden, as shells forbid Ctrl-C behind '&'."""
    words = ["exam", "--task", task, "--policy", "none", "random", "--seeds", "9999", "--backend", "serial"]
    return subprocess.Popen(
        [sys.executable, "-m", "esper", *words, "--out", str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(kind, signal.SIG_IGN),
    )


def lines_of(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.parametrize("kind", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_signal_stops_an_exam_that_inherited_it_ignored_and_it_goes_on_later(kind, quick, tmp_path):
    exam = tmp_path / "exam"
    process = started(quick.task[0], exam, kind)
    try:
        expected = timeless(hold(quick, tmp_path / "whole"))
        deadline = time.monotonic() + 60
        while lines_of(exam / "rows.jsonl") < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(kind)
        _, said = process.communicate(timeout=10)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, said
    assert said == f"interrupted; the same command goes on with what is in {exam}\n"
    assert timeless(hold(quick, exam)) == expected


def test_a_signal_during_a_write_waits_for_its_end(quick, tmp_path, monkeypatch):
    write = ExamResults._append

    def write_interrupted(self, line):
        os.kill(os.getpid(), signal.SIGINT)
        write(self, line)

    monkeypatch.setattr(ExamResults, "_append", write_interrupted)
    with pytest.raises(KeyboardInterrupt):
        hold(quick, tmp_path / "exam")
    assert lines_of(tmp_path / "exam" / "rows.jsonl") == 1


def test_lines_that_cannot_be_read_are_left_out_said_and_played_again(recorded, copy):
    rows = copy / "rows.jsonl"
    lines = rows.read_bytes().splitlines()
    torn = [lines[0], b"\xff{", *lines[2:5], b'{"trial": 3}', *lines[6:-1], lines[-1][:-9]]
    rows.write_bytes(b"\n".join(torn))
    witness, again = Witness(), Witness()
    assert timeless(hold(recorded.config, copy, witness)) == timeless(recorded.rows)
    assert witness.played == 3
    assert witness.notes == [
        "left out of rows.jsonl: 3 lines that cannot be read; episodes that are missing are played again"
    ]
    hold(recorded.config, copy, again)
    assert again.played == 0


def test_a_finished_exam_plays_nothing_and_says_the_same_to_the_last_bit(recorded, copy):
    witness = Witness()
    assert hold(recorded.config, copy, witness) == recorded.rows
    assert witness.played == 0
    before, after = files_of(recorded.directory), files_of(copy)
    assert all(before[name] == after[name] for name in before.keys() - {"exam.parquet", "status.json"})


# What is added


def test_seeds_policies_and_tasks_can_be_added_and_only_they_are_played(recorded, copy, tmp_path):
    (tmp_path / "other").mkdir()
    other = tiny_task(tmp_path / "other", horizon=3)
    for changed, missing in [
        ({"seeds": 3}, len(EVERYONE)),
        ({"policy": (*EVERYONE, "random")}, 2),
        ({"task": (*recorded.config.task, other), "policy": ("none",)}, 2),
    ]:
        witness = Witness()
        config = replace(recorded.config, **changed)
        rows = hold(config, copy, witness)
        assert witness.played == missing, changed
        assert len(rows) == len(config.task) * len(config.policy) * config.seeds
        known = {(row.task, row.policy, row.seed): row for row in recorded.rows}
        assert all(row == known.get((row.task, row.policy, row.seed), row) for row in rows)
        assert read_rows(copy / "exam.csv") == rows, "the report covers what was asked for"


def test_what_was_added_is_what_a_new_exam_would_find(quick, tmp_path):
    hold(replace(quick, policy=("none",), seeds=1), tmp_path / "grown")
    assert timeless(hold(quick, tmp_path / "grown")) == timeless(hold(quick, tmp_path / "new"))


# What is refused


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rent": 0.2}, r"copy knows task '.*' at rent 0\.08, now 0\.2; give another --out, or go on as it was held"),
        ({"device": "cuda"}, "was held on cpu, now cuda; give another --out"),
        ({"device": "cuda", "rent": 0.0}, r"was held on cpu, now cuda and knows task '.*' at rent 0\.08, now 0\.0"),
    ],
)
def test_rows_of_other_terms_are_refused_by_name_and_left_alone(changed, message, recorded, copy):
    before = files_of(copy)
    with pytest.raises(OtherExam, match=message):
        hold(replace(recorded.config, **changed), copy)
    assert files_of(copy) == before


def test_rows_of_other_versions_are_refused_by_name(recorded, copy, monkeypatch):
    monkeypatch.setattr(esper, "__version__", "9.9")
    monkeypatch.setattr(torch, "__version__", "8.8")
    with pytest.raises(OtherExam, match=r"with esper \d.*, now 9\.9 and was held with torch \d.*, now 8\.8"):
        hold(recorded.config, copy)


def test_the_same_names_with_other_contents_are_refused(quick, tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text('[[seed]]\nepoch = 0\nslot = "layer0"\nblueprint = "mlp"\n')
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    best = Path(controller(tmp_path)).rename(tmp_path / "run" / "checkpoints" / "best.pt")
    policies = ("none", f"schedule:{plan}", str(tmp_path / "run"), f"sampled:{best}")
    config = replace(quick, policy=policies, seeds=1)
    hold(config, tmp_path / "exam")
    for file in (Path(quick.task[0]), plan, best):
        before = file.read_bytes()
        file.write_bytes(before + b" ")
        with pytest.raises(OtherExam, match=r"exam knows '.*' with other contents"):
            hold(config, tmp_path / "exam")
        file.write_bytes(before)
    hold(config, tmp_path / "exam")


def test_other_data_under_the_same_task_are_refused_and_another_place_is_not(recorded, copy):
    mark = copy / "exam.json"
    hold(replace(recorded.config, data_dir=str(copy)), copy)
    known = json.loads(mark.read_text())
    mark.write_text(json.dumps({**known, "data": dict.fromkeys(known["data"], "of last year")}))
    with pytest.raises(OtherExam, match=r"knows task '.*tiny\.toml' with other data"):
        hold(recorded.config, copy)


def test_a_fingerprint_tells_data_apart():
    def splits(x, y):
        split = Split(torch.tensor(x), torch.tensor(y))
        return Splits(split, split, split)

    one = splits([[1.0, 2.0]], [0])
    others = [splits([[1.0], [2.0]], [0]), splits([[1.0, 2.5]], [0]), splits([[1.0, 2.0]], [1])]
    assert len({fingerprint(each) for each in (one, *others)}) == 4
    assert fingerprint(one) == fingerprint(splits([[1.0, 2.0]], [0]))


def test_an_exam_that_does_not_say_how_it_was_held_is_refused(recorded, copy):
    newer = json.dumps({**json.loads((copy / "exam.json").read_text()), "format": 4})
    for mark in ('{"task": ["tiny"], "seeds": 2, "rent": 0.08, "sums": {}}', newer, "\udcff", "[]", ""):
        (copy / "exam.json").write_text(mark, errors="surrogateescape")
        with pytest.raises(OtherExam, match=r"exam\.json does not say on which device, .*; give another --out to hold"):
            hold(recorded.config, copy)


def test_an_exam_is_held_by_one_process_at_a_time(quick, tmp_path):
    class Second(Witness):
        def advance(self):
            super().advance()
            with pytest.raises(
                ExamBusy, match=r"exam is written by another 'esper exam'; wait for it, or give another"
            ):
                hold(quick, tmp_path / "exam")

    witness = Second()
    assert len(hold(quick, tmp_path / "exam", witness)) == witness.played == lines_of(tmp_path / "exam" / "rows.jsonl")
    hold(quick, tmp_path / "exam")


def test_what_a_killed_write_has_left_is_removed(recorded, copy, quick, tmp_path):
    begun = tmp_path / "begun"
    begun.mkdir()
    for path in (copy / ".exam.md.4711.part", begun / ".exam.json.4711.part"):
        path.write_text("half")
    hold(recorded.config, copy)
    hold(quick, begun)
    assert not [*copy.glob(".*"), *begun.glob(".*")]


def test_a_directory_that_holds_something_else_is_refused(quick, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("mine")
    with pytest.raises(OtherExam, match="other is not empty and holds no exam; give an --out that is new or empty"):
        hold(quick, other)
    with pytest.raises(
        Unwritable, match=r"thesis\.txt cannot be written \(File exists\); mend that, or give another --out"
    ):
        hold(quick, other / "thesis.txt")
    assert files_of(other) == {"thesis.txt": b"mine"}


def test_what_the_system_refuses_is_said_in_its_words_with_fitting_advice(tmp_path):
    (tmp_path / "file").write_text("")
    config = ExamConfig(task=(tiny_task(tmp_path),), policy=("none",), seeds=1)
    with pytest.raises(Unwritable, match=r"cannot be written \(Not a directory\); mend that, or give another --out"):
        hold(config, tmp_path / "file" / "exam")
