"""A run's directory can be opened whatever happened to it."""

import json
import multiprocessing
import os
import signal
import threading
from dataclasses import replace

import pytest

from esper.runs import (
    NoDirectory,
    NoRun,
    RunBusy,
    RunDirectory,
    RunExists,
    RunState,
    TrainConfig,
    Unwritable,
    find_runs,
)
from esper.runs.directory import status_now, write_whole
from esper.telemetry import RunStatus


def new_run(path):
    return RunDirectory.create(path / "run", TrainConfig())


def test_a_new_run_has_its_settings_and_no_leftovers(tmp_path):
    run = new_run(tmp_path)
    assert run.config() == TrainConfig()
    assert sorted(path.name for path in run.path.iterdir()) == ["checkpoints", "config.toml"]


def test_a_directory_that_is_taken_is_left_alone(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("mine")
    with pytest.raises(RunExists, match="not empty; give another --out, or go on with its run by 'esper resume"):
        new_run(tmp_path)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["thesis.txt"]


def test_a_file_in_the_way_is_said(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(RunExists, match="is a file"):
        new_run(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_said(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(Unwritable, match=r"cannot be written .*or give another --out"):
        new_run(tmp_path)


def test_below_a_file_nothing_can_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Unwritable, match=r"cannot be written .*or give another --out"):
        RunDirectory.create(tmp_path / "file" / "run", TrainConfig())


def test_a_directory_without_settings_is_no_run(tmp_path):
    with pytest.raises(NoRun, match=r"there is no config\.toml"):
        RunDirectory.open(tmp_path)


def test_an_unreadable_status_is_unknown_and_never_an_error(tmp_path):
    run = new_run(tmp_path)
    for text in ("", "{", "[]", "{}", '{"state": "running"}', '{"state": "odd", "round": 1, "rounds": 2}', "null"):
        run.status_file.write_text(text)
        assert run.status() is None
        assert run.state() is RunState.UNKNOWN


def test_an_ended_run_says_how(tmp_path):
    run = new_run(tmp_path)
    for state in (RunState.FINISHED, RunState.INTERRUPTED, RunState.FAILED, RunState.HALTED):
        run.write_status(replace(status_now(state, 3, 5), reason="because"))
        assert run.state() is state
        assert run.status().reason == "because"


def test_a_process_that_got_the_number_of_a_killed_one_is_not_taken_for_it(tmp_path):
    run = new_run(tmp_path)
    mine = status_now(RunState.RUNNING, 3, 5)
    run.write_status(mine)
    assert run.state() is RunState.RUNNING
    run.write_status(replace(mine, started=mine.started - 1000))
    assert run.state() is RunState.KILLED


def test_a_run_that_ends_while_it_is_looked_at_never_looks_killed(tmp_path, monkeypatch):
    run = new_run(tmp_path)
    run.write_status(status_now(RunState.RUNNING, 5, 5))

    def ends_now(status):
        run.write_status(status_now(RunState.FINISHED, 5, 5))
        return False

    monkeypatch.setattr(RunStatus, "is_of_a_living_process", ends_now)
    assert run.state() is RunState.FINISHED


def test_looking_at_a_run_neither_locks_it_nor_changes_it(tmp_path):
    """Two pollers used to make one start in six fail, and saw a wrong state in one answer of ten."""
    run = new_run(tmp_path)
    run.write_status(status_now(RunState.RUNNING, 1, 5))
    stop, seen = threading.Event(), []

    def look():
        while not stop.is_set():
            seen.append(RunDirectory.open(run.path).state())

    pollers = [threading.Thread(target=look) for _ in range(2)]
    for poller in pollers:
        poller.start()
    for _ in range(300):
        with RunDirectory(run.path).locked():
            run.write_status(status_now(RunState.RUNNING, 1, 5))
    stop.set()
    for poller in pollers:
        poller.join()
    assert set(seen) == {RunState.RUNNING}
    assert len(seen) > 100


def hold(path, ready, release):
    with RunDirectory(path).locked():
        RunDirectory(path).write_status(status_now(RunState.RUNNING, 1, 5))
        ready.set()
        release.wait(30)


def test_a_live_run_cannot_be_trained_twice_and_a_killed_one_is_told_from_it(tmp_path):
    run = new_run(tmp_path)
    context = multiprocessing.get_context("spawn")
    ready, release = context.Event(), context.Event()
    process = context.Process(target=hold, args=(run.path, ready, release))
    process.start()
    assert ready.wait(60)
    assert run.state() is RunState.RUNNING
    with pytest.raises(RunBusy, match=f"is being trained by process {process.pid}"), run.locked():
        pass
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert run.state() is RunState.KILLED
    with run.locked():
        pass


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "status.json"
    write_whole(path, "old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["status.json"]


def test_only_the_newest_checkpoints_are_kept(tmp_path):
    run = new_run(tmp_path)
    for number in (1, 2, 10, 100):
        run.checkpoint(number).write_bytes(b"")
    run.best.write_bytes(b"")
    (run.checkpoints / ".round-00100.pt.1.part").write_bytes(b"")
    run.forget_old(keep=2)
    assert sorted(path.name for path in run.checkpoints.iterdir()) == ["best.pt", "round-00010.pt", "round-00100.pt"]
    assert [path.name for path in run.saved()] == ["round-00100.pt", "round-00010.pt"]


def test_runs_are_found_latest_first_and_other_directories_are_not_runs(tmp_path):
    for age, name in enumerate(("new", "old")):
        made = RunDirectory.create(tmp_path / name, TrainConfig())
        os.utime(made.config_file, (1000 - age, 1000 - age))
    (tmp_path / "other").mkdir()
    assert [run.path.name for run in find_runs(tmp_path)] == ["new", "old"]
    with pytest.raises(NoDirectory, match=r"there is no directory .*nowhere"):
        find_runs(tmp_path / "nowhere")


def test_a_status_from_a_stranger_does_not_break_the_list(tmp_path):
    run = new_run(tmp_path)
    run.status_file.write_text(
        json.dumps({"state": "finished", "round": "x", "rounds": 1, "updated": 1, "pid": 1, "host": ""})
    )
    assert run.status() is None
