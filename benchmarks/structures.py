"""What is there to find on a task: every structure of a few seeds, planted in the first epoch.

    python benchmarks/structures.py --out out/structures.csv      # all of one or two seeds: 17 minutes on 2 cores
    python benchmarks/structures.py --most-seeds 3 --most-parameters 524 --out out/small.csv

Every structure is played on a search seed, the better ones on more (successive halving), and those that are left on
comparison seeds, which nothing was chosen on; the evaluation split throughout. So the last rung says what the best
fixed structure is worth, without the luck of having been chosen, and whether any smaller one comes near.
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from itertools import combinations, product
from pathlib import Path
from statistics import fmean, stdev

from table import write_csv

from esper.contracts import SlotSnapshot, Style
from esper.controller import Schedule, ScheduledSeed
from esper.environment import DEFAULT_TASK
from esper.growth import find_blueprint
from esper.runs import Played, Purpose, TrainConfig
from esper.runs.backends import Backend, make_backend
from esper.runs.exam.examiner import Examiner, TrialJob
from esper.runs.seeds import COMPARISON_SEEDS, SEARCH_SEEDS

RENT = 0.08
LADDER = ((None, 1), (40, 3), (10, 10))
"""How many of the best structures are played on how many more search seeds; None is all."""
FINALISTS, FINAL_SEEDS = 3, 24
STYLES = (Style.LINEAR_ADD, Style.GATED)
"""In which the finalists are played; before that the first one."""

Structure = tuple[tuple[str, str], ...]
"""Slots and the blueprints in them."""


@dataclass(frozen=True)
class Row:
    """What one structure was worth on the seeds of one rung."""

    task: str
    structure: str
    style: str
    rung: str
    seeds: int
    quality: float
    growth: float
    score: float
    """Quality minus rent times the logarithm of growth, as the next one."""
    deviation: float
    """Of the score from seed to seed."""


def main() -> None:
    """Play the rungs and print the last one."""
    parser = argparse.ArgumentParser(description="What is the best fixed structure worth?")
    parser.add_argument("--task", default=DEFAULT_TASK)
    parser.add_argument("--most-seeds", type=int, default=2)
    parser.add_argument("--most-parameters", type=float, default=math.inf, help="of all seeds (default: no limit)")
    parser.add_argument("--out", type=Path, default=Path("out/structures.csv"))
    given = parser.parse_args()
    game = TrainConfig(task=(given.task,), reward="solo").game()
    env = game.build_env(given.task)
    env.reset(seed=SEARCH_SEEDS[0])
    assert env.episode is not None
    candidates = list(structures(env.episode.snapshot.slots, given.most_seeds, given.most_parameters))
    with make_backend("process", game, 0, player=Examiner) as backend:
        rows = climb(backend, given.task, candidates)
    write_csv(given.out, [each.name for each in fields(Row)], map(astuple, rows))
    for row in rows[-FINALISTS * len(STYLES) :]:
        print(f"{row.structure:50} {row.style:12} {row.quality:.3f} x{row.growth:.2f} score {row.score:.4f}")


def structures(slots: Sequence[SlotSnapshot], most_seeds: int, most_parameters: float) -> Iterator[Structure]:
    """All of at most so many seeds with at most so many parameters together."""
    for count in range(1, most_seeds + 1):
        for places in combinations(slots, count):
            for names in product(*(slot.blueprints for slot in places)):
                if sum(map(parameters, places, names)) <= most_parameters:
                    yield tuple((slot.slot, name) for slot, name in zip(places, names, strict=True))


def parameters(slot: SlotSnapshot, blueprint: str) -> int:
    """Of a seed of that kind in that slot."""
    return find_blueprint(blueprint, slot.topology).parameters(slot.channels, slot.front_parameters)


def climb(backend: Backend, task: str, candidates: Sequence[Structure]) -> list[Row]:
    """Rows of all rungs; the finalists are played in every style."""
    rows: list[Row] = []
    ranked, used = list(candidates), 0
    for count, seeds in LADDER:
        wanted = [(each, STYLES[0]) for each in ranked[:count]]
        found = measured(backend, task, wanted, SEARCH_SEEDS[used : used + seeds], f"search {seeds}")
        scores = {structure: row.score for (structure, _), row in zip(wanted, found, strict=True)}
        ranked = sorted(scores, key=lambda each: -scores[each])
        print(f"{len(wanted)} structures, best {max(scores.values()):.4f}: {named(ranked[0])}", flush=True)
        rows += found
        used += seeds
    wanted = [(each, style) for each in ranked[:FINALISTS] for style in STYLES]
    return rows + measured(backend, task, wanted, COMPARISON_SEEDS[:FINAL_SEEDS], "comparison")


def measured(
    backend: Backend, task: str, wanted: Sequence[tuple[Structure, Style]], seeds: Sequence[int], rung: str
) -> list[Row]:
    """One row for each, over these seeds."""
    jobs = [
        TrialJob(task, seed, named(structure), Purpose.COMPARE, schedule(structure, style))
        for structure, style in wanted
        for seed in seeds
    ]
    results = list(backend.map(None, jobs, lambda _: None, print))
    size = len(seeds)
    return [
        row_of(task, structure, style, rung, results[place * size : (place + 1) * size])
        for place, (structure, style) in enumerate(wanted)
    ]


def schedule(structure: Structure, style: Style) -> Schedule:
    """As fast as the gates allow."""
    return Schedule(tuple(ScheduledSeed(0, slot, blueprint, style) for slot, blueprint in structure))


def named(structure: Structure) -> str:
    """As exams name what was kept."""
    return ", ".join(f"{slot} {blueprint}" for slot, blueprint in structure)


def row_of(task: str, structure: Structure, style: Style, rung: str, played: Sequence[Played]) -> Row:
    """The means of these episodes."""
    ended = [each.finished for each in played]
    scores = [each.quality - RENT * math.log(each.growth) for each in ended]
    quality, growth = fmean(each.quality for each in ended), fmean(each.growth for each in ended)
    deviation = stdev(scores) if len(scores) > 1 else 0.0
    return Row(task, named(structure), style.name.lower(), rung, len(ended), quality, growth, fmean(scores), deviation)


if __name__ == "__main__":
    main()
