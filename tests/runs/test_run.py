"""A run loses nothing: whatever ends it, it can be gone on with, and ends as if nothing had happened."""

import math
import multiprocessing
import os
import random
import resource
import shutil
import signal
import time
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
import torch
from rich.console import Console

from esper.contracts import EsperError, Stage, StageChanged
from esper.rl import MOOD, BadCheckpoint, load_checkpoint, replay
from esper.runs import Job, Player, Purpose, Quiet, RoundLines, Run, RunDirectory, RunState, SystemRefused
from esper.runs.run import compared
from esper.runs.seeds import COMPARISON_SEEDS, EVALUATION_SEEDS, TRAINING_SEEDS, training_seed
from esper.telemetry import (
    EpisodeFinished,
    EvaluationMade,
    GradientsSeen,
    Level,
    MemoryExamined,
    RoundFinished,
    RunFinished,
    RunHalted,
    RunInterrupted,
    RunResumed,
    TelemetryConfig,
    UpdateExamined,
    UpdateMade,
    effective,
    read_log,
)
from tests.runs.worlds import silent, small_config, trained

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["esper.runs"])


def weights(directory):
    return load_checkpoint(directory.saved()[0]).weights


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The directory of a run of four rounds that nothing happened to."""
    folder = tmp_path_factory.mktemp("whole")
    return trained(folder / "run", small_config(folder, rounds=4))[0]


def copied(whole, tmp_path):
    return RunDirectory.open(Path(shutil.copytree(whole.path, tmp_path / "run")))


def go_on(path):
    """In a process of its own: resume the run in `path`."""
    directory = RunDirectory.open(path)
    Run(directory, directory.config(), silent()).resume()


def in_process(target, *arguments):
    process = SERVER.Process(target=target, args=arguments)
    process.start()
    return process


def test_a_run_plays_updates_evaluates_and_leaves_everything_in_its_directory(tmp_path):
    """C-runs, C-lifecycle-under-policy."""
    directory, run = trained(tmp_path / "run", small_config(tmp_path, rounds=4, compare=2))
    assert sorted(path.name for path in directory.path.iterdir()) == [
        "checkpoints",
        "config.toml",
        "events.jsonl",
        "live",
        "run.lock",
        "status.json",
    ]
    assert list((directory.path / "live").iterdir()) == []
    assert directory.state() is RunState.FINISHED
    records = list(effective(read_log(directory.events_file)))
    rounds = [each for each in records if isinstance(each.event, RoundFinished)]
    assert [each.round for each in rounds] == [0, 1, 2, 3]
    updates = [each.event for each in records if isinstance(each.event, UpdateMade)]
    assert len(updates) == 4
    heads = [head for update in updates for head in update.heads.values()]
    assert all((head.kl is None) == (head.entropy is None) for head in heads)
    assert any(head.kl for head in heads)
    assert sum(isinstance(each.event, EvaluationMade) for each in records) == 2
    assert isinstance(records[-1].event, RunFinished)
    played = [each.event for each in records if isinstance(each.event, EpisodeFinished)]
    assert [sum(each.purpose == purpose for each in played) for purpose in ("train", "evaluate", "compare")] == [
        12,
        4,
        8,
    ]
    changes = [each.event for each in records if isinstance(each.event, StageChanged)]
    assert any(change.after is Stage.TRAINING for change in changes)
    assert run.counters.best_round in {1, 3}


def test_the_same_seed_gives_the_same_run_at_every_level_of_telemetry_and_another_seed_another(tmp_path):
    """R4-C5: nothing but seed, settings and weights shapes a round; there are no running statistics of observations."""
    config = small_config(tmp_path, rounds=2)
    told = {}
    for level in Level:
        telemetry = TelemetryConfig(level=level, sinks=("tensorboard",) if level is Level.OFF else ())
        told[level], _ = trained(tmp_path / level, replace(config, telemetry=telemetry))
    other, _ = trained(tmp_path / "other", replace(config, seed=1))
    for level in Level:
        assert same(weights(told[level]), weights(told[Level.NORMAL])), level
    assert not same(weights(told[Level.NORMAL]), weights(other))
    assert not told[Level.OFF].events_file.exists()
    sizes = [told[level].events_file.stat().st_size for level in (Level.BRIEF, Level.NORMAL, Level.DETAILED)]
    assert sizes == sorted(sizes)


def test_a_detailed_run_tells_of_gradients_memories_weights_and_observations(tmp_path):
    """R4-M13: norms before clipping, of every part of the controller, of hosts and of their seeds."""
    config = small_config(tmp_path, telemetry=TelemetryConfig(level=Level.DETAILED))
    directory, run = trained(tmp_path / "run", config)
    told = [each.event for each in read_log(directory.events_file)]
    looks = [event for event in told if isinstance(event, UpdateExamined)]
    assert len(looks) == config.rounds
    parts = {name.split(".")[0] for name, _ in run.learner.network.named_parameters()}
    for look in looks:
        assert look.gradients.keys() == look.weights.keys() == parts
        assert look.gradients["critic"].norm > 0
        assert look.weights["critic"].moved > 0
        assert {"host", "slots", "mask_op"} <= look.observations.keys()
    seen = [event for event in told if isinstance(event, GradientsSeen)]
    assert len(seen) == sum(isinstance(event, UpdateExamined) for event in told) * config.episodes * 6
    assert all(event.owners["host"].norm > 0 for event in seen)
    assert {owner for event in seen for owner in event.owners} == {"host", "layer0", "layer1"}
    memories = [event for event in told if isinstance(event, MemoryExamined)]
    assert len(memories) == config.rounds * config.episodes
    assert all(memory.steps == 6 and memory.hidden > 0 and memory.not_finite == 0 for memory in memories)


def test_a_detailed_episode_of_a_brief_run_is_told_whole(tmp_path):
    """So that the rounds after an anomaly are."""
    config = small_config(tmp_path, telemetry=TelemetryConfig(level=Level.BRIEF))
    player = Player(config.game())
    plain, detailed = (Job(config.task[0], 3, "random", Purpose.TRAIN, detailed=each) for each in (False, True))
    assert player.play(plain).events == ()
    assert sum(isinstance(event, GradientsSeen) for event in player.play(detailed).events) == 6


def test_the_norms_of_a_detailed_run_are_those_that_the_update_reports(tmp_path):
    """One norm of everything, before clipping, from the norms of the parts."""
    config = small_config(tmp_path, telemetry=TelemetryConfig(level=Level.DETAILED))
    config = replace(config, ppo=replace(config.ppo, epochs=1, minibatches=1))
    directory, _ = trained(tmp_path / "run", config)
    told = [each.event for each in read_log(directory.events_file)]
    updates = [event for event in told if isinstance(event, UpdateMade)]
    looks = [event for event in told if isinstance(event, UpdateExamined)]
    for update, look in zip(updates, looks, strict=True):
        whole = math.sqrt(sum(figures.norm**2 for figures in look.gradients.values() if figures.norm is not None))
        assert whole == pytest.approx(update.gradient_norm, rel=1e-4)


def test_a_profiled_run_says_where_the_time_goes_and_is_the_same_run(tmp_path, whole):
    """R4-M15, R4-M16."""
    directory, _ = trained(tmp_path / "run", replace(whole.config(), profile=True))
    found = sorted(path.name for path in directory.profiles.iterdir())
    assert found == ["episode.json.gz", "episode.txt", "update.json.gz", "update.txt"]
    assert "aten::" in (directory.profiles / "update.txt").read_text()
    assert same(weights(whole), weights(directory))


def test_process_workers_give_the_run_of_one_process_bit_for_bit(tmp_path, whole):
    """R4-H12, R4-H13: an episode shares nothing with another one, so processes cannot matter."""
    two, _ = trained(tmp_path / "two", replace(whole.config(), backend="process", workers=2))
    assert same(weights(whole), weights(two))


def killed_again_and_again(tmp_path, times, rounds):
    """A run that is killed at random moments and gone on with each time, and one that is not."""
    config = small_config(tmp_path, rounds=rounds, reward="sparse")
    undisturbed, _ = trained(tmp_path / "whole", config)
    directory = RunDirectory.create(tmp_path / "killed", config)
    process = in_process(start_new, directory.path)
    draw, kills = random.Random(0), 0
    wait_for(lambda: directory.saved())
    while kills < times and process.is_alive():
        process.join(draw.uniform(0.0, 0.4))
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        kills += 1
        assert directory.state() in {RunState.KILLED, RunState.UNKNOWN, RunState.FINISHED}
        list(read_log(directory.events_file))
        process = in_process(go_on, directory.path)
    process.join(120)
    assert directory.state() is RunState.FINISHED
    assert kills >= times // 2
    assert same(weights(directory), weights(undisturbed))
    finished = [each for each in effective(read_log(directory.events_file)) if isinstance(each.event, RoundFinished)]
    assert [each.round for each in finished] == list(range(rounds))


def test_a_killed_run_resumes_bit_for_bit(tmp_path):
    killed_again_and_again(tmp_path, times=3, rounds=5)


@pytest.mark.slow
def test_a_run_killed_at_twenty_random_moments_ends_as_if_it_never_was(tmp_path):
    killed_again_and_again(tmp_path, times=20, rounds=12)


def start_new(path):
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # the fork server may have been born deaf to it
    directory = RunDirectory.open(path)
    Run(directory, directory.config(), silent()).start()


def wait_for(happened, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_asked_to_stop_says_so_and_goes_on_later(tmp_path, number):
    config = small_config(tmp_path, rounds=400, reward="sparse")
    directory = RunDirectory.create(tmp_path / "run", config)
    process = in_process(start_new, directory.path)
    wait_for(lambda: len(directory.saved()) >= 2)
    os.kill(process.pid, number)
    process.join(30)
    assert process.exitcode == 0
    assert directory.state() is RunState.INTERRUPTED
    assert isinstance(list(read_log(directory.events_file))[-1].event, RunInterrupted)
    assert not list(directory.checkpoints.glob(".*"))


def test_a_damaged_checkpoint_is_passed_over_and_named(tmp_path, whole):
    directory = copied(whole, tmp_path)
    newest = directory.saved()[0]
    newest.write_bytes(newest.read_bytes()[:-100])
    said = StringIO()
    run = Run(directory, directory.config(), Quiet(Console(file=said, width=200)))
    assert run.resume() is RunState.FINISHED
    assert f"damaged and left out: {newest.name}" in said.getvalue()
    resumed = [each.event for each in read_log(directory.events_file) if isinstance(each.event, RunResumed)]
    assert resumed == [RunResumed("round-00003.pt", (newest.name,))]
    assert same(weights(directory), weights(whole))


def test_a_run_without_any_readable_checkpoint_is_said_to_be_lost(tmp_path, whole):
    directory = copied(whole, tmp_path)
    for path in directory.saved():
        path.write_bytes(b"nothing")
    with pytest.raises(BadCheckpoint, match=r"none of the \d checkpoints .* can be read; start a new run"):
        Run(directory, directory.config(), silent()).resume()
    assert directory.state() is RunState.FAILED


def test_a_truncated_line_of_events_loses_that_line_only(tmp_path, whole):
    directory = copied(whole, tmp_path)
    before = len(list(read_log(directory.events_file)))
    text = directory.events_file.read_bytes()
    directory.events_file.write_bytes(text[:-10])
    Run(directory, replace(directory.config(), rounds=5), silent()).resume()
    records = list(read_log(directory.events_file))
    assert len(records) > before
    assert [each.round for each in effective(records) if isinstance(each.event, RoundFinished)] == [0, 1, 2, 3, 4]


def test_three_updates_without_finite_gradients_halt_the_run_and_keep_the_last_good_checkpoint(tmp_path):
    config = small_config(tmp_path, rounds=9)
    directory = RunDirectory.create(tmp_path / "run", config)
    run = Run(directory, config, silent())
    run.learner.network.wait_score.weight.register_hook(lambda gradient: gradient * float("nan"))
    assert run.start() is RunState.HALTED
    assert directory.state() is RunState.HALTED
    assert "not finite" in directory.status().reason
    assert isinstance(list(read_log(directory.events_file))[-1].event, RunHalted)
    assert load_checkpoint(directory.saved()[0]).extra["round"] == 2
    assert all(weight.isfinite().all() for weight in weights(directory).values())


def crowded(path, limit):
    """A disk that takes no file larger than `limit` bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    directory = RunDirectory.open(path)
    try:
        Run(directory, directory.config(), silent()).start()
    except EsperError as error:
        (path / "said").write_text(f"{type(error).__name__}: {error}")


