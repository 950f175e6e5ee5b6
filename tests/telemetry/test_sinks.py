"""Metrics arrive in TensorBoard, W&B and MLflow, and nothing that happens there reaches the run."""

import json
import math
import os
import random
import shutil
import struct
import subprocess
import sys
import time
import tomllib
from collections import defaultdict
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
import pytest
import torch
from mlflow import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from wandb.proto.wandb_internal_pb2 import Record

from esper.telemetry import AnomalyRaised
from esper.telemetry.metrics import figures_of
from esper.telemetry.sinks import SINKS, MissingSink, UnknownSink, check_sinks, open_sinks
from tests.telemetry.cases import UPDATE, round_finished

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
EVERY = tuple(SINKS)
Points = dict[str, list[tuple[int, float]]]
Level = StrEnum("Level", ["NORMAL"])
SETTINGS = {
    "seed": 3, "task": ("digits", "spirals"), "level": Level.NORMAL, "ppo": {"target_kl": math.inf, "clip": None},
    **{f"number_{index}": index for index in range(120)},
}  # fmt: skip
FLAT = {"seed": "3", "task": "digits, spirals", "level": "normal", "ppo.target_kl": "inf", "ppo.clip": "None"}
LIBRARIES = ("tensorboard", "wandb", "mlflow", "sqlalchemy")


@pytest.fixture(autouse=True)
def _own_places(tmp_path, monkeypatch):
    """Libraries find neither the user's settings nor a place of their own to write to."""
    for place in ("home", "cwd"):
        (tmp_path / place).mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    with patch.dict(os.environ):
        for name in [name for name in os.environ if name.startswith(("WANDB_", "MLFLOW_", "XDG_"))]:
            del os.environ[name]
        os.environ["HOME"] = str(tmp_path / "home")
        yield


@pytest.fixture(scope="module")
def empty_database(tmp_path_factory):
    """What MLflow takes seconds to make."""
    file = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MlflowClient(f"sqlite:///{file}")
    return file


@pytest.fixture
def run(tmp_path):
    directory = tmp_path / "run"
    directory.mkdir()
    return directory


@pytest.fixture
def with_database(run, empty_database):
    (run / "mlflow").mkdir()
    shutil.copy(empty_database, run / "mlflow")


@pytest.fixture
def reports():
    return []


@pytest.fixture
def opened(run, reports):
    """Opens sinks for the run; what they report is in `reports`."""

    def opener(*names: str, settings: dict[str, Any] = SETTINGS):
        return open_sinks(names, run, "my run", settings, lambda *said: reports.append(said))

    return opener


