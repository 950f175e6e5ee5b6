"""What writing every event costs. Interleaved, medians of processor time.

    python benchmarks/telemetry.py        # prints the table; about 2 minutes on one core

The same episodes of the default task are played with and without events, by the same random policy; with events, each
one is made, encoded, appended to a log and synced once per episode. Goal: at most 2 % more.
"""

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

import torch

from esper.environment import DEFAULT_TASK
from esper.runs import Game, Job, Player, Purpose
from esper.telemetry import EventLog

JOB = Job(DEFAULT_TASK, 0, "random", Purpose.COMPARE)


def seconds(player: Player, log: EventLog | None) -> tuple[float, int]:
    """Processor time of one episode, and how many events it wrote."""
    start = time.process_time()
    played = player.play(JOB)
    if log is not None:
        log.write_all([*played.events, played.finished], round=0, episode=JOB.seed)
        log.sync()
    return time.process_time() - start, len(played.events)


def main() -> None:
    """Play in turns."""
    parser = argparse.ArgumentParser(description="What events cost.")
    parser.add_argument("--repeats", type=int, default=15, help="episodes of each kind (default %(default)s)")
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    silent, telling = Player(Game(reward="sparse", record=False)), Player(Game(reward="sparse"))
    with tempfile.TemporaryDirectory() as folder, EventLog(Path(folder) / "events.jsonl") as log:
        seconds(silent, None), seconds(telling, log)
        pairs = [(seconds(silent, None)[0], *seconds(telling, log)) for _ in range(repeats)]
    ratio = median(with_events / without for without, with_events, _ in pairs)
    print("| measure | figure | goal |\n|---|---|---|")
    print(f"| one episode without events | {median(pair[0] for pair in pairs):.3f} s | |")
    print(f"| the same with {pairs[0][2]} events | {ratio - 1:+.2%} | ≤ +2 % |")


if __name__ == "__main__":
    main()
