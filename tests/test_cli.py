"""The command: what it says, what it refuses, and with which exit code."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import pytest

from esper import __version__
from esper.cli import COMMANDS, main
from esper.cli.train import _arguments
from esper.environment import all_tasks, digits
from esper.environment.data import _read
from esper.runs import PRESETS, RunDirectory, RunState, TrainConfig
from esper.runs.config import REMOVED
from esper.telemetry import Level
from tests.runs.worlds import tiny_task

QUICK = ["--rounds", "2", "--episodes", "2", "--evaluation-episodes", "1", "--network.memory", "16", "--quiet"]


def said_by(capsys, *words: str, code: int = 0) -> str:
    """What a command prints on stdout."""
    assert main(list(words)) == code
    return str(capsys.readouterr().out)


@pytest.fixture
def _no_network(monkeypatch):
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run of two rounds that was trained by the command."""
    folder = tmp_path_factory.mktemp("runs")
    words = ["train", "--task", tiny_task(folder), "--backend", "serial", "--compare", "1", *QUICK[:-1]]
    assert main([*words, "--out", str(folder / "one")]) == 0
    return folder / "one"


@pytest.mark.usefixtures("_no_network")
def test_tasks_are_listed_in_aligned_columns_without_data_or_libraries(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "datasets", None)
    loaded = (digits.cache_info().misses, _read.cache_info().misses)
    said = said_by(capsys, "tasks")
    assert (digits.cache_info().misses, _read.cache_info().misses) == loaded
    assert said.endswith("digits-pointwise is the default task.\n")
    header, *lines = said.split("\n\n")[0].splitlines()
    assert header.split() == ["task", "parameters", "slots", "horizon", "batch", "data", "summary"]
    for line, each in zip(lines, all_tasks(), strict=True):
        numbers = [f"{each.host_parameters():,}", len(each.slots), each.horizon, each.batch_size]
        assert line.split()[:5] == [each.name, *map(str, numbers)]
        assert line[header.index("data") :].startswith(each.source)
        assert line[header.index("summary") :] == each.summary


def test_some_tasks_can_be_asked_for_by_name_and_as_json(capsys):
    lines = said_by(capsys, "tasks", "spirals", "cifar10").splitlines()
    assert [line.split()[0] for line in lines] == ["task", "spirals", "cifar10"]
    (told,) = json.loads(said_by(capsys, "tasks", "spirals", "--json"))
    assert told["task"] == "spirals"
    assert isinstance(told["parameters"], int)


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
    (["train", "--init", "nowhere.pt"], "there is no file nowhere.pt"),
    (["train", "--episodes", "16", "--repeats", "3"], "episodes = 16 cannot be repeats = 3 of each task"),
    (["train", "--evaluation-task", "digitz"], "no task 'digitz'; did you mean 'digits'?"),
    (["train", "--rent", "1.5"], "rent = 1.5; give a value from 0.0 to 1.0"),
    (["train", "--telemetry.sinks", "tensorbord"], "no sink 'tensorbord'; did you mean 'tensorboard'?"),
    (["train", "--telemetry.level", "loud"], "loud"),
    (["train", "--telemetry.megabytes", "-1"], "telemetry.megabytes = -1.0; give a value from 0.0"),
    (["resume", "nowhere"], "nowhere holds no run"),
    (["resume"], "Directory of the run"),
    (["show", "nowhere"], "nowhere holds no run"),
    (["compare", "nowhere"], "nowhere holds no run"),
    (["runs", "nowhere"], "there is no directory nowhere"),
    (["help", "trane"], "no command 'trane'; did you mean 'train'?"),
    (["query", "nowhere", "SELECT 1"], "nowhere holds no run"),
    (["play", "--policy", "heuristik"], "no policy 'heuristik'; did you mean 'heuristic'?"),
    (["play", "--policy", "nune"], "no policy 'nune'; did you mean 'none'?\n"),
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