@pytest.mark.parametrize("limit", [20_000, 4_000], ids=["events", "checkpoint"])
def test_a_full_disk_ends_the_run_with_the_way_on_and_later_it_goes_on(tmp_path, limit):
    config = small_config(tmp_path, rounds=6)
    directory = RunDirectory.create(tmp_path / "run", config)
    process = in_process(crowded, directory.path, limit)
    process.join(60)
    said = (directory.path / "said").read_text()
    assert "then 'esper resume" in said or "cannot be written" in said
    assert not list(directory.checkpoints.glob(".*"))
    if directory.saved():
        Run(directory, config, silent()).resume()
        assert directory.state() is RunState.FINISHED


def test_a_failing_write_of_a_checkpoint_is_said_with_the_way_on(tmp_path, monkeypatch):
    config = small_config(tmp_path)
    directory = RunDirectory.create(tmp_path / "run", config)
    run = Run(directory, config, silent())

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("esper.runs.run.save_checkpoint", full)
    with pytest.raises(SystemRefused, match=r"No space left on device.*make room, then 'esper resume"):
        run.start()
    assert directory.state() is RunState.FAILED


def test_the_horizon_bootstraps_only_when_asked_and_a_panic_never(tmp_path):
    """S8-truncation-in-the-loop, R4-H4: the real loop, with the masks and memory that the last action left."""
    config = small_config(tmp_path)
    job = Job(config.task[0], 2**20, "learned", Purpose.TRAIN)
    settled = Player(config.game()).play(job).sequences
    player = Player(replace(config, bootstrap_at_horizon=True).game())
    player.load(Player(config.game())._network.state_dict())
    expected = player.play(job).sequences
    assert settled.bootstrap.abs().sum() == 0
    assert expected.bootstrap[0, -1] != 0
    assert expected.bootstrap[0, :-1].abs().sum() == 0
    assert expected.ends[0].tolist() == [False] * 5 + [True]


