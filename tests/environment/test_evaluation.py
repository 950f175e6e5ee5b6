"""Scores of any unit and direction through one path: the same tables, gates, rewards and exams."""

import math
from dataclasses import replace

import pytest
from torch import nn

from esper.contracts import ACCURACY, Action, AlphaTarget, Op, Stage, loss_metric
from esper.environment import Episode, FunctionJudge, GrowEnv, InvalidTask, SplitJudge, World, evaluate, evaluation
from esper.growth import NotMeasurable, count_parameters
from tests.environment.worlds import CLUSTERED, CLUSTERS, LOOSE, grower, idle, play

LOSS_TASK = replace(CLUSTERS, judged_by="loss")


@pytest.mark.parametrize(("score", "quality"), [(0.0, 1.0), (math.log(4) / 2, 0.5), (math.log(4), 0.0), (9.0, 0.0)])
def test_less_loss_is_more_quality_and_guessing_has_none(score, quality):
    metric = loss_metric(4)
    assert metric.quality(score) == pytest.approx(quality)
    assert not metric.higher_is_better
    if score <= metric.worst:
        assert metric.score(quality) == pytest.approx(score)


def test_a_score_that_is_not_a_number_has_no_quality():
    assert math.isnan(loss_metric(4).quality(math.nan))


def episode_with_seeds(task=CLUSTERS) -> Episode:
    episode = Episode(task, CLUSTERED, 0, World())
    for slot in ("layer0", "layer1"):
        episode.step(Action(Op.GERMINATE, slot, blueprint="mlp_small", alpha_target=AlphaTarget.FULL))
    return episode


@pytest.mark.parametrize("task", [CLUSTERS, LOSS_TASK], ids=lambda task: task.judged_by)
def test_a_function_of_the_model_judges_as_whole_tensors_do(task):
    episode = episode_with_seeds(task)
    metric = task.metric_on(CLUSTERED.evaluation)

    def scores(model: nn.Module) -> tuple[float, float]:
        x, y = CLUSTERED.evaluation.x, CLUSTERED.evaluation.y
        output = model.eval()(x)
        loss = float(nn.functional.cross_entropy(output, y))
        return (float((output.argmax(1) == y).double().mean()) if metric == ACCURACY else loss), loss

    by_tensors = evaluate(episode.body, episode.judge)
    by_function = evaluate(episode.body, FunctionJudge(scores, metric))
    assert len(by_tensors.table) == 4
    assert by_function.table == pytest.approx(by_tensors.table)
    assert by_function.loss == pytest.approx(by_tensors.loss)


def test_evaluating_notes_what_each_seed_contributes():
    episode = episode_with_seeds()
    table, everyone = evaluate(episode.body, episode.judge).table, episode.body.blended()
    for snapshot in episode.body.snapshots():
        expected = table[everyone] - table[everyone - {snapshot.slot}] if snapshot.slot in everyone else None
        assert snapshot.contribution == expected
    assert episode.body.quality == table[everyone]
    with pytest.raises(NotMeasurable, match=r"no quality was given for \['layer0', 'layer1'\]"):
        episode.body.record_qualities({frozenset(): 0.5})


def test_a_task_judged_by_its_loss_is_rewarded_gated_and_governed_by_it():
    env = GrowEnv(LOSS_TASK, world=LOOSE)
    metric = LOSS_TASK.metric_on(CLUSTERED.evaluation)
    for player in (idle, grower(("layer1", "mlp")), grower(("layer1", "mlp"), keep=False)):
        records = play(env, player, 0)
        assert records[-1]["panic"] is None
        assert len(env.episode.snapshot.delivered) == (player is not idle)
        for record in records:
            assert record["quality"] == pytest.approx(metric.quality(record["loss"]))
        twin, last = env.twin_quality, records[-1]
        growth = last["snapshot"].host.total_parameters / last["snapshot"].host.parameters
        delivered = env.episode.evaluation.table[env.episode.snapshot.delivered]
        earned = sum(record["reward"] for record in records)
        assert earned == pytest.approx(delivered - twin - env.reward_config.rent_weight * math.log(growth))


STRICT = World(replace(LOOSE.thresholds, min_contribution=1.0))
"""Gates that no seed ever passes into FOSSILIZED."""


@pytest.mark.parametrize(("world", "delivered"), [(LOOSE, {"layer1"}), (STRICT, set())], ids=["passing", "failing"])
@pytest.mark.parametrize("mode", ["twin", "loss", "sparse"])
def test_at_the_horizon_held_seeds_earn_and_pay_rent_if_they_pass_their_gate(mode, world, delivered):
    env = GrowEnv(CLUSTERS, mode, world=world)
    records = play(env, grower(("layer1", "mlp"), keep=False), 0)
    episode, twin = env.episode, env._twin(CLUSTERS.horizon)
    assert records[-1]["snapshot"].slots[2].stage is Stage.HOLDING
    assert records[-1]["snapshot"].delivered == delivered
    network = episode.body.harvest()
    worth = episode.judge.worth(network)
    assert episode.evaluation.worths[frozenset(delivered)] == pytest.approx(worth)
    config = env.reward_config
    rent = config.rent_weight * math.log(count_parameters(network.parameters()) / episode.body.host_parameters)
    assert (rent > 0) == bool(delivered)
    gains = {
        "twin": lambda: worth.quality - twin.quality,
        "loss": lambda: (twin.loss_nats - worth.loss) / math.log(CLUSTERS.classes),
        "sparse": lambda: worth.quality,
    }
    assert sum(record["reward"] for record in records) == pytest.approx(gains[mode]() - rent)


def test_what_is_delivered_is_evaluated_also_where_not_every_coalition_is(monkeypatch):
    """Three seeds, of which one is held: neither all of them, nor none, nor all but one."""
    monkeypatch.setattr(evaluation, "ALL_SUBSETS_UP_TO", 1)
    env, hold = GrowEnv(CLUSTERS, world=LOOSE), grower(("layer1", "mlp"), keep=False)

    def player(env: GrowEnv) -> Action:
        action = hold(env)
        empty = [slot.slot for slot in env.episode.snapshot.slots if slot.stage is Stage.DORMANT]
        return Action(Op.GERMINATE, empty[0], blueprint="mlp_small") if action.op is Op.WAIT and empty else action

    records = play(env, player, 0)
    episode = env.episode
    assert len(episode.body.blended()) == 3
    assert episode.snapshot.delivered == {"layer1"}
    assert len(episode.evaluation.worths) == 6
    worth = episode.judge.worth(episode.body.harvest())
    assert episode.evaluation.worths[frozenset({"layer1"})] == pytest.approx(worth)
    rent = env.reward_config.rent_weight * math.log(episode.body.costs().kept.parameters / episode.body.host_parameters)
    assert sum(record["reward"] for record in records) == pytest.approx(worth.quality - env.twin_quality - rent)


def test_guessing_is_the_commonest_class_or_the_loss_of_the_uniform_guess():
    commonest = float(CLUSTERED.evaluation.y.bincount().max()) / len(CLUSTERED.evaluation.y)
    assert SplitJudge(CLUSTERED.evaluation, 4).guess == (commonest, math.log(4))
    assert SplitJudge(CLUSTERED.evaluation, 4, "loss").guess == (0.0, math.log(4))


def test_a_seed_is_not_kept_if_the_network_is_no_better_than_before_its_birth():
    episode = Episode(CLUSTERS, CLUSTERED, 0, World())
    body = episode.body
    body.record_qualities({frozenset(): 0.9})
    body.execute(Action(Op.GERMINATE, "layer1", blueprint="mlp_small"))
    while body.execute(Action(Op.ADVANCE, "layer1")) or body.slot("layer1").state.stage.name != "HOLDING":
        episode.trainer.epoch(episode.train)
        body.tick()
    body.tick()
    seed = frozenset({"layer1"})
    body.record_qualities({seed: 0.9, frozenset(): 0.2})
    assert body.execute(Action(Op.FOSSILIZE, "layer1")).reasons == ("improvement since birth 0 is below 0.01",)
    body.record_qualities({seed: 0.95, frozenset(): 0.2})
    assert body.execute(Action(Op.FOSSILIZE, "layer1"))


def test_what_cannot_be_judged_by_is_refused():
    with pytest.raises(InvalidTask, match="has judged_by 'beauty'; give one of accuracy, loss"):
        replace(CLUSTERS, judged_by="beauty")