def test_a_mistake_exits_2_with_what_to_do_and_leaves_nothing_behind(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments, message in BAD_COMMANDS:
        assert main(arguments) == 2, arguments
        said = capsys.readouterr()
        told = " ".join((said.err + said.out).split()).replace("\u2502 ", "")
        assert " ".join(message.split()) in told, arguments
        assert "Traceback" not in said.err
        assert list(tmp_path.iterdir()) == []


def test_no_command_shows_all_of_them_and_help_explains_each(capsys):
    assert main([]) == 2
    overview = said_by(capsys, "--help")
    for name in COMMANDS:
        assert f"\n  {name} " in overview
        told = said_by(capsys, name, "--help")
        assert f"usage: esper {name}" in told
        assert said_by(capsys, "help", name) == told


def test_help_of_train_fits_two_screens_and_help_all_has_every_setting(capsys):
    text = said_by(capsys, "train", "--help")
    assert len(text.splitlines()) <= 80
    for flag in ("task", "preset", "rounds", "episodes", "seed", "reward", "backend", "workers", "device", "out"):
        assert f"--{flag}" in text
    for flag in ("ppo.learning-rate", "telemetry.sinks", "anomalies.kl-high", "network.memory"):
        assert f"--{flag}" not in text
        assert f"--{flag}" in said_by(capsys, "train", "--help-all")


def test_version_is_told(capsys):
    assert said_by(capsys, "--version") == f"esper {__version__}\n"


HEAVY = {"torch", "sklearn", "scipy", "duckdb", "matplotlib", "ray", "datasets", "transformers", "pandas"}


def test_help_and_version_load_nothing_heavy():
    """So that they answer at once: within half a second where importing torch alone takes seconds."""
    program = "import sys; from esper.cli import main; main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    for word in ("--help", "--version"):
        ended = subprocess.run([sys.executable, "-c", program, word], capture_output=True, text=True, check=True)
        assert not HEAVY & {name.partition(".")[0] for name in ended.stderr.split()}, word


def test_the_environment_is_registered_by_importing_the_package_alone():
    program = (
        "import esper, gymnasium, sys; assert 'torch' not in sys.modules; print(gymnasium.spec('esper/Grow-v0').id)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    assert gymnasium.make("esper/Grow-v0", task="spirals").unwrapped.task.name == "spirals"


def test_a_trained_run_is_listed_and_shown_for_people_and_for_programs(run, capsys):
    assert (run / "summary.png").read_bytes().startswith(b"\x89PNG")
    assert "finished" in said_by(capsys, "runs", str(run.parent))
    (listed,) = json.loads(said_by(capsys, "runs", str(run.parent), "--json"))
    assert (listed["run"], listed["state"], listed["round"]) == (str(run), "finished", 2)
    shown = said_by(capsys, "show", str(run))
    assert "2 of 2 rounds" in shown
    assert "last rounds" in shown
    told = json.loads(said_by(capsys, "show", str(run), "--json"))
    assert [row["round"] for row in told["trained"]] == [1, 2]
    assert told["settings"]["rounds"] == 2


def test_no_runs_yet_is_no_mistake(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert "'esper train' makes one" in said_by(capsys, "runs")


def test_runs_are_compared_with_their_settings_and_a_picture(run, tmp_path, capsys):
    other = tmp_path / "other"
    words = ["--config", str(run / "config.toml"), "--seed", "1", "--rounds", "1", "--quiet", "--out", str(other)]
    assert main(["train", *words]) == 0
    picture = tmp_path / "compared.png"
    said = said_by(capsys, "compare", str(run), str(other), "--picture", str(picture))
    assert "settings that differ" in said
    assert picture.read_bytes().startswith(b"\x89PNG")
    told = json.loads(said_by(capsys, "compare", str(run), str(other), "--json"))
    assert [each["rounds"] for each in told["runs"]] == [2, 1]
    assert told["settings"] == {"rounds": [2, 1], "seed": [0, 1]}


def test_an_answer_in_a_pipe_is_exact_and_one_as_json_too(run, capsys):
    count = "SELECT count(*) AS n FROM episodes WHERE purpose = 'train'"
    assert said_by(capsys, "query", str(run), count) == "n\n4\n"
    third = "SELECT 1/3::DOUBLE AS third, 'a' || chr(9) || 'b' AS text"
    assert said_by(capsys, "query", str(run), third) == f"third\ttext\n{1 / 3!r}\ta\\tb\n"
    assert json.loads(said_by(capsys, "query", str(run), third, "--json")) == [{"third": 1 / 3, "text": "a\tb"}]


def test_a_finished_run_plays_is_not_gone_on_with_and_not_written_over(run, capsys):
    task = RunDirectory.open(run).config().task[0]
    told = said_by(capsys, "play", "--policy", str(run), "--task", task, "--seed", "3")
    assert "epoch   6/6" in told
    assert "the end: accuracy" in told
    assert "is finished" in said_by(capsys, "resume", str(run))
    assert main(["train", "--task", task, *QUICK, "--out", str(run)]) == 2
    assert "is not empty" in capsys.readouterr().err


@pytest.mark.parametrize("name", REMOVED)
def test_a_run_with_a_removed_setting_is_refused_with_what_to_do_which_works(run, tmp_path, capsys, name):
    old = tmp_path / "old"
    shutil.copytree(run, old)
    config = old / "config.toml"
    good = config.read_text()
    config.write_text(f"{name} = 0.95\n{good}")
    for words in (["train", "--config", str(config), "--out", str(tmp_path / "new")], ["resume", str(old)]):
        assert main(words) == 2
        told = " ".join(capsys.readouterr().err.split())
        assert f"{name} = 0.95 is of an older version" in told
        assert "delete the line" in told
        assert "Traceback" not in told
    assert [each.name for each in tmp_path.iterdir()] == ["old"]
    config.write_text(good)
    assert "is finished" in said_by(capsys, "resume", str(old))


def test_a_checkpoint_is_shown_upgraded_and_exported(run, tmp_path, capsys):
    best, small = run / "checkpoints" / "best.pt", tmp_path / "small.pt"
    assert "weights" in said_by(capsys, "checkpoint", "show", str(best))
    assert "nothing to do" in said_by(capsys, "checkpoint", "upgrade", str(best))
    assert main(["checkpoint", "export", str(best), "--out", str(small)]) == 0
    assert 2 * small.stat().st_size < best.stat().st_size
    assert main(["checkpoint", "export", str(small), "--out", str(tmp_path / "nowhere" / "small.pt")]) == 2


def test_any_policy_plays_and_is_told_epoch_by_epoch(tmp_path, capsys):
    for policy in ("none", "random", "heuristic"):
        assert said_by(capsys, "play", "--policy", policy, "--task", tiny_task(tmp_path)).count("epoch ") == 6


def test_flags_replace_the_file_and_the_file_replaces_the_preset(tmp_path):
    (tmp_path / "my.toml").write_text("episodes = 3\nrounds = 7\n")
    given = _arguments(["--preset", "thorough", "--config", str(tmp_path / "my.toml"), "--rounds", "2"]).settings
    assert (given.rounds, given.episodes) == (2, 3)
    assert given.evaluate_every == PRESETS["thorough"].evaluate_every != TrainConfig().evaluate_every


def test_a_level_of_telemetry_is_given_by_the_word_that_the_documents_use():
    for level in Level:
        assert _arguments(["--telemetry.level", level.value]).settings.telemetry.level is level


def stopped(words: list[str], begun) -> tuple[int, str, float]:
    """Start a command where SIGINT is inherited as ignored, as below `make ... &`; ask it to stop once it has begun.

    Its exit code, what it said on stderr, and how many seconds passed until it was gone and its pipes were closed.
    """
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", DEAF, *words], text=True, start_new_session=True, **pipes)
    deadline = time.monotonic() + 120
    while not begun() and time.monotonic() < deadline:
        time.sleep(0.05)
    asked = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    return process.returncode, err, time.monotonic() - asked


DEAF = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
os.execv(sys.executable, [sys.executable, "-m", "esper", *sys.argv[1:]])
"""


def test_ctrl_c_finishes_the_write_in_progress_and_says_how_to_go_on(tmp_path):
    """SIGTERM does the same: tests/runs/test_run.py."""
    run = RunDirectory(tmp_path / "run")
    words = ["train", "--task", tiny_task(tmp_path), "--rounds", "500", "--episodes", "2", "--workers", "2"]
    code, err, seconds = stopped([*words, "--out", str(run.path)], lambda: len(run.saved()) >= 2)
    assert code == 130, err
    assert seconds < 20
    assert f"go on with: esper resume {run.path}" in err
    assert "Traceback" not in err
    assert run.state() is RunState.INTERRUPTED
    assert not list(run.checkpoints.glob(".*"))


def test_an_exam_is_held_reported_and_told_as_json(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["exam", "--task", tiny_task(tmp_path), "--policy", "none", "random", "--seeds", "2", "--backend", "serial"]
    said = said_by(capsys, *words, "--out", "exams/one")
    assert said.endswith("report: exams/one/exam.html\n")
    for name in ("exam.csv", "exam.parquet", "exam.md", "exam.html"):
        assert (tmp_path / "exams" / "one" / name).stat().st_size > 0
    told = json.loads(said_by(capsys, *words, "--out", "exams/one", "--json"))
    assert "random" in json.dumps(told)
    assert said_by(capsys, *words, "--out", "exams/one", "--quiet") == ""


def test_the_package_can_be_run_as_a_module_and_a_mistake_has_no_traceback():
    ended = subprocess.run([sys.executable, "-m", "esper", "tasks", "nothing"], capture_output=True, text=True)
    assert ended.returncode == 2
    assert "UnknownTask" in ended.stderr
    assert "Traceback" not in ended.stderr
