"""The fair price of search: the best schedule that a number of host trainings can find.

Random schedules are played on one seed each, the best quarter of them on four more seeds, the best quarter of those on
sixteen more, and so on (successive halving): a stronger search than one seed for every schedule.
"""

from collections.abc import Callable, Sequence
from statistics import fmean

import torch

from esper.contracts import EsperError
from esper.controller import Schedule, random_schedule
from esper.environment import GrowEnv, derive
from esper.runs.exam.examiner import TrialJob
from esper.runs.player import Purpose
from esper.runs.seeds import SEARCH_SEEDS

QUARTER = 4
LEAST_BUDGET = 8

Play = Callable[[Sequence[TrialJob]], list[float]]
"""Plays trials and returns what each was worth on the evaluation split."""


class BadSearch(EsperError):
    """A number of host trainings with which nothing can be found."""


def rungs(budget: int) -> list[tuple[int, int]]:
    """How many schedules are played on how many new seeds each, rung by rung; on every rung several compete.

    >>> rungs(100), rungs(300)
    ([(33, 1), (8, 4), (2, 16)], [(100, 1), (25, 4), (6, 16)])
    """
    if budget < LEAST_BUDGET:
        raise BadSearch(f"a search with {budget} host trainings finds nothing; give at least {LEAST_BUDGET}")
    levels = 1
    while budget // (levels + 1) >= 2 * QUARTER**levels:
        levels += 1
    first = budget // levels
    return [(first // QUARTER**level, QUARTER**level) for level in range(levels)]


def search(task: str, env: GrowEnv, budget: int, play: Play) -> Schedule:
    """The best schedule found. The same task and budget give the same one."""
    ladder = rungs(budget)
    schedules = draw_schedules(env, ladder[0][0])
    worth: dict[int, list[float]] = {index: [] for index in range(len(schedules))}
    used = 0
    for count, seeds in ladder:
        best = sorted(worth, key=lambda index: -fmean(worth[index]) if worth[index] else 0.0)[:count]
        jobs = [
            TrialJob(task, seed, f"schedule {index}", Purpose.COMPARE, schedules[index])
            for index in best
            for seed in SEARCH_SEEDS[used : used + seeds]
        ]
        results = play(jobs)
        for place, index in enumerate(best):
            worth[index] += results[place * seeds : (place + 1) * seeds]
        used += seeds
        worth = {index: worth[index] for index in best}
    return schedules[max(worth, key=lambda index: fmean(worth[index]))]


def draw_schedules(env: GrowEnv, count: int) -> list[Schedule]:
    """Random schedules that fit the task."""
    observation, _ = env.reset(seed=SEARCH_SEEDS[0])
    generator = torch.Generator().manual_seed(derive(0, "search", env.task.name))
    fits = observation["mask_slot_blueprint"]
    return [random_schedule(env.codec, env.task.horizon, generator, fits) for _ in range(count)]
