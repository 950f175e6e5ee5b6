"""An exam is the same wherever it is held and however often it is stopped; what cannot be held is refused first."""

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import tyro

from esper.contracts import EsperError
from esper.controller import NetworkConfig
from esper.rl import BadCheckpoint, save_checkpoint
from esper.runs import TrainConfig
from esper.runs.backends import BadWorkers
from esper.runs.directory import Unwritable
from esper.runs.exam import Exam, ExamConfig, read_rows
from esper.runs.exam.exam import OtherExam
from esper.runs.run import new_learner
from esper.runs.seeds import EXAM_SEEDS
from tests.runs.worlds import tiny_task

GROWN = ("none", "heuristic", "search:8")
EVERYONE = (*GROWN, "scratch:heuristic", "widened:heuristic")
TRIALS = 8


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


@pytest.fixture
def config(tmp_path):
    return ExamConfig(task=(tiny_task(tmp_path),), policy=EVERYONE, seeds=2, backend="serial")


def hold(config, directory, witness=None):
    config.check()
    return Exam(config, directory, witness or Witness()).hold()


def timeless(rows):
    return [replace(row, seconds=0.0) for row in rows]


def controller(directory, seed=0):
    """A checkpoint of a newborn controller."""
    path = directory / "controller.pt"
    save_checkpoint(path, new_learner(TrainConfig(seed=seed, network=NetworkConfig(slot=8, trunk=16, memory=16))), {})
    return str(path)


# Results


def test_every_policy_sits_on_the_same_held_out_seeds_of_every_task(config, tmp_path):
    (tmp_path / "other").mkdir()
    other = tiny_task(tmp_path / "other", horizon=3)
    config = replace(config, task=(*config.task, other), policy=("none", "random"), first_seed=7)
    rows = hold(config, tmp_path / "exam")
    assert [(row.task, row.policy, row.seed) for row in rows] == [
        (task, policy, seed) for task in config.task for policy in config.policy for seed in (7, 8)
    ]


def test_an_exam_leaves_its_rows_and_its_report(config, tmp_path):
    rows = hold(replace(config, policy=("none", "heuristic")), tmp_path / "exam")
    found = {path.name: path.read_bytes() for path in (tmp_path / "exam").iterdir()}
    assert {"exam.json", "rows.jsonl", "exam.csv", "exam.parquet", "exam.md", "exam.html"} <= set(found)
    assert read_rows(tmp_path / "exam" / "exam.csv") == rows
    assert found["exam.parquet"].startswith(b"PAR1")
    assert b"heuristic" in found["exam.md"]
    assert found["exam.html"].startswith(b"<!")


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_give_the_rows_of_one_process_bit_for_bit(workers, config, tmp_path):
    task, brain = tiny_task(tmp_path, horizon=12), controller(tmp_path)
    policy = (*EVERYONE, "random", brain, f"sampled:{brain}", f"scratch:{brain}")
    config = replace(config, task=(task,), policy=policy)
    one = hold(config, tmp_path / "one")
    many = hold(replace(config, backend="process", workers=workers), tmp_path / "many")
    assert timeless(many) == timeless(one)
    assert any(row.growth > 1 for row in one if row.policy == "scratch:heuristic"), "something was kept"


def test_controls_are_made_after_what_grew_on_the_same_seed(config, tmp_path):
    config = replace(config, task=(tiny_task(tmp_path, horizon=12),), policy=EVERYONE[1:2] + EVERYONE[3:])
    rows = {(row.policy, row.seed): row for row in hold(config, tmp_path / "exam")}
    grown = {seed: rows["heuristic", seed].parameters for seed in (0, 1)}
    assert grown[0] != grown[1]
    for seed, parameters in grown.items():
        assert rows["scratch:heuristic", seed].parameters == parameters
        assert rows["widened:heuristic", seed].parameters >= parameters
    assert {row.host_parameters for row in rows.values()} == {47}


def test_a_controller_plays_its_likeliest_choices_and_when_sampled_others(config, tmp_path):
    brain = controller(tmp_path)
    config = replace(config, policy=(brain, f"sampled:{brain}"), seeds=4)
    first, again = (timeless(hold(config, tmp_path / name)) for name in ("first", "again"))
    assert first == again
    greedy, sampled = ([replace(row, policy="") for row in first if row.policy == each] for each in config.policy)
    assert greedy != sampled