def test_a_mood_lasts_for_an_episode_and_is_learned_from_as_it_was_drawn(tmp_path):
    """Greedy play has none, and so has a run that does not ask for them."""
    config = small_config(tmp_path, moods=2.0)
    player = Player(config.game())
    job = Job(config.task[0], 2**20, "learned", Purpose.TRAIN)
    one, other = (player.play(each).sequences for each in (job, replace(job, seed=2**20 + 1)))
    assert one.observation[MOOD].std() > 0.5
    assert (one.observation[MOOD] == one.observation[MOOD][:, :1]).all()
    assert not torch.equal(one.observation[MOOD], other.observation[MOOD])
    again = replay(player._network, one, config.ppo.exploration).log_probs.detach()
    torch.testing.assert_close(again[one.free], one.log_probs[one.free], rtol=0.0, atol=1e-4)
    assert MOOD not in player.play(replace(job, policy="greedy")).sequences.observation
    assert MOOD not in Player(replace(config, moods=0.0).game()).play(job).sequences.observation


def test_seeds_of_training_evaluation_and_comparison_never_meet():
    used = {training_seed(run, number, place) for run in range(3) for number in range(20) for place in range(20)}
    assert len(used) == 1200
    assert all(seed in TRAINING_SEEDS for seed in used)
    assert not used & set(EVALUATION_SEEDS)
    assert not set(EVALUATION_SEEDS) & set(COMPARISON_SEEDS)
    assert min(EVALUATION_SEEDS) >= 500_000


