"""What each level of telemetry costs. Interleaved, medians of processor time.

    python benchmarks/telemetry.py        # prints the table; about 4 minutes on one core

The same episodes of the default task are played at every level by the same newborn controller; what a level tells is
made, shown while it is played, encoded, appended to a log and synced once per episode. Then the same update is made
with and without a look at its numbers. Goal: at most 2 % more for `normal`.
"""

import argparse
import copy
import tempfile
import time
from pathlib import Path
from statistics import median

import torch

from esper.environment import DEFAULT_TASK
from esper.rl import Learner, Sequences, join
from esper.runs import Game, Job, Player, Purpose, TrainConfig
from esper.runs.run import new_learner
from esper.telemetry import EventLog, Level, UpdateExaminer, belongs


class Teller:
    """Plays at one level."""

    def __init__(self, level: Level, learner: Learner, folder: Path) -> None:
        self.level = level
        told = level not in (Level.OFF, Level.BRIEF)
        self.player = Player(Game(reward="solo", record=told, live=str(folder) if told else ""))
        self.player.load(learner.network.state_dict())
        self.log = EventLog(folder / f"{level}.jsonl")

    def play(self, seed: int) -> tuple[float, Sequences]:
        """Processor time of one episode and of telling it, and what a learner would learn from it."""
        job = Job(DEFAULT_TASK, seed, "learned", Purpose.TRAIN, detailed=self.level is Level.DETAILED)
        start = time.process_time()
        played = self.player.play(job)
        told = [event for event in (*played.events, played.finished) if belongs(event, self.level)]
        self.log.write_all(told, round=0, episode=seed)
        if self.level is not Level.OFF:
            self.log.sync()
        assert played.sequences is not None
        return time.process_time() - start, played.sequences


def updated(learner: Learner, rows: Sequences, examined: bool) -> float:
    """Processor time of an update."""
    start = time.process_time()
    examiner = UpdateExaminer(learner.network) if examined else None
    learner.update(rows, probe=examiner.see if examiner else None)
    if examiner:
        examiner.report(rows.observation, rows.valid)
    return time.process_time() - start


def main() -> None:
    """Play and update in turns."""
    parser = argparse.ArgumentParser(description="What telemetry costs.")
    parser.add_argument("--repeats", type=int, default=15, help="episodes at each level (default %(default)s)")
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    learner = new_learner(TrainConfig())
    with tempfile.TemporaryDirectory() as folder:
        tellers = [Teller(level, learner, Path(folder)) for level in Level]
        for teller in tellers:
            teller.play(0)
        rounds = [[teller.play(seed) for teller in tellers] for seed in range(1, repeats + 1)]
        sizes = {teller.level: teller.log.size / (repeats + 1) for teller in tellers}
    print("| measure | seconds | more | bytes per episode | goal |\n|---|---|---|---|---|")
    for place, level in enumerate(Level):
        ratio = median(row[place][0] / row[0][0] for row in rounds)
        seconds = median(row[place][0] for row in rounds)
        goal = "≤ +2 %" if level is Level.NORMAL else ""
        print(f"| an episode, {level} | {seconds:.3f} | {ratio - 1:+.1%} | {sizes[level]:,.0f} | {goal} |")
    rows = join([sequences for _, sequences in (row[0] for row in rounds)])
    pairs = [
        (updated(copy.deepcopy(learner), rows, False), updated(copy.deepcopy(learner), rows, True)) for _ in range(9)
    ]
    ratio = median(examined / plain for plain, examined in pairs)
    print(f"| an update of {rows.rows} episodes | {median(plain for plain, _ in pairs):.3f} | | | |")
    print(f"| the same, detailed | {median(examined for _, examined in pairs):.3f} | {ratio - 1:+.1%} | | |")


if __name__ == "__main__":
    main()
