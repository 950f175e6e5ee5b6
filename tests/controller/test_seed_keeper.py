"""Plants the usual seed at once, and keeps it only if that is predicted to pay."""

from dataclasses import replace

import pytest

from esper.contracts import Op
from esper.controller import ConstantByRent, GainNetworks, Ranker, SeedKeeper, load_gain_networks, shipped_file
from esper.environment import FIELDS, GrowEnv
from tests.controller.playing import play
from tests.controller.test_ranker import germinated, predicting
from tests.environment.worlds import CLUSTERS, POINTWISE


def keeper(networks: GainNetworks, ranked: float = -1.0) -> SeedKeeper:
    return SeedKeeper(networks, Ranker(predicting("host.horizon", ranked), FIELDS))


def done(turns, op: Op):
    return [epoch for epoch, turn in enumerate(turns) if turn.executed.op is op]


def test_a_seed_that_is_predicted_to_pay_lives_as_that_of_the_constant_to_the_last_bit():
    env = GrowEnv(POINTWISE)
    kept = play(env, keeper(gaining(10.0)), seed=0)
    usual = play(env, ConstantByRent(FIELDS), seed=0)
    assert [turn.executed for turn in kept] == [turn.executed for turn in usual]
    assert len(done(kept, Op.FOSSILIZE)) == 1


def test_a_seed_that_is_not_is_pruned_when_it_could_be_kept_and_nothing_is_planted_after_it():
    env = GrowEnv(POINTWISE)
    turns, usual = play(env, keeper(gaining(-1.0)), seed=0), play(GrowEnv(POINTWISE), ConstantByRent(FIELDS), seed=0)
    assert done(turns, Op.PRUNE) == done(usual, Op.FOSSILIZE)
    assert germinated(turns) == germinated(usual)
    assert not env.episode.snapshot.delivered


@pytest.mark.parametrize(("rent", "op"), [(0.1, Op.FOSSILIZE), (0.3, Op.PRUNE)])
def test_rent_decides_whether_the_same_gain_pays(rent, op):
    env = GrowEnv(replace(POINTWISE, rent=rent))
    turns = play(env, keeper(gaining(0.05)), seed=0)
    assert len(done(turns, op)) == 1
    assert len(done(turns, Op.FOSSILIZE) + done(turns, Op.PRUNE)) == 1


def gaining(quality: float) -> GainNetworks:
    """Networks that predict this gain of every seed."""
    networks = GainNetworks(("host.horizon",), members=1, hidden=1)
    networks.biases[-1].data.fill_(quality / 0.1)
    return networks.requires_grad_(False)


def test_where_the_constant_plants_nothing_it_does_what_the_ranker_does():
    env = GrowEnv(CLUSTERS)
    chosen = keeper(gaining(-1.0), ranked=1.0)
    turns = play(env, chosen, seed=0)
    assert [turn.executed for turn in turns] == [turn.executed for turn in play(env, chosen.ranker, seed=0)]
    assert len(germinated(turns)) == 1
    assert done(turns, Op.PRUNE) == []


def test_the_shipped_one_reads_what_every_environment_shows():
    networks = load_gain_networks(shipped_file("keeper"))
    observation, _ = GrowEnv(POINTWISE).reset(seed=0)
    shipped = SeedKeeper(networks, Ranker(load_gain_networks(shipped_file("ranker")), FIELDS))
    assert abs(shipped.gain(observation, slot=0)) < 1.0
