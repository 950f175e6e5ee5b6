"""What the families draw: how long an episode takes, and how many tasks leave nothing to decide.

    python benchmarks/families.py --out out/families.csv      # about 8 minutes on 1 core

Each task is played without growth, with the largest block in its first slot, and with that in its last slot, on one
seed. A task is at chance if none of the three has 5 points of quality more on the evaluation split than blind
guessing, and at its ceiling if quality is 99 % without growth. Seconds are those of a core, for
an episode from drawing its task on.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import torch
from table import write_csv

from esper.contracts import Style
from esper.controller import NoGrowth, Policy, Schedule, ScheduledSeed
from esper.environment import GrowEnv, SplitJudge, find_task
from esper.growth import find_blueprint

FAMILIES = ("small", "small-dev", "small-exam", "far-exam")
ABOVE_CHANCE, CEILING, GAIN = 0.05, 0.99, 0.05


@dataclass(frozen=True)
class Row:
    """One task. Qualities are those on the evaluation split, of the network that is kept."""

    family: str
    task: int
    summary: str
    guess: float
    none: float
    first: float
    last: float
    seconds: float
    seconds_grown: float

    @property
    def at_chance(self) -> bool:
        return max(self.none, self.first, self.last) < self.guess + ABOVE_CHANCE

    @property
    def at_ceiling(self) -> bool:
        return self.none >= CEILING

    @property
    def pays(self) -> bool:
        return max(self.first, self.last) >= self.none + GAIN


def main() -> None:
    """Play everything, write the rows, print a line for each family."""
    parser = argparse.ArgumentParser(description="How long do tasks of families take, and are they worth playing?")
    parser.add_argument("--tasks", type=int, default=60)
    parser.add_argument("--family", nargs="*", default=FAMILIES)
    parser.add_argument("--out", type=Path, default=Path("out/families.csv"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    row_of("small", 0)  # what is done once in a process
    rows = [row_of(family, task) for family in given.family for task in range(given.tasks)]
    write_csv(given.out, list(asdict(rows[0])), (list(asdict(row).values()) for row in rows))
    print("| family | tasks | at chance | at the ceiling | 5 points gained | seconds | with a seed |")
    print("|---|---|---|---|---|---|---|")
    for family in given.family:
        print(line(family, [row for row in rows if row.family == family]))


def row_of(family: str, number: int) -> Row:
    """What three policies come to on a task."""
    name = f"family:{family}/{number}"
    seconds, qualities = zip(*played(name), strict=True)
    task = find_task(name)
    guess = SplitJudge(task.load(None).evaluation, task.classes, task.judged_by).guess.quality
    rounded = (round(each, 4) for each in (guess, *qualities, *seconds[:2]))
    return Row(family, number, task.summary, *rounded)


def played(name: str) -> Iterator[tuple[float, float]]:
    """Seconds and quality without growth, and with the largest block in the first and in the last slot."""
    for place in (None, 0, -1):
        started = time.process_time()
        env = GrowEnv(name, "solo")
        quality = outcome(env, NoGrowth() if place is None else largest_in(env, place))
        yield time.process_time() - started, quality


def largest_in(env: GrowEnv, place: int) -> Schedule:
    """As early as possible."""
    assert env.episode is None
    env.reset(seed=0)
    assert env.episode is not None
    slot = env.episode.snapshot.slots[place]
    largest = max(
        slot.blueprints,
        key=lambda each: find_blueprint(each, slot.topology).parameters(slot.channels, slot.front_parameters),
    )
    return Schedule((ScheduledSeed(0, slot.slot, largest, Style.LINEAR_ADD),))


def outcome(env: GrowEnv, policy: Policy) -> float:
    """The quality of what is kept at the end of the episode of seed 0."""
    observation, _ = env.reset(seed=0)
    state, generator, over = policy.start(env.codec), torch.Generator(), False
    while not over:
        decision, state = policy.act(observation, state, generator)
        observation, _, terminated, truncated, _ = env.step(decision.choices)
        over = terminated or truncated
    assert env.episode is not None
    return env.episode.evaluation.table[env.episode.snapshot.delivered]


def line(family: str, rows: Sequence[Row]) -> str:
    """The figures of a family."""
    facts = ([row.at_chance for row in rows], [row.at_ceiling for row in rows], [row.pays for row in rows])
    seconds = (median(row.seconds for row in rows), median(row.seconds_grown for row in rows))
    cells = (family, len(rows), *map(sum, facts), *(f"{each:.2f}" for each in seconds))
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    main()
