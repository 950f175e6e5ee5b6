"""Runs on families: every episode has a task of its own, and a worker keeps nothing of those before."""

import gc
import weakref
from dataclasses import replace

import pytest

from esper.environment import InvalidTask, find_task
from esper.runs import Game, Job, Player, Purpose
from esper.runs.backends import SerialBackend, make_backend
from esper.runs.player import ENVS_KEPT
from esper.telemetry import EpisodeFinished, read_log
from tests.runs.test_backends import bits, ignore
from tests.runs.worlds import small_config, trained

GAME = Game(reward="solo", record=False)


def job(task: str, seed: int, policy: str = "none") -> Job:
    return Job(task, seed, policy, Purpose.COMPARE)


def test_a_job_on_a_family_plays_the_task_of_its_seed():
    player = Player(GAME)
    drawn, named = player.play(job("family:small", 5)), player.play(job("family:small/5", 5))
    assert drawn.finished.epochs == find_task("family:small/5").horizon
    assert replace(drawn.finished, task="", seconds=0) == replace(named.finished, task="", seconds=0)
    assert drawn.finished.task == "family:small", "episodes of a family stand together"


def test_processes_play_a_family_bit_for_bit():
    jobs = [job("family:small", seed, "random") for seed in (3, 5, 12)]
    with SerialBackend(GAME) as serial, make_backend("process", GAME, 2) as process:
        one, other = (backend.map(None, jobs, ignore, ignore) for backend in (serial, process))
    assert [bits(each) for each in one] == [bits(each) for each in other]


def test_a_player_keeps_few_environments_and_no_data_of_others():
    player = Player(GAME)
    held = [weakref.ref(player.env(f"family:small/{seed}").splits) for seed in range(ENVS_KEPT + 4)]
    gc.collect()
    assert [each() is None for each in held] == [True] * 4 + [False] * ENVS_KEPT
    player.env("family:small/4")
    player.env("family:small/99")
    assert held[4]() is not None, "those played last are kept"
    family = weakref.ref(player.env("family:small").splits)
    player.play(job("family:small", 5))
    gc.collect()
    assert family() is None


def test_the_rent_is_the_task_s_unless_the_game_has_one():
    drawn = find_task("family:small/3").rent
    for task, rent in {"family:small": drawn, "family:small/3": drawn, "digits": 0.08}.items():
        for game, expected in ((GAME, rent), (replace(GAME, rent=0.5), 0.5)):
            env = game.build_env(task)
            env.reset(seed=3)
            assert env.task.rent == env.reward_config.rent_weight == expected
    with pytest.raises(InvalidTask, match=r"rent 2\.0; give a number from 0\.0 to 1\.0"):
        Game(rent=2.0).build_env("digits")


def test_a_run_learns_from_tasks_of_all_shapes(tmp_path):
    config = small_config(tmp_path, reward="solo", rounds=1, episodes=2, evaluation_episodes=1)
    config = replace(config, task=("family:small", *config.task))
    config.check()
    directory, _ = trained(tmp_path / "run", config)
    played = [each for each in read_log(directory.events_file) if isinstance(each.event, EpisodeFinished)]
    of_family = [each for each in played if each.event.task == "family:small"]
    assert len(of_family) == len(played) / 2
    for each in of_family:
        assert each.event.epochs <= find_task(f"family:small/{each.episode}").horizon
