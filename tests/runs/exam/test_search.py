"""The price of search: never above the budget, and for it the best schedule that was tried."""

import pytest

from esper.environment import GrowEnv
from esper.runs.exam.search import LEAST_BUDGET, BadSearch, draw_schedules, rungs, search
from esper.runs.seeds import COMPARISON_SEEDS, EVALUATION_SEEDS, EXAM_SEEDS, SEARCH_SEEDS, TRAINING_SEEDS
from tests.runs.worlds import tiny_task


@pytest.fixture
def env(tmp_path):
    return GrowEnv(tiny_task(tmp_path), "solo")


def number_of(job):
    return int(job.policy.removeprefix("schedule "))


def noise(seed):
    """What a seed does to every schedule alike."""
    return (seed * 7919 % 101) / 10


class Judge:
    """Says what trials are worth, by a fixed rule, and keeps them."""

    def __init__(self, worth):
        self.worth, self.rounds = worth, []

    def __call__(self, jobs):
        self.rounds.append(jobs)
        return [self.worth(job) for job in jobs]

    @property
    def jobs(self):
        return [job for jobs in self.rounds for job in jobs]


def test_no_budget_is_exceeded_and_the_first_rung_has_the_most_schedules():
    for budget in range(LEAST_BUDGET, 3_001):
        ladder = rungs(budget)
        counts, seeds = zip(*ladder, strict=True)
        spent = sum(count * each for count, each in ladder)
        assert spent <= budget
        assert spent > budget / 2, "most of it is spent"
        assert len(ladder) > 1 or budget < 16
        assert list(counts) == sorted(set(counts), reverse=True)
        assert counts[-1] > 1, "whoever is played last has a rival"
        assert seeds == tuple(4**level for level in range(len(ladder)))


@pytest.mark.parametrize("budget", [0, 1, LEAST_BUDGET - 1])
def test_a_budget_that_finds_nothing_is_refused(budget):
    with pytest.raises(BadSearch, match=f"a search with {budget} host trainings finds nothing; give at least 8"):
        rungs(budget)


@pytest.mark.parametrize("budget", [8, 100, 333])
def test_a_search_plays_its_ladder_on_seeds_of_its_own_and_none_twice(env, budget):
    judge = Judge(lambda job: 0.0)
    search("tiny", env, budget, judge)
    played = [(job.policy, job.seed) for job in judge.jobs]
    assert len(set(played)) == len(played) <= budget
    assert [len(jobs) for jobs in judge.rounds] == [count * seeds for count, seeds in rungs(budget)]
    assert all(job.seed in SEARCH_SEEDS for job in judge.jobs)
    for others in (EXAM_SEEDS, EVALUATION_SEEDS, COMPARISON_SEEDS, TRAINING_SEEDS):
        assert not {job.seed for job in judge.jobs} & set(others[:: max(1, len(others) // 1000)])
        assert SEARCH_SEEDS[-1] < others[0] or others[-1] < SEARCH_SEEDS[0]


@pytest.mark.parametrize("best", [0, 5, 32])
def test_the_schedule_that_plays_best_is_found_through_the_noise_of_seeds(env, best):
    judge = Judge(lambda job: -abs(number_of(job) - best) + noise(job.seed))
    assert search("tiny", env, 100, judge) == draw_schedules(env, 33)[best]
    for jobs in judge.rounds:
        assert best in {number_of(job) for job in jobs}


def test_one_lucky_seed_is_not_enough(env):
    """Schedule 3 is the best on the first seed only; over all of its seeds it is the worst."""

    def worth(job):
        lucky = number_of(job) == 3
        return (1.0 if job.seed == SEARCH_SEEDS[0] else -9.0) if lucky else number_of(job) / 1000

    assert search("tiny", env, 100, Judge(worth)) == draw_schedules(env, 33)[32]


def test_the_same_budget_finds_the_same_schedule_and_another_task_tries_others(env):
    def worth(job):
        return hash((number_of(job), job.seed)) % 97

    assert search("tiny", env, 64, Judge(worth)) == search("tiny", env, 64, Judge(worth))
    assert draw_schedules(env, 20) == draw_schedules(env, 20)
    assert draw_schedules(env, 20)[:5] == draw_schedules(env, 5), "a larger search tries the same ones first"
    assert draw_schedules(env, 20) != draw_schedules(GrowEnv("spirals", "solo"), 20)


def test_schedules_differ_and_fit_the_task(env):
    schedules = draw_schedules(env, 40)
    assert len(set(schedules)) > 35
    for schedule in schedules:
        schedule.start(env.codec)
        assert all(seed.epoch < env.task.horizon for seed in schedule.seeds)
