"""A profile says where the time went, stays in its directory, and changes nothing. CUDA, XPU and MPS never ran here."""

import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager

import pytest
import torch
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
    torch.device("privateuseone"): [CPU, PLUGGED_IN],
}


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


def test_the_clock_is_read_when_the_device_is_done(monkeypatch):
    """R2-HIGH1."""
    done = []
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda device=None: done.append(device))
    monkeypatch.setattr(torch.mps, "synchronize", lambda: done.append("mps"))
    monkeypatch.setattr(time, "perf_counter", lambda: done.append("clock") or 7.5)
    for device in ("cuda", "xpu:1", "mps"):
        assert now(device) == 7.5
        assert done == [device, "clock"]
        done.clear()
    assert now("cpu") == now(torch.device("cpu")) == 7.5
    assert done == ["clock", "clock"]


def test_the_activities_of_a_device_are_the_cpu_and_its_own(monkeypatch):
    """R4-M15."""
    monkeypatch.setattr(torch.profiler, "supported_activities", lambda: set(ProfilerActivity.__members__.values()))
    for device, activities in DEVICES.items():
        assert activities_for(device) == activities


def test_where_torch_cannot_profile_the_device_the_cpu_side_is_profiled_with_a_warning(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.profiler, "supported_activities", lambda: {CPU})
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda device=None: None)
    with pytest.warns(UserWarning, match="cannot profile work on 'cuda'"), profiled(tmp_path, "work", "cuda"):
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
    assert (rows[0][0], rows[0][-1]) == ("aten::mm", "20")
    shares = [float(row[1].removesuffix("%")) for row in rows]
    assert shares == sorted(shares, reverse=True)


def test_a_profile_is_two_files_in_its_directory_and_replaces_an_older_one(tmp_path, monkeypatch):
    """R4-M16. A file for a while in the directory for temporary files would find none."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    monkeypatch.chdir(tmp_path)
    for times in (1, 3):
        with profiled(tmp_path / "profile", "update", "cpu"):
            multiply(times)
        assert operations(tmp_path / "profile", "update").count("aten::mm") == times
    assert names(tmp_path / "profile") == ["update.json.gz", "update.txt"]
    assert names(tmp_path) == ["profile"]


def test_a_block_that_raises_leaves_nothing_and_the_older_profile_as_it_was(tmp_path):
    def fail(error):
        multiply()
        raise error("in the block")

    with profiled(tmp_path / "old", "update", "cpu"):
        multiply(2)
    for error in (ZeroDivisionError, KeyboardInterrupt):
        for place in ("new", "old"):
            with pytest.raises(error, match="in the block"), profiled(tmp_path / place, "update", "cpu"):
                fail(error)
    assert names(tmp_path) == ["old"]
    assert operations(tmp_path / "old", "update").count("aten::mm") == 2


def test_a_disk_that_is_full_leaves_no_half_of_a_profile(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(gzip, "open", full)
    with pytest.raises(OSError, match="No space left"), profiled(tmp_path, "update", "cpu"):
        multiply()
    assert names(tmp_path) == []


def stepping(directory, steps):
    """In each of ten steps one product of matrices, and in step n also n sines; how many of each were recorded."""
    with profiled(directory, "episode", "cpu", steps) as profile:
        for step in range(10):
            multiply()
            for _ in range(step):
                torch.ones(3).sin()
            profile.step()
    found = operations(directory, "episode")
    return found.count("aten::mm"), found.count("aten::sin")


def test_only_the_steps_asked_for_are_recorded(tmp_path):
    asked = {range(1): (1, 0), range(3): (3, 3), range(4, 6): (2, 9), range(8, 20): (2, 17), range(100): (10, 45)}
    for steps, recorded in asked.items():
        assert stepping(tmp_path, steps) == recorded, steps


def test_a_block_that_ends_before_the_steps_to_record_leaves_a_warning_and_no_files(tmp_path):
    with (
        pytest.warns(UserWarning, match="begins with step 12, and the block ended in step 10"),
        pytest.raises(FileNotFoundError, match=r"episode\.json\.gz"),
    ):
        stepping(tmp_path, range(12, 15))
    assert names(tmp_path) == []


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


def test_a_profile_of_the_cpu_says_nothing_on_stderr_and_leaves_the_environment_as_it_was(tmp_path, monkeypatch):
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
    monkeypatch.setenv("KINETO_LOG_LEVEL", "6")
    with profiled(tmp_path, "update", "cpu"):
        assert os.environ["KINETO_LOG_LEVEL"] == "6", "how much torch says is left to who has set it"
    assert os.environ["KINETO_LOG_LEVEL"] == "6"