def test_a_search_plays_the_schedule_that_it_leaves_in_the_directory(config, tmp_path):
    found = hold(replace(config, policy=("none", "search:8")), tmp_path / "exam")
    policy = f"schedule:{tmp_path / 'exam' / 'schedule-tiny-8.toml'}"
    given = hold(replace(config, policy=("none", policy)), tmp_path / "given")
    assert timeless(given) == [
        replace(row, policy=policy if row.policy == "search:8" else row.policy) for row in timeless(found)
    ]


def test_tasks_of_the_same_file_name_are_searched_one_by_one(config, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    tasks = (tiny_task(tmp_path / "a"), tiny_task(tmp_path / "b", horizon=7))
    witness = Witness()
    hold(replace(config, task=tasks, policy=("search:8",)), tmp_path / "exam", witness)
    assert witness.played == 2 * (TRIALS + 2)
    assert len(list((tmp_path / "exam").glob("schedule-tiny-8*.toml"))) == 2


def test_a_larger_search_pays_for_the_trials_that_a_smaller_one_has_not_made(config, tmp_path):
    witness = Witness()
    hold(replace(config, policy=("search:8", "search:20")), tmp_path / "exam", witness)
    (_, total, known) = witness.stages[1]
    assert (total, known) == (18, 8)
    assert witness.played < 8 + 18 + 4


def test_the_reference_is_the_first_controller_unless_another_is_named(tmp_path):
    brain = controller(tmp_path)
    names = ("none", f"sampled:{brain}", brain, f"scratch:{brain}")
    assert ExamConfig(policy=names).compared() == f"sampled:{brain}"
    assert ExamConfig(policy=names, reference="none").compared() == "none"
    assert ExamConfig(policy=("none", "heuristic", "scratch:heuristic")).compared() == "scratch:heuristic"


def test_the_command_of_an_exam_holds_the_same_exam(config):
    config = replace(config, policy=("none", "schedule:my 'own' file.toml"), first_seed=3, rent=0.1, reference="none")
    program, command, *words = shlex.split(config.command())
    assert (program, command) == ("esper", "exam")
    again = tyro.cli(ExamConfig, args=words)
    assert replace(again, backend=config.backend) == config


# Interruptions

ALL = TRIALS + 2 * len(EVERYONE)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An exam that nobody interrupted, and its rows."""
    directory = tmp_path_factory.mktemp("whole")
    config = ExamConfig(task=(tiny_task(directory),), policy=EVERYONE, seeds=2, backend="serial")
    return config, hold(config, directory / "exam")


@pytest.mark.parametrize("limit", [TRIALS - 1, TRIALS + 3, ALL - 1, ALL])
def test_an_interrupted_exam_goes_on_with_what_is_missing_and_ends_the_same(limit, whole, tmp_path):
    config, expected = whole
    with pytest.raises(KeyboardInterrupt):
        hold(config, tmp_path / "exam", Witness(limit))
    assert not (tmp_path / "exam" / "exam.md").exists()
    kept = (tmp_path / "exam" / "rows.jsonl").read_bytes()
    witness = Witness()
    rows = hold(config, tmp_path / "exam", witness)
    assert witness.played == ALL - limit
    assert sum(total - done for _, total, done in witness.stages) == ALL - limit
    assert (tmp_path / "exam" / "rows.jsonl").read_bytes().startswith(kept)
    assert timeless(rows) == timeless(expected)


def test_an_exam_interrupted_among_workers_goes_on_in_one_process(whole, tmp_path):
    config, expected = whole
    with pytest.raises(KeyboardInterrupt):
        hold(replace(config, backend="process", workers=2), tmp_path / "exam", Witness(TRIALS + 3))
    witness = Witness()
    rows = hold(config, tmp_path / "exam", witness)
    assert witness.played == ALL - TRIALS - 3
    assert timeless(rows) == timeless(expected)


def test_a_torn_last_line_costs_one_episode(config, tmp_path):
    config = replace(config, policy=("none", "random"))
    whole = hold(config, tmp_path / "exam")
    ledger = tmp_path / "exam" / "rows.jsonl"
    ledger.write_bytes(ledger.read_bytes()[:-9])
    witness = Witness()
    assert timeless(hold(config, tmp_path / "exam", witness)) == timeless(whole)
    assert witness.played == 1


def test_a_finished_exam_plays_nothing_and_says_the_same_to_the_last_bit(config, tmp_path):
    config = replace(config, policy=("none", "search:8", "scratch:search:8"))
    rows = hold(config, tmp_path / "exam")
    files = {path.name: path.read_bytes() for path in (tmp_path / "exam").glob("exam.[jmc]*")}
    witness = Witness()
    assert hold(config, tmp_path / "exam", witness) == rows
    assert witness.played == 0
    assert {name: (tmp_path / "exam" / name).read_bytes() for name in files} == files


# What is refused


@pytest.mark.parametrize(
    "changed",
    [{"seeds": 3}, {"first_seed": 1}, {"rent": 0.2}, {"policy": ("none",)}, {"task": ("spirals",)}],
    ids=lambda changed: next(iter(changed)),
)
def test_another_exam_s_directory_is_refused_and_left_alone(changed, config, tmp_path):
    config = replace(config, policy=("none", "random"))
    hold(config, tmp_path / "exam")
    before = {path: path.read_bytes() for path in (tmp_path / "exam").iterdir()}
    with pytest.raises(OtherExam, match=r"holds an exam of other tasks, policies \(or weights\).* give another --out"):
        Exam(replace(config, **changed), tmp_path / "exam", Witness())
    assert {path: path.read_bytes() for path in (tmp_path / "exam").iterdir()} == before


def test_where_an_exam_runs_makes_it_no_other(config, tmp_path):
    elsewhere = replace(config, backend="process", workers=7, timeout=60.0, reference="none")
    assert elsewhere.identity() == config.identity()


@pytest.mark.parametrize("how", ["weights", "sampled weights", "run", "schedule", "task"])
def test_the_same_names_with_other_contents_are_another_exam(how, config, tmp_path):
    file, policy = Path(config.task[0]), "none"
    if how.endswith("weights"):
        file = Path(controller(tmp_path))
        policy = f"sampled:{file}" if how.startswith("sampled") else str(file)
    elif how == "run":
        (tmp_path / "run" / "checkpoints").mkdir(parents=True)
        file = Path(controller(tmp_path)).rename(tmp_path / "run" / "checkpoints" / "best.pt")
        policy = str(tmp_path / "run")
    elif how == "schedule":
        file = tmp_path / "plan.toml"
        file.write_text('[[seed]]\nepoch = 0\nslot = "layer0"\nblueprint = "mlp"\n')
        policy = f"schedule:{file}"
    config = replace(config, policy=(policy,))
    Exam(config, tmp_path / "exam", Witness())
    before = file.read_bytes()
    (tmp_path / "other").mkdir()
    file.write_bytes(
        Path(controller(tmp_path / "other", seed=1)).read_bytes() if file.suffix == ".pt" else before + b" "
    )
    with pytest.raises(OtherExam, match="weights"):
        Exam(config, tmp_path / "exam", Witness())
    file.write_bytes(before)
    Exam(config, tmp_path / "exam", Witness())


def test_a_directory_that_holds_something_else_is_refused(config, tmp_path):
    (tmp_path / "exam").mkdir()
    Exam(config, tmp_path / "exam", Witness())
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    with pytest.raises(OtherExam, match="other is not empty and holds no exam; give an --out that is new or empty"):
        Exam(config, tmp_path / "other", Witness())
    (tmp_path / "other" / "exam.json").write_bytes(b"\xff")
    with pytest.raises(OtherExam, match="give another --out"):
        Exam(config, tmp_path / "other", Witness())
    with pytest.raises(Unwritable, match=r"thesis\.txt cannot be used \(.*\); give an --out that can be written"):
        Exam(config, tmp_path / "other" / "thesis.txt", Witness())
    assert (tmp_path / "other" / "thesis.txt").read_text() == "mine"


BAD = [
    ({"task": ()}, "an exam needs at least one --task and one --policy"),
    ({"policy": ()}, "an exam needs at least one --task and one --policy"),
    ({"task": ("digitz",)}, "no task 'digitz'; did you mean 'digits'"),
    ({"task": ("digits", "digits")}, "--task names 'digits' 2 times; name it once"),
    ({"policy": ("none", "none", "random")}, "--policy names 'none' 2 times; name it once"),
    ({"seeds": 0}, "seeds 0 to -1 are not held out from training"),
    ({"seeds": -1}, "are not held out from training"),
    ({"first_seed": -1}, "seeds -1 to 0 are not held out from training"),
    ({"first_seed": len(EXAM_SEEDS) - 1}, "give --first-seed and --seeds within 0 to 499999"),
    ({"seeds": len(EXAM_SEEDS) + 1}, "give --first-seed and --seeds within 0 to 499999"),
    ({"policy": ("heuristik",)}, "no policy 'heuristik'; did you mean 'heuristic'"),
    ({"policy": ("sampled:heuristic",)}, "no policy 'sampled:heuristic'"),
    ({"policy": ("sampled:nowhere.pt",)}, "no policy 'sampled:nowhere.pt'"),
    ({"policy": ("schedule:nowhere.toml",)}, "nowhere.toml: there is no such file"),
    ({"policy": ("none", "scratch:heuristic")}, "'scratch:heuristic' needs 'heuristic' in the same exam; known: none"),
    ({"policy": ("heuristic", "widened:heuristik")}, "needs 'heuristik' in the same exam; did you mean 'heuristic'"),
    ({"policy": ("none", "scratch:")}, "'scratch:' needs '' in the same exam"),
    ({"policy": ("none", "scratch:none", "widened:scratch:none")}, "'widened:scratch:none' needs 'scratch:none' in"),
    ({"policy": ("search:abc",)}, "'search:abc' names no number of host trainings; write search:500"),
    ({"policy": ("search:",)}, "'search:' names no number"),
    ({"policy": ("search:-9",)}, "'search:-9' names no number"),
    ({"policy": ("search:1e3",)}, "'search:1e3' names no number"),
    ({"policy": ("search:08",)}, "'search:08' names no number"),
    ({"policy": (f"search:{10**9}",)}, "names no number"),
    ({"policy": ("search:7",)}, "a search with 7 host trainings finds nothing; give at least 8"),
    ({"reference": "heuristc"}, "--reference 'heuristc' sits no exam; did you mean 'heuristic'"),
    ({"rent": -0.1}, "rent_weight"),
    ({"rent": float("nan")}, "rent_weight"),
    ({"device": "abacus"}, "device 'abacus' cannot be used here"),
    ({"task": ("cifar10",), "data_dir": "/nowhere"}, "there is no directory /nowhere"),
]


@pytest.mark.parametrize(("changed", "message"), BAD, ids=[message for _, message in BAD])
def test_an_exam_that_cannot_be_held_is_refused_before_it_begins(changed, message, config):
    with pytest.raises(EsperError, match=re.escape(message)):
        replace(config, **changed).check()


def test_a_file_that_is_no_controller_is_refused_before_the_exam_begins(config, tmp_path):
    (tmp_path / "broken.pt").write_bytes(b"nothing")
    with pytest.raises(BadCheckpoint, match=r"broken\.pt"):
        replace(config, policy=(str(tmp_path / "broken.pt"),)).check()


def test_too_many_workers_are_refused_before_the_first_episode(config, tmp_path):
    witness = Witness()
    with pytest.raises(BadWorkers, match="backend 'serial' has one worker, not 2"):
        hold(replace(config, workers=2), tmp_path / "exam", witness)
    assert witness.stages == []


def test_an_exam_s_mark_is_json_that_a_person_can_read(config, tmp_path):
    Exam(config, tmp_path / "exam", Witness())
    mark = json.loads((tmp_path / "exam" / "exam.json").read_text())
    assert mark["policy"] == list(EVERYONE)
    assert list(mark["sums"]) == list(config.task)
