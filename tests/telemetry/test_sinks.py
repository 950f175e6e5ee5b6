"""Metrics are handed to TensorBoard, W&B and MLflow, and nothing that happens there reaches the run."""

import math
import os
import random
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
import pytest
import torch

from esper.telemetry.sinks import SINKS, MissingSink, UnknownSink, check_sinks, open_sinks

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
EVERY = tuple(SINKS)
SETTINGS = {"seed": 3, "ppo": {"target_kl": math.inf, "clip": None}, **{f"number_{i}": i for i in range(120)}}
TAKES = {
    "tensorboard": ("torch.utils.tensorboard", "SummaryWriter", "add_scalar"),
    "wandb": ("wandb", "Run", "log"),
    "mlflow": ("mlflow", "MlflowClient", "log_batch"),
}
"""What each library takes figures with. Only the tests that open it wait the seconds that its import takes."""


@pytest.fixture(autouse=True)
def _own_places(tmp_path, monkeypatch):
    """Libraries find neither the user's settings nor a place of their own to write to."""
    for place in ("home", "cwd", "run"):
        (tmp_path / place).mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    with patch.dict(os.environ):
        for name in [name for name in os.environ if name.startswith(("WANDB_", "MLFLOW_", "XDG_"))]:
            del os.environ[name]
        os.environ["HOME"] = str(tmp_path / "home")
        yield


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run"


@pytest.fixture
def reports():
    return []


@pytest.fixture
def opened(run, reports):
    """Opens sinks for the run; what they report is in `reports`."""

    def opener(*names: str):
        return open_sinks(names, run, "my run", SETTINGS, lambda *said: reports.append(said))

    return opener


def random_states() -> str:
    return repr((random.getstate(), np.random.get_state(), torch.get_rng_state().tolist()))


class Memory:
    """A sink that keeps what it is given, and fails where it is told to."""

    modules: ClassVar[tuple[str, ...]] = ()
    fails_in: ClassVar[str] = ""
    error: ClassVar[BaseException] = OSError("no space left on device")
    calls: ClassVar[list[Any]]

    def __init__(self, directory, name, settings):
        self._call("open", name, settings)

    def write(self, figures, round):
        self._call("write", figures, round)

    def close(self):
        self._call("close")

    def _call(self, name, *given):
        random.random(), np.random.rand(), torch.rand(())
        type(self).calls.append((name, *given))
        if name == self.fails_in:
            raise self.error


@pytest.fixture
def memory(monkeypatch):
    """Adds a sink of the given name that fails in one of its methods."""

    def make(name: str, fails_in: str = "", error: BaseException = Memory.error) -> type[Memory]:
        kind = type("Memory", (Memory,), {"fails_in": fails_in, "error": error, "calls": []})
        monkeypatch.setitem(SINKS, name, kind)
        return kind

    return make


@pytest.mark.parametrize("sink", EVERY)
def test_a_real_sink_takes_all_figures_by_name_and_round_also_when_it_is_opened_again(
    sink, opened, run, reports, monkeypatch
):
    module, owner_name, method = TAKES[sink]
    owner = getattr(import_module(module), owner_name)
    take, taken = getattr(owner, method), []
    monkeypatch.setattr(owner, method, lambda *given, **named: taken.append((given, named)) or take(*given, **named))
    before = random_states()
    for number in (71, 72):
        with opened(sink) as sinks:
            sinks.write({"round/return": 0.25, "round/gain": math.nan, "update/kl": math.inf}, number)
        told = "".join(f"{list(map(vars_of, given))} {named}" for given, named in taken)
        for word in ("round/return", "0.25", "round/gain", "nan", "update/kl", "inf", str(number)):
            assert word in told, word
        taken.clear()
    assert reports == []
    assert random_states() == before
    assert [path.name for path in run.iterdir()] == [sink]


def vars_of(value: Any) -> Any:
    """What MLflow's records hold, which do not show it themselves."""
    if isinstance(value, list):
        return [vars_of(each) for each in value]
    return vars(value) if type(value).__module__.startswith("mlflow.entities") else value


