"""A profile says where the time went, stays in its directory, and changes nothing. CUDA, XPU and MPS never ran here."""

import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity

from esper.telemetry.profiler import activities_for, now, profiled

CPU, PLUGGED_IN = ProfilerActivity.CPU, ProfilerActivity.PrivateUse1
DEVICES = {
    "cpu": [CPU],
    "cuda": [CPU, ProfilerActivity.CUDA],
    "cuda:1": [CPU, ProfilerActivity.CUDA],
    "xpu": [CPU, ProfilerActivity.XPU],
    "mtia": [CPU, ProfilerActivity.MTIA],
    "mps": [CPU],
    torch.device("cuda", 0): [CPU, ProfilerActivity.CUDA],
    torch.device("privateuseone"): [CPU, PLUGGED_IN],
}
WAITS = {"cuda": "accelerator", "xpu:1": "accelerator", "mps": "mps"}


@pytest.fixture
def every_build(monkeypatch):
    """A torch that can profile everything."""
    monkeypatch.setattr(torch.profiler, "supported_activities", lambda: set(ProfilerActivity.__members__.values()))


@pytest.fixture
def calls(monkeypatch):
    """What was done, in order: devices waited for, the clock read."""
    done = []
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda device=None: done.append(("accelerator", device)))
    monkeypatch.setattr(torch.mps, "synchronize", lambda: done.append(("mps", "mps")))
    monkeypatch.setattr(time, "perf_counter", lambda: done.append("clock") or 7.5)
    return done


def multiply(times=1):
    for _ in range(times):
        torch.ones(200, 200) @ torch.ones(200, 200)


def operations(directory, name):
    """The names of all operations in a trace, in its order."""
    with gzip.open(directory / f"{name}.json.gz") as file:
        events = json.load(file)["traceEvents"]
    return [event["name"] for event in events if event.get("cat") == "cpu_op"]


def names(directory):
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize("device", WAITS)
def test_the_clock_is_read_when_the_device_is_done(calls, device):
    """R2-HIGH1."""
    assert now(device) == 7.5
    assert calls == [(WAITS[device], device), "clock"]


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu")])
def test_the_clock_waits_for_no_device_on_the_cpu(calls, device):
    assert now(device) == 7.5
    assert calls == ["clock"]


@pytest.mark.parametrize(("device", "activities"), DEVICES.items(), ids=str)
def test_the_activities_of_a_device_are_the_cpu_and_its_own(every_build, device, activities):
    """R4-M15."""
    assert activities_for(device) == activities


@pytest.mark.parametrize("device", ["cuda", "xpu", "mtia"])
def test_where_torch_cannot_profile_the_device_the_cpu_side_is_profiled_with_a_warning(tmp_path, monkeypatch, device):
    monkeypatch.setattr(torch.profiler, "supported_activities", lambda: {CPU})
    with pytest.warns(UserWarning, match=f"cannot profile work on '{device}'"), profiled(tmp_path, "work", device):
        multiply()
    assert "aten::mm" in operations(tmp_path, "work")


def test_a_profile_names_the_costliest_operations(tmp_path):
    """R4-M16."""
    with profiled(tmp_path / "run" / "profile", "update", "cpu"):
        multiply(20)
    table = (tmp_path / "run" / "profile" / "update.txt").read_text()
    assert "https://ui.perfetto.dev" in table
    assert "update.json.gz" in table
    rows = [line.split() for line in table.splitlines() if "aten::" in line]
    assert rows[0][0] == "aten::mm"
    assert rows[0][-1] == "20"
    shares = [float(row[1].removesuffix("%")) for row in rows]
    assert shares == sorted(shares, reverse=True)


