"""The command: what it says, what it refuses, and with which exit code."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from esper import __version__
from esper.cli import COMMANDS, main
from esper.environment import all_tasks, digits
from esper.environment.data import _read
from esper.runs import PRESETS, RunDirectory, RunState, TrainConfig, exam
from esper.runs.exam.results import Ledger
from esper.telemetry import Level
from tests.runs.worlds import tiny_task

QUICK = ["--rounds", "2", "--episodes", "2", "--evaluation-episodes", "1", "--network.memory", "16", "--quiet"]


@pytest.fixture
def _no_network(monkeypatch):
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.usefixtures("_no_network")
def test_tasks_are_listed_in_aligned_columns_without_data_or_libraries(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "datasets", None)
    loaded = (digits.cache_info().misses, _read.cache_info().misses)
    assert main(["tasks"]) == 0
    assert (digits.cache_info().misses, _read.cache_info().misses) == loaded
    header, *lines = capsys.readouterr().out.split("\n\n")[0].splitlines()
    assert header.split() == ["task", "parameters", "slots", "horizon", "batch", "data", "summary"]
    for line, each in zip(lines, all_tasks(), strict=True):
        numbers = [f"{each.host_parameters():,}", len(each.slots), each.horizon, each.batch_size]
        assert line.split()[:5] == [each.name, *map(str, numbers)]
        for column in ("data", "summary"):
            at = header.index(column)
            assert line[at - 2 : at] == "  "
        assert line[header.index("data") :].startswith(each.source)
        assert line[header.index("summary") :] == each.summary


def test_the_default_task_is_named(capsys):
    main(["tasks"])
    assert capsys.readouterr().out.endswith("digits-pointwise is the default task.\n")


def test_some_tasks_can_be_asked_for_by_name(capsys):
    assert main(["tasks", "spirals", "cifar10"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["task", "spirals", "cifar10"]


BAD_COMMANDS = [
    (["taks"], "no command 'taks'; did you mean 'tasks'?"),
    (["--vers"], "no command '--vers'"),
    (["tasks", "--wrong"], "Unrecognized options: --wrong"),
    (["train", "--rouns", "3"], "--rounds"),
    (["train", "--rounds", "many"], "--rounds"),
    (["train", "--rounds", "0"], "rounds = 0; give a value from 1"),
    (["train", "--ppo.learning-rate", "0"], "learning_rate = 0.0; give a value from"),
    (["train", "--preset", "quik"], "no preset 'quik'; did you mean 'quick'?"),
    (["train", "--task", "digitz"], "no task 'digitz'; did you mean 'digits'?"),
    (["train", "--reward", "twins"], "twin"),
    (["train", "--config", "nowhere.toml"], "nowhere.toml: there is no such file"),
    (["train", "--device", "cuda:99"], "device 'cuda:99' cannot be used here"),
    (["train", "--backend", "spark"], "spark"),
    (["train", "--persistence", "1.5"], "persistence = 1.5; give a value from 0.0 to 1.0"),
    (["train", "--telemetry.sinks", "tensorbord"], "no sink 'tensorbord'; did you mean 'tensorboard'?"),
    (["train", "--telemetry.level", "loud"], "loud"),
    (["train", "--telemetry.megabytes", "-1"], "telemetry.megabytes = -1.0; give a value from 0.0"),
    (["resume", "nowhere"], "nowhere holds no run"),
    (["resume"], "Directory of the run"),
    (["show", "nowhere"], "nowhere holds no run"),
    (["query", "nowhere", "SELECT 1"], "nowhere holds no run"),
    (["play", "--policy", "heuristik"], "no policy 'heuristik'; did you mean 'heuristic'?"),
    (["play", "--task", "digitz"], "no task 'digitz'"),
    (["exam", "--polcy", "none"], "--policy"),
    (["exam", "--seeds", "many"], "--seeds"),
    (["exam", "--backend", "spark"], "spark"),
    (["exam", "--policy", "heuristik"], "no policy 'heuristik'; did you mean 'heuristic'?"),
    (["exam", "--policy", "none", "none"], "--policy names 'none' 2 times; name it once"),
    (["exam", "--policy", "none", "--seeds", "0"], "are not held out from training; give --first-seed and --seeds"),
    (["exam", "--policy", "none", "--first-seed", "499999"], "within 0 to 499999"),
    (["exam", "--policy", "search:abc"], "'search:abc' names no number of host trainings; write search:500"),
    (["exam", "--policy", "search:3"], "a search with 3 host trainings finds nothing; give at least 8"),
    (["exam", "--policy", "none", "scratch:random"], "'scratch:random' needs 'random' in the same exam"),
    (["exam", "--policy", "none", "--reference", "nune"], "--reference 'nune' sits no exam; did you mean 'none'?"),
    (["exam", "--policy", "none", "--task", "digitz"], "no task 'digitz'; did you mean 'digits'?"),
    (["exam", "--policy", "none", "--device", "cuda:99"], "device 'cuda:99' cannot be used here"),
    (["exam", "--policy", "none", "--timeout", "0"], "timeout = 0; give a number of seconds from 1"),
    (["exam", "--policy", "none", "--rent", "1.5"], "rent_weight is 1.5; give a number from 0 to 1"),
    (["checkpoint", "show", "nowhere.pt"], "there is no file nowhere.pt"),
    (["checkpoint", "shew", "nowhere.pt"], "shew"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_COMMANDS, ids=[" ".join(words) for words, _ in BAD_COMMANDS])
def test_a_mistake_exits_2_with_what_to_do_and_leaves_nothing_behind(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert message in " ".join((said.err + said.out).split()).replace("│ ", "")
    assert "Traceback" not in said.err
    assert list(tmp_path.iterdir()) == []


def test_no_command_shows_all_of_them_and_help_explains_each(capsys):
    assert main([]) == 2
    assert main(["--help"]) == 0
    overview = capsys.readouterr().out
    for name in COMMANDS:
        assert f"\n  {name} " in overview
        assert main([name, "--help"]) == 0
        assert f"usage: esper {name}" in capsys.readouterr().out


def test_help_of_train_names_every_flag_that_people_reach_for_first(capsys):
    main(["train", "--help"])
    text = capsys.readouterr().out
    first = "task preset rounds episodes seed reward backend workers device data-dir profile telemetry.sinks out quiet"
    for flag in first.split():
        assert f"--{flag}" in text


def test_version_is_told(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"esper {__version__}\n"


def test_a_run_is_trained_listed_shown_asked_and_played(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    task = tiny_task(tmp_path)
    words = ["train", "--task", task, "--backend", "serial", "--compare", "1", *QUICK[:-1]]
    assert main([*words, "--out", "runs/one"]) == 0
    said = capsys.readouterr().out
    assert "no growth" in said
    assert "next: esper play --policy runs/one" in said
    assert (tmp_path / "runs" / "one" / "summary.png").read_bytes().startswith(b"\x89PNG")
    assert main(["runs"]) == 0
    assert "finished" in capsys.readouterr().out
    assert main(["show", "runs/one"]) == 0
    assert "2 of 2 rounds" in capsys.readouterr().out
    assert main(["query", "runs/one", "SELECT count(*) AS n FROM episodes WHERE purpose = 'train'"]) == 0
    assert capsys.readouterr().out == "n\n4\n"
    assert main(["play", "--policy", "runs/one", "--task", task, "--seed", "3"]) == 0
    told = capsys.readouterr().out
    assert "epoch   6/6" in told
    assert "the end: accuracy" in told
    assert main(["resume", "runs/one"]) == 0
    assert "is finished" in capsys.readouterr().out
    assert main([*words, "--out", "runs/one"]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert main(["checkpoint", "show", "runs/one/checkpoints/best.pt"]) == 0
    assert main(["checkpoint", "upgrade", "runs/one/checkpoints/best.pt"]) == 0
    assert main(["checkpoint", "export", "runs/one/checkpoints/best.pt", "--out", "small.pt"]) == 0
    assert 2 * Path("small.pt").stat().st_size < Path("runs/one/checkpoints/best.pt").stat().st_size
    assert main(["checkpoint", "export", "small.pt", "--out", "nowhere/small.pt"]) == 2
    assert "nothing to do" in capsys.readouterr().out


@pytest.mark.parametrize("policy", ["none", "random", "heuristic"])
def test_any_policy_plays_and_is_told_epoch_by_epoch(policy, tmp_path, capsys):
    assert main(["play", "--policy", policy, "--task", tiny_task(tmp_path)]) == 0
    assert capsys.readouterr().out.count("epoch ") == 6


def test_flags_replace_the_file_and_the_file_replaces_the_preset(tmp_path, capsys):
    (tmp_path / "my.toml").write_text("episodes = 3\nrounds = 7\n")
    words = ["--preset", "thorough", "--config", str(tmp_path / "my.toml"), "--task", tiny_task(tmp_path), *QUICK]
    assert main(["train", *words, "--backend", "serial", "--compare", "0", "--out", str(tmp_path / "run")]) == 0
    config = RunDirectory.open(tmp_path / "run").config()
    assert (config.rounds, config.episodes) == (2, 2)
    assert config.evaluate_every == PRESETS["thorough"].evaluate_every != TrainConfig().evaluate_every
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("level", Level)
def test_a_level_of_telemetry_is_given_by_the_word_that_the_documents_use(tmp_path, level):
    words = [
        "--task",
        tiny_task(tmp_path),
        *QUICK,
        "--backend",
        "serial",
        "--compare",
        "0",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main(["train", *words, "--telemetry.level", level.value]) == 0
    assert RunDirectory.open(tmp_path / "run").config().telemetry.level is level


def test_ctrl_c_finishes_the_write_in_progress_and_says_how_to_go_on(tmp_path):
    words = ["train", "--task", tiny_task(tmp_path), "--rounds", "500", "--episodes", "2", "--workers", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "esper", *words, "--out", str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    run = RunDirectory(tmp_path / "run")
    deadline = time.monotonic() + 120
    while len(run.saved()) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert f"go on with: esper resume {run.path}" in err
    assert "Traceback" not in err
    assert run.state() is RunState.INTERRUPTED
    assert not list(run.checkpoints.glob(".*"))


EXAM = ["--policy", "none", "heuristic", "search:8", "scratch:heuristic", "--seeds", "2", "--backend", "serial"]


def test_an_exam_is_held_reported_and_not_held_again(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["exam", "--task", tiny_task(tmp_path), *EXAM, "--out", "exams/one"]
    assert main(words) == 0
    said = capsys.readouterr()
    assert "search: 8 episodes" in said.out
    for policy in ("none", "heuristic", "search:8", "scratch:heuristic"):
        assert policy in said.out
    assert said.out.endswith("report: exams/one/exam.html\n")
    assert said.err == ""
    for name in ("exam.csv", "exam.parquet", "exam.md", "exam.html"):
        assert (tmp_path / "exams" / "one" / name).stat().st_size > 0
    assert main(words) == 0
    assert "6 episodes, 6 of them known" in capsys.readouterr().out
    assert main([*words, "--rent", "0.1"]) == 2
    said = capsys.readouterr()
    assert "esper: OtherExam: exams/one holds an exam of other" in said.err
    assert "Traceback" not in said.err


def test_a_quiet_exam_says_nothing_and_leaves_its_report(tmp_path, capsys):
    words = ["--task", tiny_task(tmp_path), "--policy", "none", "--seeds", "1", "--backend", "serial", "--quiet"]
    assert main(["exam", *words, "--out", str(tmp_path / "exam")]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "")
    assert (tmp_path / "exam" / "exam.html").exists()


def test_an_exam_that_was_interrupted_exits_130_and_the_same_command_goes_on(tmp_path, monkeypatch, capsys):
    words = ["exam", "--task", tiny_task(tmp_path), *EXAM, "--out", str(tmp_path / "[/b]exam")]

    class Stopped(exam.ExamLines):
        def advance(self):
            super().advance()
            if self._title.endswith("search:8"):
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(exam, "Lines", Stopped)
        assert main(words) == 130
    assert capsys.readouterr().err == f"interrupted; the same command goes on with what is in {tmp_path}/[/b]exam\n"
    assert main(words) == 0
    assert "6 episodes, 1 of them known" in capsys.readouterr().out


def test_ctrl_c_ends_an_exam_with_the_way_on_and_rows_that_can_be_read(tmp_path):
    words = ["exam", "--task", tiny_task(tmp_path), "--policy", "none", "random", "--seeds", "9999", "--workers", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "esper", *words, "--out", str(tmp_path / "exam")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    rows = tmp_path / "exam" / "rows.jsonl"
    deadline = time.monotonic() + 120
    while not (rows.exists() and rows.read_bytes().count(b"\n") >= 2) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert f"interrupted; the same command goes on with what is in {tmp_path / 'exam'}" in err
    assert "Traceback" not in err
    assert len(Ledger(rows).rows) >= 2


def test_a_fresh_process_exits_2_without_a_traceback_and_without_optional_libraries():
    program = "import sys; from esper.cli import main; code = main(['tasks', 'nothing']); "
    program += "sys.exit(code if not {'datasets', 'transformers', 'ray', 'matplotlib'} & set(sys.modules) else 99)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "UnknownTask" in done.stderr


def test_the_package_can_be_run_as_a_module():
    ended = subprocess.run([sys.executable, "-m", "esper", "tasks"], capture_output=True, text=True, check=True)
    assert "digits-pointwise" in ended.stdout
    refused = subprocess.run([sys.executable, "-m", "esper", "grow"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr
