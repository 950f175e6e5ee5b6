"""One candidate on one held-out seed: what is measured, on which data, and from which first weights."""

import math
from dataclasses import replace
from statistics import fmean

import pytest
import torch

from esper.contracts import WAIT, Stage, Style, Topology
from esper.controller import NoGrowth, Schedule, ScheduledSeed
from esper.environment import Episode, Split, SplitJudge, World, find_task
from esper.growth import Fossil, count_flops, count_parameters
from esper.runs.exam.examiner import Control, Examiner, StaticJob, TrialJob, epoch_flops
from esper.runs.player import Game, Job, Played, Purpose
from tests.runs.worlds import tiny_task

HELD = Schedule((ScheduledSeed(0, "layer1", "mlp", fossilize=False),))
GROWING_SEED = 1
"""The heuristic keeps a seed in this episode."""
PASSING_SEED, FAILING_SEED = 3, 1
"""The seed of `HELD` passes its gate at the end of the one, and contributes too little in the other."""


@pytest.fixture
def task(tmp_path):
    return tiny_task(tmp_path, horizon=12)


@pytest.fixture
def player():
    return Examiner(Game(reward="solo", record=False))


def job_of(task, policy, seed=GROWING_SEED):
    return Job(task, seed, policy, Purpose.COMPARE)


def static_job(task, control, sat):
    return StaticJob(
        task, sat.row.seed, f"{control}:heuristic", Purpose.COMPARE, control, sat.fossils, sat.row.parameters
    )


def quality_of(network, split):
    with torch.no_grad():
        return (network.eval()(split.x).argmax(1) == split.y).float().mean().item()


def written(tmp_path, schedule):
    path = tmp_path / "schedule.toml"
    path.write_text(schedule.to_toml())
    return f"schedule:{path}"


class Sealed:
    """Splits of which the last must not be looked at."""

    def __init__(self, splits):
        self.train, self.evaluation = splits.train, splits.evaluation

    @property
    def test(self):
        raise AssertionError("the test split was looked at")


def test_the_row_of_no_growth_is_that_of_the_host_trained_by_hand(task, player):
    found, splits = find_task(task), find_task(task).load(None)
    episode, curve = Episode(found, splits, 5, World()), []
    for _ in range(found.horizon):
        curve.append(episode.step(WAIT).evaluation.quality)
    host = episode.body.harvest()
    row = player.play(job_of(task, "none", seed=5)).row
    assert (row.task, row.policy, row.seed, row.rollbacks) == (task, "none", 5, 0)
    assert row.quality == pytest.approx(quality_of(host, splits.test))
    assert row.evaluation_quality == pytest.approx(curve[-1]) == pytest.approx(quality_of(host, splits.evaluation))
    assert row.quality != pytest.approx(row.evaluation_quality, abs=1e-4), "the splits can be told apart"
    assert row.area == pytest.approx(fmean(curve))
    assert row.parameters == row.host_parameters == found.host_parameters() == 2 * 4 + 4 + 4 * 4 + 4 + 4 * 3 + 3
    assert (row.growth, row.score) == (1.0, row.quality)
    operations = 2 * (2 * 4 + 4 * 4 + 4 * 3) + 2 * 4
    assert row.inference_flops == count_flops(host, splits.test.x[:1]) == operations
    assert row.training_flops == 3 * operations * len(splits.train.x) * found.horizon
    assert row.seconds > 0


def test_what_was_kept_counts_and_is_paid_for(task, player):
    sat = player.play(job_of(task, "heuristic"))
    body, test = player.env(task).episode.body, player.env(task).splits.test
    kept = body.harvest()
    assert sat.fossils == body.delivered() != ()
    assert sat.row.parameters == count_parameters(kept.parameters()) > sat.row.host_parameters
    assert sat.row.quality == pytest.approx(quality_of(kept, test))
    assert sat.row.score == pytest.approx(sat.row.quality - 0.08 * math.log(sat.row.parameters / 47))
    assert sat.row.inference_flops == count_flops(kept, test.x[:1])
    assert sat.row.training_flops > player.play(job_of(task, "none")).row.training_flops


def test_a_held_seed_that_passes_its_gate_counts_and_is_paid_for(task, tmp_path):
    """And the twin reward of the episode is the score on the evaluation split above that of the twin."""
    player = Examiner(Game(reward="twin", record=False))
    sat = player.play(job_of(task, written(tmp_path, HELD), seed=PASSING_SEED))
    env = player.env(task)
    body, splits = env.episode.body, env.splits
    assert body.slot("layer1").state.stage is Stage.HOLDING
    assert sat.fossils == body.delivered() == (Fossil("layer1", Topology.DENSE, 4, "mlp", Style.LINEAR_ADD, 1.0),)
    assert sat.row.kept == "layer1 mlp"
    assert sat.row.quality == pytest.approx(quality_of(body, splits.test))
    assert sat.row.evaluation_quality == sat.finished.quality == pytest.approx(quality_of(body, splits.evaluation))
    assert sat.row.parameters == count_parameters(body.parameters()) > sat.row.host_parameters
    assert (sat.finished.growth, sat.finished.fossilized) == (sat.row.growth, 1)
    score = sat.row.evaluation_quality - 0.08 * math.log(sat.row.growth)
    assert sat.finished.total == pytest.approx(score - env.twin_quality)