def test_a_profile_is_two_files_in_its_directory_and_nothing_anywhere_else(tmp_path, monkeypatch):
    """R4-M16. A file for a while in the directory for temporary files would find none."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    monkeypatch.chdir(tmp_path)
    with profiled(tmp_path / "profile", "update", "cpu"):
        multiply(3)
    assert operations(tmp_path / "profile", "update").count("aten::mm") == 3
    assert names(tmp_path / "profile") == ["update.json.gz", "update.txt"]
    assert names(tmp_path) == ["profile"]


def test_a_profile_replaces_the_one_of_the_same_name(tmp_path):
    for times in (1, 2):
        with profiled(tmp_path, "update", "cpu"):
            multiply(times)
    assert operations(tmp_path, "update").count("aten::mm") == 2


@pytest.mark.parametrize("name", ["", ".", "..", "../update", "a/b", "a\\b", "/update", ".hidden", "a\nb", "a\0b"])
def test_a_name_that_leads_out_of_the_directory_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match="give a file name of letters"), profiled(tmp_path, name, "cpu"):
        multiply()
    assert names(tmp_path) == []


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_a_block_that_raises_leaves_nothing_and_the_older_profile_as_it_was(tmp_path, error):
    def fail():
        multiply()
        raise error("in the block")

    with pytest.raises(error, match="in the block"), profiled(tmp_path / "new", "update", "cpu"):
        fail()
    assert names(tmp_path) == []
    with profiled(tmp_path, "update", "cpu"):
        multiply(2)
    with pytest.raises(error, match="in the block"), profiled(tmp_path, "update", "cpu"):
        fail()
    assert names(tmp_path) == ["update.json.gz", "update.txt"]
    assert operations(tmp_path, "update").count("aten::mm") == 2


def test_a_disk_that_is_full_leaves_no_half_of_a_profile(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(gzip, "open", full)
    with pytest.raises(OSError, match="No space left"), profiled(tmp_path, "update", "cpu"):
        multiply()
    assert names(tmp_path) == []


def stepping(directory, steps, ends=10):
    """In step n one product of matrices, and n sines; how many of each were recorded."""
    with profiled(directory, "episode", "cpu", steps) as profile:
        for step in range(ends):
            multiply()
            for _ in range(step):
                torch.ones(3).sin()
            profile.step()
    found = operations(directory, "episode")
    return found.count("aten::mm"), found.count("aten::sin")


@pytest.mark.parametrize(
    ("steps", "products", "sines"),
    [
        (range(1), 1, 0),
        (range(3), 3, 0 + 1 + 2),
        (range(1, 2), 1, 1),
        (range(4, 6), 2, 4 + 5),
        (range(8, 20), 2, 8 + 9),
        (range(100), 10, 45),
    ],
    ids=str,
)
def test_only_the_steps_asked_for_are_recorded(tmp_path, steps, products, sines):
    assert stepping(tmp_path, steps) == (products, sines)


@pytest.mark.parametrize("first", [11, 12, 500])
def test_a_block_that_ends_before_the_steps_to_record_leaves_a_warning_and_no_files(tmp_path, first):
    with (
        pytest.warns(UserWarning, match=f"begins with step {first}, and the block ended in step 10"),
        pytest.raises(FileNotFoundError, match=r"episode\.json\.gz"),
    ):
        stepping(tmp_path, range(first, first + 3))
    assert names(tmp_path) == []


@pytest.mark.parametrize("steps", [range(0), range(-1, 3), range(0, 10, 2), range(5, 0, -1)], ids=str)
def test_steps_that_cannot_be_recorded_in_one_go_are_refused(tmp_path, steps):
    with pytest.raises(ValueError, match="give a range from 0 or more"), profiled(tmp_path, "episode", "cpu", steps):
        multiply()


def test_on_apple_the_whole_block_and_the_wait_for_it_lie_between_signposts(tmp_path, monkeypatch):
    """R4-M15."""
    done = []

    @contextmanager
    def signposts():
        done.append("begin")
        yield
        done.append("end")

    monkeypatch.setattr(torch.mps.profiler, "profile", signposts)
    monkeypatch.setattr(torch.mps, "synchronize", lambda: done.append("wait"))
    with profiled(tmp_path, "update", "mps"):
        done.append("block")
        multiply()
    assert done == ["begin", "block", "wait", "end"]
    assert "aten::mm" in operations(tmp_path, "update")


def learned():
    """What a few optimiser steps with drawn data make of drawn weights."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 1))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(5):
        optimiser.zero_grad()
        model(torch.randn(32, 8)).pow(2).mean().backward()
        optimiser.step()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_what_is_learned_does_not_depend_on_a_profile(tmp_path):
    alone = learned()
    with profiled(tmp_path, "update", "cpu", range(1, 2)) as profile:
        profile.step()
        beside = learned()
        profile.step()
        after = learned()
    assert torch.equal(alone, beside)
    assert torch.equal(alone, after)


def test_a_profile_draws_no_random_numbers(tmp_path):
    def states():
        return torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())

    before = states()
    with profiled(tmp_path, "update", "cpu") as profile:
        multiply()
        profile.step()
    assert states() == before


def test_a_profile_of_the_cpu_says_nothing_on_stderr_and_leaves_the_environment_as_it_was(tmp_path):
    """In a process of its own, since torch looks only once how much it may say."""
    program = (
        "import os, pathlib, sys, torch\n"
        "from esper.telemetry.profiler import profiled\n"
        "before = dict(os.environ)\n"
        "with profiled(pathlib.Path(sys.argv[1]), 'update', 'cpu'):\n"
        "    torch.ones(3).sum()\n"
        "assert dict(os.environ) == before\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "KINETO_LOG_LEVEL"}
    command = [sys.executable, "-c", program, str(tmp_path)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert names(tmp_path) == ["update.json.gz", "update.txt"]


def test_how_much_torch_says_is_left_to_who_has_set_it(tmp_path, monkeypatch):
    monkeypatch.setenv("KINETO_LOG_LEVEL", "6")
    with profiled(tmp_path, "update", "cpu"):
        multiply()
        assert os.environ["KINETO_LOG_LEVEL"] == "6"
    assert os.environ["KINETO_LOG_LEVEL"] == "6"