def test_a_mixture_of_tasks_shares_the_episodes_of_a_round(tmp_path):
    config = small_config(tmp_path, episodes=4)
    config = replace(config, task=(*config.task, "spirals"), rounds=1)
    directory, _ = trained(tmp_path / "run", config)
    played = [each.event for each in read_log(directory.events_file) if isinstance(each.event, EpisodeFinished)]
    train = [each.task for each in played if each.purpose == "train"]
    assert train == [config.task[0], "spirals", config.task[0], "spirals"]


def test_lines_tell_every_round_with_its_figures(tmp_path):
    said = StringIO()
    config = small_config(tmp_path, reward="twin")
    directory = RunDirectory.create(tmp_path / "run", config)
    Run(directory, config, RoundLines(Console(file=said, width=250))).start()
    text = said.getvalue()
    assert "round 3/3" in text
    for word in ("return", "quality", "points over twin", "growth", "episodes/s", "entropy", "kl", "left"):
        assert word in text


def test_episodes_of_one_world_differ_in_their_actions_alone(tmp_path):
    config = small_config(tmp_path, episodes=6, repeats=3)
    run = Run(RunDirectory.create(tmp_path / "run", config), config, silent())
    jobs = run._training_jobs()
    assert [job.world for job in jobs] == [jobs[0].seed] * 3 + [jobs[3].seed] * 3
    assert len({job.seed for job in jobs}) == 6
    player = Player(config.game())
    played = [player.play(job) for job in jobs[:3]]
    first = [each.sequences.observation["host"][0, 0] for each in played]
    assert torch.equal(first[0], first[1])
    assert not torch.equal(first[0], player.play(jobs[3]).sequences.observation["host"][0, 0])
    assert len({str(each.sequences.choices.tolist()) for each in played}) > 1


