"""How much memory a recording takes while it is learned from, and how fast it is read.

    python benchmarks/recording_memory.py                      # recordings of 0.05, 0.2 and 0.8 GB in numbers
    python benchmarks/recording_memory.py --gigabytes 0.1 8

Plays a few episodes of `family:small`, writes a file of them under other seeds, links it from as many directories as it
takes, and streams them all twice in a process of its own: opened, which judges every row, and one shuffled pass in
batches of 64. A gigabyte is one of numbers as they lie in memory.
"""

import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import tyro

from esper.runs import Game, Job, Player, Purpose
from esper.runs.recordings import EPISODES_PER_PART, Recording, RecordingSchema, write_part
from esper.runs.trajectory import Trajectory

BATCH = 64


@dataclass(frozen=True)
class Settings:
    """What is measured."""

    gigabytes: tuple[float, ...] = (0.05, 0.2, 0.8)
    """Sizes of recordings."""
    stream: Path | None = None
    """Used by itself: the directory whose recordings this process streams."""


def main() -> None:
    """Measure, or be what is measured."""
    settings = tyro.cli(Settings)
    if settings.stream is not None:
        stream(settings.stream)
        return
    game = Game(reward="frugal", record=False, trajectories=True)
    played = [
        Player(game).play(Job("family:small", 2**20 + at, policy, Purpose.TRAIN)).trajectory
        for at in range(4)
        for policy in ("random", "heuristic")
    ]
    print("| GB of numbers | episodes | s to open | s to stream | peak MB | above an idle process |")
    print("|---|---|---|---|---|---|")
    for size in settings.gigabytes:
        with tempfile.TemporaryDirectory() as folder:
            measure([each for each in played if each is not None], size, Path(folder), RecordingSchema.of(game))


def measure(played: list[Trajectory], size: float, folder: Path, schema: RecordingSchema) -> None:
    """One row of the table."""
    held = bytes_of(played) / len(played)
    parts = max(1, round(size * 1e9 / held / EPISODES_PER_PART))
    again = [played[seed % len(played)] for seed in range(EPISODES_PER_PART)]
    named = [replace(each, about=replace(each.about, seed=seed)) for seed, each in enumerate(again)]
    write_part(folder / "part.parquet", named, schema)
    for part in range(parts):
        (folder / f"{part}").mkdir()
        (folder / f"{part}" / "part.parquet").hardlink_to(folder / "part.parquet")
    episodes = parts * EPISODES_PER_PART
    words = [sys.executable, __file__, "--stream", str(folder)]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    print(f"| {episodes * held / 1e9:.2f} | {episodes:,} | {' | '.join(told)} |", flush=True)


def bytes_of(played: list[Trajectory]) -> int:
    """Of what was seen, which is nearly all of it."""
    return sum(array.nbytes for each in played for array in each.observation.values())


def stream(path: Path) -> None:
    """Seconds to open, seconds to stream, peak megabytes, and how many of them the recording is to blame for."""
    idle, started = peak(), time.perf_counter()
    opened = Recording.open(*(each for each in path.iterdir() if each.is_dir()))
    judged = time.perf_counter()
    rows = sum(batch.rows for batch in opened.batches(BATCH, torch.Generator().manual_seed(0)))
    assert rows == opened.episodes
    print(f"{judged - started:.1f} {time.perf_counter() - judged:.1f} {peak():.0f} {peak() - idle:.0f}")


def peak() -> float:
    """Megabytes of this process at its largest, on Linux; `getrusage` would count the process that started it."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


if __name__ == "__main__":
    main()
