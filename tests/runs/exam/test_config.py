"""What cannot be examined is refused before anything is played."""

import re
import shlex
from dataclasses import replace

import pytest
import tyro

from esper.contracts import EsperError
from esper.rl import BadCheckpoint
from esper.runs.backends import BadWorkers
from esper.runs.exam import ExamConfig
from esper.runs.seeds import EXAM_SEEDS
from tests.runs.exam.exams import hold

BAD = [
    ({"task": ()}, "an exam needs at least one --task and one --policy"),
    ({"policy": ()}, "an exam needs at least one --task and one --policy"),
    ({"task": ("digitz",)}, "no task 'digitz'; did you mean 'digits'"),
    ({"task": ("digits", "digits")}, "--task names 'digits' 2 times; name it once"),
    ({"policy": ("none", "none", "random")}, "--policy names 'none' 2 times; name it once"),
    ({"seeds": 0}, "seeds 0 to -1 are not held out from training"),
    ({"first_seed": -1}, "seeds -1 to 0 are not held out from training"),
    ({"first_seed": len(EXAM_SEEDS) - 1}, "give --first-seed and --seeds within 0 to 499999"),
    ({"policy": ("heuristik",)}, "no policy 'heuristik'; did you mean 'heuristic'"),
    ({"policy": ("sampled:heuristic",)}, "no policy 'sampled:heuristic'"),
    ({"policy": ("schedule:nowhere.toml",)}, "nowhere.toml: there is no such file"),
    ({"policy": ("none", "scratch:heuristic")}, "'scratch:heuristic' needs 'heuristic' in the same exam; known: none"),
    ({"policy": ("heuristic", "widened:heuristik")}, "needs 'heuristik' in the same exam; did you mean 'heuristic'"),
    ({"policy": ("none", "scratch:none", "widened:scratch:none")}, "'widened:scratch:none' needs 'scratch:none' in"),
    *(({"policy": (f"search:{k}",)}, f"'search:{k}' names no number of host") for k in ("", "-9", "1e3", "08", 10**9)),
    ({"policy": ("search:7",)}, "a search with 7 host trainings finds nothing; give at least 8"),
    ({"reference": "heuristc"}, "--reference 'heuristc' sits no exam; did you mean 'heuristic'"),
    ({"rent": float("nan")}, "rent_weight"),
    ({"timeout": 0.5}, "timeout = 0.5; give a number of seconds from 1 to 1,000,000"),
    ({"device": "abacus"}, "device 'abacus' cannot be used here"),
    ({"task": ("family:smal",)}, "no family 'smal'; did you mean 'small'"),
    ({"task": ("family:small-exam",)}, "'family:small-exam' is a family; say with --tasks 60 how many"),
    ({"task": ("family:small-exam",), "tasks": -1}, "tasks is -1; give a number from 1 to 10,000"),
    ({"task": ("family:small-exam", "spirals"), "tasks": 2}, "is reported otherwise than single tasks"),
    ({"task": ("family:small-exam",), "tasks": 2, "policy": ("random",)}, "add 'none' to --policy"),
    ({"tasks": 2}, "--tasks and --survey belong to families; add --task family:small-exam, or leave them out"),
    ({"survey": ("some.parquet",)}, "--tasks and --survey belong to families"),
    ({"task": ("cifar10",), "data_dir": "/nowhere"}, "there is no directory /nowhere"),
]


def test_an_exam_that_cannot_be_held_is_refused_before_it_begins(asked):
    asked.check()
    for changed, message in BAD:
        with pytest.raises(EsperError, match=re.escape(message)):
            replace(asked, **changed).check()


def test_a_file_that_is_no_controller_is_refused_before_the_exam_begins(asked, tmp_path):
    (tmp_path / "bad.pt").write_bytes(b"not a checkpoint")
    with pytest.raises(BadCheckpoint, match=r"bad\.pt cannot be read as a checkpoint"):
        replace(asked, policy=(str(tmp_path / "bad.pt"),)).check()


def test_too_many_workers_for_one_process_are_refused(asked, tmp_path):
    with pytest.raises(BadWorkers, match="backend 'serial' has one worker, not 2"):
        hold(replace(asked, workers=2), tmp_path / "exam")


def test_the_command_of_an_exam_holds_the_same_exam(asked):
    config = replace(asked, policy=("none", "schedule:my 'own' file.toml"), first_seed=3, rent=0.1, reference="none")
    program, command, *words = shlex.split(config.command())
    assert (program, command) == ("esper", "exam")
    assert replace(tyro.cli(ExamConfig, args=words), backend=config.backend) == config


def test_single_tasks_are_examined_on_50_seeds_and_tasks_of_families_on_2():
    assert len(ExamConfig().seed_range()) == 50
    assert len(ExamConfig(task=("family:small-exam",), tasks=60).seed_range()) == 2
    assert len(ExamConfig(task=("family:small-exam",), tasks=60, seeds=3).seed_range()) == 3


def test_a_family_stands_for_its_first_tasks():
    config = ExamConfig(task=("family:small-exam", "family:far-exam"), tasks=2)
    assert config.stages()["family:far-exam"] == ("family:far-exam/0", "family:far-exam/1")
    assert config.task_names() == (*config.stages()["family:small-exam"], *config.stages()["family:far-exam"])