def test_returns_of_one_world_are_compared_with_those_of_the_others_in_it(tmp_path):
    config = small_config(tmp_path, episodes=4, repeats=2)
    run = Run(RunDirectory.create(tmp_path / "run", config), config, silent())
    player = Player(config.game())
    rows = [player.play(job).sequences for job in run._training_jobs()]
    before, after = ([row.rewards.sum().item() for row in each] for each in (rows, compared(rows, 2)))
    assert after == pytest.approx(
        [before[0] - before[1], before[1] - before[0], before[2] - before[3], before[3] - before[2]], abs=1e-6
    )
    for row, other in zip(rows, compared(rows, 2), strict=True):
        assert torch.equal(row.rewards[:, :-1], other.rewards[:, :-1])
    assert compared(rows, 1) == rows


def test_a_run_begins_with_the_weights_of_a_checkpoint_and_needs_it_no_more(tmp_path, whole):
    first = shutil.copy(whole.saved()[0], tmp_path / "first.pt")
    config = small_config(tmp_path, init=str(first), rounds=1, keep=5)
    directory, _ = trained(tmp_path / "run", config)
    begun = load_checkpoint(directory.checkpoint(0))
    assert same(begun.weights, weights(whole))
    assert begun.counters["updates"] == 0
    assert not same(weights(directory), begun.weights)
    (tmp_path / "first.pt").unlink()
    longer = replace(config, rounds=2)
    assert Run(directory, longer, silent()).resume() is RunState.FINISHED


def test_evaluations_can_play_other_tasks_than_training(tmp_path):
    config = small_config(tmp_path, evaluation_task=("spirals",), rounds=1)
    directory, _ = trained(tmp_path / "run", config)
    told = (each.event for each in read_log(directory.events_file))
    (found,) = [event for event in told if isinstance(event, EvaluationMade)]
    assert list(found.by_task) == ["spirals"]