def tensorboard_points(run: Path) -> Points:
    found = EventAccumulator(str(run / "tensorboard")).Reload()
    return {tag: [(each.step, each.value) for each in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def wandb_file(data: bytes) -> list[Record]:
    """W&B has no public reader: 7 bytes of header, then LevelDB's log of records, whole or in parts."""
    records, part, at, block = [], b"", 7, 32_768
    while at + 7 <= len(data):
        length, kind = struct.unpack_from("<HB", data, at + 4)
        part += data[at + 7 : at + 7 + length]
        at += 7 + length
        at += block - at % block if block - at % block < 7 else 0
        if kind in (1, 4):  # whole, or the last part
            records.append(Record.FromString(part))
            part = b""
    return records


def wandb_ended(file: Path) -> list[Record]:
    """W&B's own process ends the file, and may do it a moment after the run was closed."""
    for _ in range(200):
        records = wandb_file(file.read_bytes())
        if records and records[-1].WhichOneof("record_type") == "exit":
            return records
        time.sleep(0.05)
    raise AssertionError(f"{file} has no end")


def wandb_records(run: Path) -> list[Record]:
    return [record for file in sorted(run.glob("wandb/offline-run-*/*.wandb")) for record in wandb_ended(file)]


def wandb_points(run: Path) -> Points:
    points: Points = defaultdict(list)
    for record in wandb_records(run):
        row = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
        for name, value in row.items():
            if not name.startswith("_"):
                points[name].append((row["_step"], float(value)))
    return dict(points)


def mlflow_client(run: Path) -> MlflowClient:
    return MlflowClient(f"sqlite:///{run / 'mlflow' / 'mlflow.db'}")


def mlflow_run(run: Path) -> Any:
    client = mlflow_client(run)
    (experiment,) = client.search_experiments(filter_string="name = 'esper'")
    (found,) = client.search_runs([experiment.experiment_id])
    return found


def mlflow_points(run: Path) -> Points:
    found, client = mlflow_run(run), mlflow_client(run)
    return {
        name: [(each.step, each.value) for each in client.get_metric_history(found.info.run_id, name)]
        for name in found.data.metrics
    }


POINTS = {"tensorboard": tensorboard_points, "wandb": wandb_points, "mlflow": mlflow_points}


def random_states() -> tuple[Any, ...]:
    numpy_state: Any = np.random.get_state()
    return random.getstate(), numpy_state[1].tolist(), numpy_state[2:], torch.get_rng_state().tolist()


class Memory:
    """A sink that keeps what it is given, and fails where it is told to."""

    modules: ClassVar[tuple[str, ...]] = ()
    fails_in: ClassVar[str] = ""
    error: ClassVar[BaseException] = OSError("no space left on device")
    calls: ClassVar[list[str]]

    def __init__(self, directory, name, settings):
        self._call("open")

    def write(self, figures, round):
        self._call("write")

    def close(self):
        self._call("close")

    def _call(self, name):
        type(self).calls.append(name)
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


@pytest.mark.usefixtures("with_database")
@pytest.mark.parametrize("sink", EVERY)
def test_every_sink_is_read_back_by_round_and_keeps_what_is_not_finite(sink, opened, run, reports):
    with opened(sink) as sinks:
        for number in (1, 2):
            sinks.write({"round/return": number / 4, "round/gain": math.nan}, number)
            sinks.write({"update/kl": math.inf, "update/value_error": -math.inf}, number)
    points = POINTS[sink](run)
    largest = sys.float_info.max if sink == "mlflow" else math.inf
    assert reports == []
    assert points.pop("round/gain") == [
        (1, pytest.approx(math.nan, nan_ok=True)),
        (2, pytest.approx(math.nan, nan_ok=True)),
    ]
    assert points == {
        "round/return": [(1, 0.25), (2, 0.5)],
        "update/kl": [(1, largest), (2, largest)],
        "update/value_error": [(1, -largest), (2, -largest)],
    }


@pytest.mark.usefixtures("with_database")
def test_names_are_the_same_in_all_sinks(opened, run, reports):
    events = [round_finished(0.5), UPDATE, AnomalyRaised("a kind: <new>/..", "", {})]
    figures = {name: figure for event in events for name, figure in figures_of(event).items()}
    with opened(*EVERY) as sinks:
        sinks.write(figures, 1)
    assert reports == []
    for read in POINTS.values():
        assert {name: value for name, ((_, value),) in read(run).items()} == pytest.approx(figures)


@pytest.mark.usefixtures("with_database")
def test_settings_go_along_by_names_with_dots(opened, run):
    with opened(*EVERY) as sinks:
        sinks.write({"a": 1.0}, 1)
    content = EventAccumulator(str(run / "tensorboard")).Reload().PluginTagToContent("hparams")
    told = HParamsPluginData.FromString(content["_hparams_/session_start_info"]).session_start_info.hparams
    assert (told["name"].string_value, told["seed"].number_value) == ("my run", 3.0)
    assert (told["level"].string_value, told["ppo.target_kl"].number_value) == ("normal", math.inf)
    config = {item.key: json.loads(item.value_json) for r in wandb_records(run) for item in r.run.config.update}
    params = mlflow_run(run).data.params
    for name, text in FLAT.items():
        assert str(config[name]).replace("Infinity", "inf") == text
        assert params[name] == text
    assert params["number_119"] == "119"
    assert mlflow_run(run).info.run_name == "my run"


@pytest.mark.usefixtures("with_database")
def test_a_resumed_run_goes_on_in_the_same_runs(opened, run, reports):
    for number in (1, 2):
        with opened(*EVERY, settings={"rounds": number}) as sinks:
            sinks.write({"round/return": number / 4}, number)
            assert mlflow_run(run).info.status == "RUNNING"
        assert mlflow_run(run).info.status == "FINISHED"
    assert reports == []
    assert {record.run.run_id for record in wandb_records(run)} - {""} == {(run / "wandb" / "run_id").read_text()}
    for read in POINTS.values():
        assert read(run) == {"round/return": [(1, 0.25), (2, 0.5)]}


@pytest.mark.usefixtures("with_database")
@pytest.mark.parametrize("sink", EVERY)
def test_sinks_leave_the_global_random_numbers_as_they_were(sink, opened):
    before = random_states()
    with opened(sink) as sinks:
        assert random_states() == before
        sinks.write({"a": 1.0}, 1)
        assert random_states() == before
    assert random_states() == before


def test_what_a_library_draws_is_put_back(opened, memory):
    def draw(self, name):
        random.random(), np.random.rand(), torch.rand(())

    memory("drawing")._call = draw
    before = random_states()
    with opened("drawing") as sinks:
        sinks.write({"a": 1.0}, 1)
    assert random_states() == before


@pytest.mark.parametrize("fails_in", ["open", "write", "close"])
def test_a_dead_sink_is_reported_once_and_the_others_go_on(fails_in, opened, memory, run, reports):
    good, bad, other = memory("good"), memory("bad", fails_in), memory("other")
    with opened("good", "bad", "other") as sinks:
        for number in (1, 2):
            sinks.write({"a": 1.0}, number)
    sinks.close()
    assert good.calls == other.calls == ["open", "write", "write", "close"]
    assert bad.calls == {"open": ["open"], "write": ["open", "write"], "close": good.calls}[fails_in]
    assert reports == [("bad", "OSError: no space left on device")]


@pytest.mark.parametrize("sink", EVERY)
def test_a_real_sink_that_cannot_write_is_reported_and_the_run_goes_on(sink, opened, run, reports):
    (run / sink).write_text("a file is in the way")
    with opened(sink) as sinks:
        sinks.write({"a": 1.0}, 1)
    assert [name for name, _ in reports] == [sink]


def test_mlflow_refuses_a_place_that_it_would_misread(tmp_path, reports):
    (tmp_path / "50%20?").mkdir()
    open_sinks(["mlflow"], tmp_path / "50%20?", "n", {}, lambda *said: reports.append(said)).close()
    assert len(reports) == 1
    assert "has a '%' or '?' in it; rename it, or set MLFLOW_TRACKING_URI" in reports[0][1]


@pytest.mark.parametrize("fails_in", ["open", "write", "close"])
def test_an_interrupt_passes_through(fails_in, opened, memory, reports):
    memory("interrupted", fails_in, KeyboardInterrupt("stop"))
    with pytest.raises(KeyboardInterrupt, match="stop"), opened("interrupted") as sinks:
        sinks.write({"a": 1.0}, 1)
    assert reports == []


def test_an_event_without_figures_reaches_no_sink_and_a_name_twice_is_one_sink(opened, memory):
    kind = memory("good")
    with opened("good", "good") as sinks:
        sinks.write({}, 1)
    assert kind.calls == ["open", "close"]


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


def in_a_new_process(code: str, tmp_path: Path) -> str:
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    environment = {**kept, "HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def test_telemetry_and_a_run_without_sinks_import_no_library(tmp_path):
    code = f"""
import sys
from pathlib import Path
import esper.telemetry
from esper.telemetry.sinks import check_sinks, open_sinks
check_sinks({EVERY})
with open_sinks([], Path("none"), "n", {{}}, print) as sinks:
    sinks.write({{"a": 1.0}}, 1)
print(sorted(set({LIBRARIES}) & set(sys.modules)), Path("none").exists())
"""
    assert in_a_new_process(code, tmp_path) == "[] False\n"


def test_sinks_are_silent_call_nobody_and_write_nowhere_else(tmp_path, run):
    code = f"""
import sys
from pathlib import Path
def watch(event, arguments):
    if event == "socket.getaddrinfo" or event == "socket.connect" and isinstance(arguments[1], tuple):
        print(event, arguments)
sys.addaudithook(watch)
from esper.telemetry.sinks import open_sinks
with open_sinks({EVERY}, Path({str(run)!r}), "n", {{"seed": 1}}, print) as sinks:
    sinks.write({{"a": 1.0}}, 1)
"""
    assert in_a_new_process(code, tmp_path) == ""
    assert [*(tmp_path / "home").iterdir(), *(tmp_path / "cwd").iterdir()] == []
    assert {path.name for path in run.iterdir()} == set(EVERY)
    for read in POINTS.values():
        assert read(run) == {"a": [(1, 1.0)]}
