"""Where the time goes: a clock that waits for the device, and profiles of single blocks of work.

    with profiled(run / "profile", "update", device):
        learner.update(rows)

leaves `update.txt`, the costliest operations, and `update.json.gz`, every operation in time, which opens in
https://ui.perfetto.dev. Nothing is drawn and nothing is computed otherwise, so nothing that is learned depends on it.
"""

import gzip
import os
import shutil
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch.profiler import ProfilerAction, ProfilerActivity, profile

ACTIVITIES = {name.lower(): activity for name, activity in ProfilerActivity.__members__.items()}
"""What records the work of a device, by its type. Types that are not here are plugged in: `privateuse1` is theirs."""
ALL_STEPS = range(sys.maxsize)
MAX_ROWS = 50
"""Of the table."""
LOG_LEVEL, SILENT = "KINETO_LOG_LEVEL", "99"

Device = str | torch.device


def now(device: Device) -> float:
    """Seconds, of which differences mean something, read when the device has done all that it was given."""
    _synchronise(device)
    return time.perf_counter()


def _synchronise(device: Device) -> None:
    kind = torch.device(device).type
    if kind == "mps":
        torch.mps.synchronize()  # the general call returns at once in early versions
    elif kind != "cpu":
        torch.accelerator.synchronize(device)


def activities_for(device: Device) -> list[ProfilerActivity]:
    """What can be recorded of work on a device; warns if that is less than its type has."""
    kind = torch.device(device).type
    if kind in ("cpu", "mps"):
        return [ProfilerActivity.CPU]
    activity = ACTIVITIES.get(kind, ProfilerActivity.PrivateUse1)
    if activity in torch.profiler.supported_activities():
        return [ProfilerActivity.CPU, activity]
    warnings.warn(
        f"this build of torch cannot profile work on '{kind}', so only the CPU's side is recorded; "
        f"for all of it install a torch that is built for '{kind}'",
        stacklevel=2,
    )
    return [ProfilerActivity.CPU]


@contextmanager
def profiled(directory: Path, name: str, device: Device, steps: range = ALL_STEPS) -> Iterator[profile]:
    """Profile a block; when it has ended, its trace and its table are in the directory. If it raises, nothing is.

    A long block is too much to record: an episode is 260,000 operations, and their table takes 20 seconds and a
    gigabyte. It can call `step()` of what it is given, say after each epoch, and `steps` are those to record.
    """

    def action(step: int) -> ProfilerAction:
        if step not in steps:  # the first one is made ready for, so that it looks like the others
            return ProfilerAction.WARMUP if step + 1 == steps.start else ProfilerAction.NONE
        return ProfilerAction.RECORD_AND_SAVE if step == steps[-1] else ProfilerAction.RECORD

    recorded: list[profile] = []
    activities = activities_for(device)
    recorder = profile(activities=activities, schedule=action, on_trace_ready=recorded.append)
    with _quiet(activities), _signposts(device), recorder:
        yield recorder
    if recorded:
        _write(recorder, directory, name, device)
    else:
        warnings.warn(
            f"the profile '{name}' is empty: recording begins with step {steps.start}, and the block ended in step "
            f"{recorder.step_num}; record earlier steps",
            stacklevel=3,
        )


@contextmanager
def _signposts(device: Device) -> Iterator[None]:
    """The work of Apple's GPU is marked for their Instruments, which alone can show it."""
    on_apple = torch.device(device).type == "mps"
    with torch.mps.profiler.profile() if on_apple else nullcontext():
        yield
        _synchronise(device)


@contextmanager
def _quiet(activities: list[ProfilerActivity]) -> Iterator[None]:
    """Keep torch from telling stderr that a profile starts and stops.

    It looks at the variable once per process. A level that hides this hides errors too; those are about devices other
    than the CPU, so where one is profiled torch may talk.
    """
    if LOG_LEVEL in os.environ or activities != [ProfilerActivity.CPU]:
        yield
        return
    os.environ[LOG_LEVEL] = SILENT
    try:
        yield
    finally:
        os.environ.pop(LOG_LEVEL, None)


def _write(recorded: profile, directory: Path, name: str, device: Device) -> None:
    """Whole files or none: they are made in a directory of their own, and then moved."""
    directory.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".profile-", dir=directory) as parts:
        trace, packed, table = (Path(parts) / f"{name}.{kind}" for kind in ("json", "json.gz", "txt"))
        recorded.export_chrome_trace(str(trace))
        # Torch's own packing takes ten times as long, and leaves its parts outside of the directory.
        with trace.open("rb") as source, gzip.open(packed, "wb", compresslevel=6) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        table.write_text(_table(recorded, packed.name, device), encoding="utf-8")
        for part in (packed, table):
            part.replace(directory / part.name)


def _table(recorded: profile, trace: str, device: Device) -> str:
    on_device = recorded.activities != {ProfilerActivity.CPU}
    order = "self_device_time_total" if on_device else "self_cpu_time_total"
    rows = recorded.key_averages().table(sort_by=order, row_limit=MAX_ROWS)
    return (
        f"The costliest operations on '{device}', by the time that each took itself, without those that it called.\n"
        "ProfilerStep* stands for what is outside of all operations: Python.\n"
        f"All operations in time are in {trace}; open it in https://ui.perfetto.dev or chrome://tracing.\n\n{rows}\n"
    )