def test_a_held_seed_that_fails_its_gate_does_not_count(task, player, tmp_path):
    sat = player.play(job_of(task, written(tmp_path, HELD), seed=FAILING_SEED))
    body, splits = player.env(task).episode.body, player.env(task).splits
    assert body.blended() == {"layer1"}, "a seed shows in the output of the body"
    with body.only(()):
        alone = quality_of(body, splits.test), quality_of(body, splits.evaluation)
    assert quality_of(body, splits.evaluation) != pytest.approx(alone[1], abs=1e-4)
    assert (sat.row.quality, sat.row.evaluation_quality) == pytest.approx(alone)
    assert sat.row.parameters == sat.row.host_parameters
    assert sat.fossils == ()
    assert (sat.finished.growth, sat.finished.fossilized, sat.row.kept) == (1.0, 0, "")


def test_a_seed_costs_its_own_passes(task):
    found = find_task(task)
    episode = Episode(found, found.load(None), 0, World())
    plain = epoch_flops(episode)
    episode.body.execute(HELD.seeds[0].next_step([True] * 6, 0))
    seed = episode.body.costs().seeds["layer1"].flops
    assert seed > 0
    assert epoch_flops(episode) == plain + 3 * seed * len(episode.train.x)


@pytest.mark.parametrize("control", Control)
def test_controls_keep_the_host_that_growth_is_counted_from(control, task, player):
    grown = player.play(job_of(task, "heuristic"))
    sat = player.play(static_job(task, control, grown))
    assert sat.row.policy == f"{control}:heuristic"
    assert sat.row.host_parameters == grown.row.host_parameters == 47
    assert sat.row.parameters >= grown.row.parameters
    assert sat.row.growth > 1.0
    assert sat.fossils == ()
    if control is Control.SCRATCH:
        assert sat.row.parameters == grown.row.parameters
        assert sat.row.inference_flops == grown.row.inference_flops


def test_a_control_neither_grows_nor_disturbs_the_environment_of_the_others(task, player):
    before = player.play(job_of(task, "none"))
    grown = player.play(job_of(task, "heuristic"))
    static = static_job(task, Control.SCRATCH, grown)
    assert isinstance(player.policy_for(static), NoGrowth)
    assert player.play(static).finished.ops == {"WAIT": 12}
    again = player.play(job_of(task, "none"))
    assert replace(again.row, seconds=0) == replace(before.row, seconds=0)


def test_a_trial_is_played_without_a_look_at_the_test_split(task, player):
    env = player.env(task)
    env.splits = Sealed(env.splits)
    played = player.play(TrialJob(task, 700_000, "schedule 0", Purpose.COMPARE, HELD))
    assert type(played) is Played
    assert played.finished.ops["GERMINATE"] == 1
    assert math.isfinite(played.finished.total)
    with pytest.raises(AssertionError, match="the test split was looked at"):
        player.play(job_of(task, "none"))


def test_an_episode_is_the_same_whatever_the_test_split_holds(task, player):
    rows = [player.play(job_of(task, "heuristic"))]
    env = player.env(task)
    test = Split(torch.full_like(env.splits.test.x, math.nan), env.splits.test.y)
    env.splits = replace(env.splits, test=test)
    rows.append(player.play(job_of(task, "heuristic")))
    assert rows[0].row.quality != rows[1].row.quality
    same = [replace(each.row, quality=0.0, loss=0.0, seconds=0.0) for each in rows]
    assert same[0] == same[1]
    assert rows[0].fossils == rows[1].fossils


class Pictured(Examiner):
    """Keeps the host's first weights of every episode."""

    def __init__(self, game):
        super().__init__(game)
        self.first = []

    def policy_for(self, job):
        policy, start, env = super().policy_for(job), super().policy_for(job).start, self.env_for(job)

        def picture(codec):
            self.first.append({name: each.clone() for name, each in env.episode.body.host.state_dict().items()})
            return start(codec)

        policy.start = picture
        return policy


def test_two_policies_start_from_the_same_first_weights_on_a_seed_and_from_others_on_another(task):
    player = Pictured(Game(reward="solo", record=False))
    ends = [player.play(job_of(task, *each)) for each in (("none", 1), ("heuristic", 1), ("none", 2))]
    first, second, other = player.first
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first)
    assert ends[0].row.quality != ends[1].row.quality


def test_a_plain_network_is_judged_by_every_row_of_a_split_in_pieces():
    x = torch.eye(3)[torch.arange(1_000) % 3]
    y = torch.arange(1_000) % 3
    y[::4] = (y[::4] + 1) % 3
    network = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Dropout(0.9)).train()
    assert SplitJudge(Split(x, y), outcomes=3).worth(network).quality == 0.75
    assert network.training
