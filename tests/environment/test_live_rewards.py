"""Rewards in the live loop: what scripted players earn, in every mode, from the very same episodes."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from esper.contracts import WAIT, Action, AlphaSpeed, AlphaTarget, Op, Stage
from esper.environment import Episode, World, find_task, twin_curve
from esper.environment.env import GrowEnv
from esper.rewards import TERMS_OF, Ending, Mode, Moment, RewardConfig, TermName, Transition, potential, reward
from tests.environment.worlds import POINTWISE, SMALL, grower, idle

Chooser = Callable[[Episode], Action]


@dataclass(frozen=True)
class Played:
    """One episode as transitions, so that every mode can be computed from it."""

    transitions: tuple[Transition, ...]
    accuracy: float
    classes: int

    def total(self, mode: Mode, config: RewardConfig) -> float:
        return sum(config.discount**t * reward(step, mode, config).total for t, step in enumerate(self.transitions))


class Seat:
    """What a player sees of an episode that is not in an environment."""

    def __init__(self, episode: Episode) -> None:
        self.episode = episode


def record(task, splits, player, seed: int) -> Played:
    episode = Episode(task, splits, seed, World())
    twins = twin_curve(task, splits, seed, World())
    steps = []
    while not episode.done:
        before, table = episode.snapshot, episode.evaluation.table
        outcome = episode.step(player(Seat(episode)))
        over = Ending.TERMINATED if outcome.panic else Ending.TRUNCATED if episode.done else Ending.RUNNING
        epoch = before.host.epoch
        steps.append(
            Transition(
                before, episode.snapshot, outcome.executed, table, outcome.evaluation.table,
                twins[epoch], twins[epoch + 1], over, outcome.evaluation.kept_loss,
            )
        )  # fmt: skip
    return Played(tuple(steps), episode.evaluation.accuracy, task.classes)


def cycler(env: GrowEnv) -> Action:
    """Germinates and prunes the same slot again and again."""
    stage = env.episode.snapshot.slots[1].stage
    if stage is Stage.DORMANT:
        return Action(Op.GERMINATE, "block1", blueprint="norm")
    if stage in (Stage.GERMINATED, Stage.TRAINING):
        return Action(Op.PRUNE, "block1")
    return WAIT


def turntabler(env: GrowEnv) -> Action:
    """Grows an inert seed and then turns its alpha up and down."""
    slot = env.episode.snapshot.slots[1]
    if slot.stage is Stage.HOLDING:
        target = AlphaTarget.HALF if slot.alpha == 1.0 else AlphaTarget.FULL
        return Action(Op.SET_ALPHA_TARGET, "block1", alpha_target=target, alpha_speed=AlphaSpeed.INSTANT)
    return grower(("block1", "inert"))(env)


USELESS = {
    "cycling": cycler,
    "turntabling": turntabler,
    "holding a useless seed": grower(("block1", "inert")),
    "useless seeds everywhere": grower(("block0", "inert"), ("block1", "inert"), ("block2", "inert")),
}


@pytest.fixture(scope="module")
def useless() -> dict[str, Played]:
    return {name: record(POINTWISE, SMALL, player, 3) for name, player in USELESS.items()}


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("name", USELESS)
def test_useless_growth_never_beats_doing_nothing(useless, name, mode):
    """S7-anti-gaming, live."""
    config = RewardConfig(outcomes=10)
    nothing = record(POINTWISE, SMALL, idle, 3).total(mode, config)
    free = name == "cycling" and TermName.INTERVENTION_COST not in TERMS_OF[mode]  # leaves no trace, and costs none
    assert useless[name].total(mode, config) <= nothing + (1e-9 if free else -1e-4)
    assert any(step.action.op is Op.GERMINATE for step in useless[name].transitions)


@pytest.mark.parametrize("discount", [1.0, 0.97])
@pytest.mark.parametrize("mode", Mode)
def test_potentials_telescope_over_whole_live_episodes(useless, mode, discount):
    """R4-H8, in the live loop: through growth, blending, fossils, pruning and cooling."""
    config = RewardConfig(outcomes=10, discount=discount)
    helpful = record(POINTWISE, SMALL, grower(("block1", "conv_heavy"), ("block2", "conv_light")), 4)
    for played in (helpful, *useless.values()):
        first, last = played.transitions[0], played.transitions[-1]
        steps = len(played.transitions)
        summed = sum(
            discount**t * (discount * potential(step.end, mode, config) - potential(step.start, mode, config))
            for t, step in enumerate(played.transitions)
        )
        expected = discount**steps * potential(last.end, mode, config) - potential(first.start, mode, config)
        assert summed == pytest.approx(expected, abs=1e-9)
        for step, following in zip(played.transitions, played.transitions[1:], strict=False):
            assert potential(step.end, mode, config) == potential(following.start, mode, config), "states join"
        assert isinstance(first.start, Moment)


def test_host_drift_pays_no_seed(useless):
    """Pitfall: the host learns under an inert seed; nobody is paid for that."""
    config = RewardConfig(outcomes=10)
    for mode in (Mode.SHAPED, Mode.SIMPLIFIED, Mode.TWIN):
        assert useless["holding a useless seed"].total(mode, config) < 0.0


ORACLE = grower(("block1", "conv_heavy"), ("block2", "conv_heavy"))
NOTHING_GROWN = grower(("block0", "inert"), ("block1", "inert"), ("block2", "inert"))
SEEDS = range(10)


@pytest.fixture(scope="module")
def contest() -> dict[str, list[Played]]:
    task = find_task("digits-pointwise")
    splits = task.load(None)
    players = {"oracle": ORACLE, "idle": idle, "useless": NOTHING_GROWN}
    return {name: [record(task, splits, player, seed) for seed in SEEDS] for name, player in players.items()}


def test_the_oracle_lifts_the_default_task_past_75_percent_through_the_real_gates(contest):
    oracle = [played.accuracy for played in contest["oracle"]]
    alone = [played.accuracy for played in contest["idle"]]
    assert sum(oracle) / len(oracle) >= 0.75
    assert min(oracle) >= 0.75
    assert max(alone) <= 0.35


@pytest.mark.parametrize("mode", Mode)
def test_every_mode_ranks_helpful_over_no_growth_over_useless_growth(contest, mode):
    config = RewardConfig(outcomes=10)
    for oracle, alone, useless in zip(contest["oracle"], contest["idle"], contest["useless"], strict=True):
        values = [played.total(mode, config) for played in (oracle, alone, useless)]
        assert all(map(math.isfinite, values))
        assert values[0] > values[1] > values[2], (mode, values)
