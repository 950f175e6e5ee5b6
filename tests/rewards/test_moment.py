"""What counts as measured, and what cannot be."""

import math

import pytest

from esper.contracts import Stage
from esper.rewards import Ending, InvalidMoment, Moment, Twin
from tests.rewards.cases import slot, snapshot, table

HELD = slot("a", Stage.HOLDING, alpha=1.0), slot("b", Stage.HOLDING, alpha=1.0)
SYNERGY = table(none=0.3, a=0.3, b=0.3, ab=0.6)


def test_moment_reads_gain_contributions_and_shares_from_the_table():
    moment = Moment(snapshot(*HELD, quality=0.6), SYNERGY)
    assert moment.gain == pytest.approx(0.3)
    assert moment.contributions == {"a": pytest.approx(0.3), "b": pytest.approx(0.3)}
    assert moment.shares == {"a": pytest.approx(0.15), "b": pytest.approx(0.15)}
    assert moment.gain_over_twin is None
    assert moment.proven_gain == moment.gain


def test_proven_gain_is_the_lesser_of_what_is_known():
    host = snapshot(*HELD, quality=0.6)
    assert Moment(host, SYNERGY, Twin(0.55, None)).proven_gain == pytest.approx(0.05)
    assert Moment(host, SYNERGY, Twin(0.1, None)).proven_gain == pytest.approx(0.3)
    assert Moment(host, {}, Twin(0.55, None)).proven_gain == pytest.approx(0.05)
    assert Moment(host, {}, Twin(None, None)).proven_gain is None


def test_nothing_is_known_of_an_empty_table():
    moment = Moment(snapshot(*HELD), {})
    assert moment.gain is None
    assert moment.contributions == {}
    assert moment.shares == {}


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_failed_measurement_is_not_a_zero(broken):
    """R4-M18."""
    moment = Moment(snapshot(*HELD, quality=broken), {**SYNERGY, frozenset("a"): broken}, Twin(0.5, 1.0))
    assert moment.gain_over_twin is None
    assert moment.gain == pytest.approx(0.3)
    assert moment.contributions == {"a": pytest.approx(0.3)}
    assert moment.shares == {}


def test_seed_that_the_last_tick_removed_has_no_part():
    moment = Moment(snapshot(HELD[0], slot("b", Stage.PRUNED)), SYNERGY)
    assert set(moment.contributions) == set(moment.shares) == {"a"}


def test_at_the_horizon_what_counts_is_what_is_delivered():
    """A fossil and a held seed that is ready; neither a held seed that is not, nor one in training."""
    slots = (
        slot("a", Stage.FOSSILIZED, alpha=1.0, parameters=10),
        slot("b", Stage.HOLDING, alpha=1.0, parameters=20, ready=True),
        slot("c", Stage.HOLDING, alpha=1.0, parameters=40),
        slot("d", Stage.TRAINING, alpha=1.0, parameters=80),
    )
    qualities = table(none=0.1, a=0.2, ab=0.3, abc=0.4, abcd=0.5)
    live = snapshot(*slots, quality=0.5, loss=1.0, host=100, total=250)
    running = Moment(live, qualities, kept_loss_nats=2.0)
    assert (running.quality, running.loss_nats, running.parameters) == (0.5, 1.0, 250)
    ended = Moment(live, qualities, ending=Ending.TRUNCATED, kept_loss_nats=2.0)
    assert (ended.quality, ended.loss_nats, ended.parameters) == (0.3, 2.0, 130)


def test_percent_is_not_taken_for_a_fraction():
    with pytest.raises(InvalidMoment, match=r"evaluation_quality is 75\.0; give a fraction"):
        Moment(snapshot(quality=75.0), {})
    with pytest.raises(InvalidMoment, match=r"quality of \['a'\] is 50\.0"):
        Moment(snapshot(*HELD), table(none=0.2, a=50.0))
    with pytest.raises(InvalidMoment, match=r"twin's quality is -0\.1"):
        Twin(-0.1, 1.0)


def test_table_of_another_body_is_refused():
    with pytest.raises(InvalidMoment, match=r"slot 'stm', which the snapshot lacks; did you mean 'stem'\?"):
        Moment(snapshot(slot("stem")), {frozenset(): 0.2, frozenset({"stm"}): 0.5})
