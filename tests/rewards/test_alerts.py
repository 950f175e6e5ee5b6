"""Suspicions reach whoever listens, in every mode."""

import pytest

from esper.contracts import Event, RansomwareSuspected, RewardHackingSuspected, Stage
from esper.rewards import Mode, Reward, Twin, reward
from tests.rewards.cases import CONFIG, slot, snapshot, step, table
from tests.rewards.simulator import World, grower, nothing, play

HELD = slot("a", Stage.HOLDING, alpha=1.0), slot("b", Stage.HOLDING, alpha=1.0)
FAIR = table(none=0.3, a=0.4, b=0.4, ab=0.5)
RANSOM = table(none=0.5, a=0.5, b=0.3, ab=0.5)
GREED = table(none=0.5, a=0.5, b=0.2, ab=0.55)
TWIN = Twin(0.0, 1.0)


def judged(before, after, mode=Mode.SHAPED, twin=TWIN) -> Reward:
    facts = {"table_before": before, "table_after": after, "twin_before": twin, "twin_after": twin}
    return reward(step(snapshot(*HELD, quality=0.5, epoch=7), **facts), mode, CONFIG)


@pytest.mark.parametrize("mode", Mode)
def test_suspicions_are_part_of_the_result_in_every_mode(mode):
    """R4-H9: wired, and emitted as events with the facts behind them."""
    (ransom,) = judged(FAIR, RANSOM, mode).alerts
    assert ransom == RansomwareSuspected(7, "a", pytest.approx(0.2), pytest.approx(0.0))
    (hacking,) = judged(FAIR, GREED, mode).alerts
    assert hacking == RewardHackingSuspected(7, "a", pytest.approx(0.35), pytest.approx(0.05))
    assert isinstance(ransom, Event)
    assert isinstance(hacking, Event)


def test_each_suspicion_is_raised_once():
    assert judged(RANSOM, RANSOM).alerts == ()
    assert judged(GREED, GREED).alerts == ()
    assert len(judged(GREED, RANSOM).alerts) == 1
    assert judged(RANSOM, FAIR).alerts == ()


def test_ransomware_is_penalised_and_the_relief_is_not_a_profit():
    caught, freed = judged(FAIR, RANSOM), judged(RANSOM, FAIR)
    assert caught.terms["ransomware"] == pytest.approx(-0.3 * 0.1)
    assert caught.total + freed.total == pytest.approx(0.0)


def test_episode_that_grows_ransomware_is_reported_and_honest_ones_are_not():
    """R4-H9 over whole episodes."""

    def kinds(player):
        rewards = [reward(step, Mode.TWIN, CONFIG) for step in play(player, World())]
        return {type(alert) for one in rewards for alert in one.alerts}

    assert kinds(grower("ransom")) == {RansomwareSuspected}
    assert kinds(grower("helpful")) == kinds(grower("useless")) == kinds(nothing) == set()