@pytest.mark.parametrize("sink", EVERY)
def test_a_real_sink_that_cannot_write_is_reported_and_the_run_goes_on(sink, opened, run, reports):
    (run / sink).write_text("a file is in the way")
    with opened(sink) as sinks:
        sinks.write({"a": 1.0}, 1)
    assert [name for name, _ in reports] == [sink]


def test_settings_go_along_by_names_with_dots_and_what_a_library_draws_is_put_back(opened, memory):
    kind, before = memory("drawing"), random_states()
    with opened("drawing", "drawing") as sinks:
        sinks.write({}, 1)
        sinks.write({"a": 1.0}, 2)
    assert kind.calls[1:] == [("write", {"a": 1.0}, 2), ("close",)], "no figures are no call, a name twice is one sink"
    _, name, settings = kind.calls[0]
    assert (name, settings["ppo.target_kl"], settings["ppo.clip"]) == ("my run", math.inf, "None")
    assert random_states() == before


@pytest.mark.parametrize("fails_in", ["open", "write", "close"])
def test_a_dead_sink_is_reported_once_and_the_others_go_on(fails_in, opened, memory, reports):
    good, bad, other = memory("good"), memory("bad", fails_in), memory("other")
    with opened("good", "bad", "other") as sinks:
        for number in (1, 2):
            sinks.write({"a": 1.0}, number)
    sinks.close()
    called = [[name for name, *_ in kind.calls] for kind in (good, other, bad)]
    assert called[:2] == [["open", "write", "write", "close"]] * 2
    assert called[2] == {"open": ["open"], "write": ["open", "write"], "close": called[0]}[fails_in]
    assert reports == [("bad", "OSError: no space left on device")]


@pytest.mark.parametrize("fails_in", ["open", "write", "close"])
def test_an_interrupt_passes_through(fails_in, opened, memory, reports):
    memory("interrupted", fails_in, KeyboardInterrupt("stop"))
    with pytest.raises(KeyboardInterrupt, match="stop"), opened("interrupted") as sinks:
        sinks.write({"a": 1.0}, 1)
    assert reports == []


def test_mlflow_refuses_a_place_that_it_would_misread(tmp_path, reports):
    (tmp_path / "50%20?").mkdir()
    open_sinks(["mlflow"], tmp_path / "50%20?", "n", {}, lambda *said: reports.append(said)).close()
    ((_, reason),) = reports
    assert "has a '%' or '?' in it; rename it, or set MLFLOW_TRACKING_URI" in reason


def test_an_unknown_sink_is_refused_with_the_nearest_name():
    with pytest.raises(UnknownSink, match=r"no sink 'tensorbord'; did you mean 'tensorboard'\?"):
        check_sinks(["wandb", "tensorbord"])


def test_a_sink_without_its_library_is_refused_with_what_to_install(memory, opened):
    memory("good").modules = ("json", "no_such_library")
    with pytest.raises(
        MissingSink, match=r"'good' needs no_such_library, not installed here; pip install 'esper-growth\[good\]'"
    ):
        opened("good")


def test_every_sink_has_an_extra_of_its_name_that_the_tests_install():
    extras = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    for name in SINKS:
        assert set(extras[name]) <= set(extras["test"])


def test_no_library_is_imported_before_a_sink_is_opened_and_then_it_is_silent_and_calls_nobody(tmp_path, run):
    code = f"""
import sys
from pathlib import Path
import esper.telemetry
from esper.telemetry.sinks import check_sinks, open_sinks
check_sinks({EVERY})
with open_sinks([], Path("none"), "n", {{}}, print) as sinks:
    sinks.write({{"a": 1.0}}, 1)
imported = {{"tensorboard", "wandb", "mlflow", "sqlalchemy", "duckdb"}} & set(sys.modules)
assert not imported and not Path("none").exists(), imported
def watch(event, arguments):
    if event == "socket.getaddrinfo" or event == "socket.connect" and isinstance(arguments[1], tuple):
        print(event, arguments)
sys.addaudithook(watch)
with open_sinks({EVERY}, Path({str(run)!r}), "n", {{"seed": 1}}, print) as sinks:
    sinks.write({{"a": 1.0}}, 1)
"""
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    environment = {**kept, "HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [*(tmp_path / "home").iterdir(), *(tmp_path / "cwd").iterdir()] == []
    assert {path.name for path in run.iterdir()} == set(EVERY)
