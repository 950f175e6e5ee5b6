"""Whole episodes of scripted and of random players: rewards telescope, rank, and cannot be gamed."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esper.contracts import AlphaSpeed, Stage
from esper.rewards import TERMS, TERMS_OF, Ending, Mode, RewardConfig, TermName, potential, reward
from tests.rewards.simulator import (
    HOST_PARAMETERS,
    OUTCOMES,
    World,
    chooser,
    cycler,
    declining,
    discounted,
    everything_at_once,
    grower,
    nothing,
    play,
    rising,
    steady,
    turntable,
)

CONFIG = RewardConfig(outcomes=OUTCOMES)
LOOSE = World(strict=False)
CHARGED = {mode for mode in Mode if TermName.INTERVENTION_COST in TERMS_OF[mode]}
"""Modes in which operations cost something."""

SCRIPTS = {
    "nothing": (nothing, World()),
    "helpful": (grower("helpful"), World()),
    "helpful, one slot": (grower("helpful", "a"), World()),
    "helpful, ten slots": (grower("helpful", "cg"), World(slots=tuple("abcdefghij"))),
    "five at once": (everything_at_once("harmful"), World(slots=tuple("abcde"), horizon=40)),
    "helpful, held": (grower("helpful", keep=False), World()),
    "useless": (grower("useless"), World()),
    "useless, kept at once": (grower("useless", hold=0, world=LOOSE), LOOSE),
    "harmful, kept": (grower("harmful", world=LOOSE), LOOSE),
    "ransom": (grower("ransom"), World()),
    "cycle newborn": (cycler("useless"), World()),
    "cycle training": (cycler("helpful", Stage.TRAINING), World()),
    "cycle blending": (cycler("moderate", Stage.BLENDING, AlphaSpeed.FAST), World()),
    "cycle holding": (cycler("helpful", Stage.HOLDING), World(horizon=40)),
    "turntable": (turntable("helpful"), World()),
    "everything at once": (everything_at_once("useless"), World()),
    "crash": (grower("helpful"), World(crash_at=12)),
}
EPISODES = {name: play(player, world) for name, (player, world) in SCRIPTS.items()}


def total(name, mode, config=CONFIG):
    return discounted(EPISODES[name], mode, config)


CONFIGS = [RewardConfig(outcomes=OUTCOMES, discount=discount) for discount in (1.0, 0.99, 0.97)]


def test_scripts_reach_every_stage_and_every_ending():
    """The other tests of this file would be empty otherwise."""
    stages = {slot.stage for steps in EPISODES.values() for step in steps for slot in step.after.slots}
    endings = {step.ending for steps in EPISODES.values() for step in steps}
    assert stages == set(Stage)
    assert endings == set(Ending)
    assert len(EPISODES["helpful"][-1].table_after) == 8
    assert len(EPISODES["five at once"][-1].table_after) == 7
    assert [slot.stage for slot in EPISODES["helpful"][-1].after.slots] == [Stage.FOSSILIZED] * 3


def cases(*names):
    """Every mode at every discount, with each of the names."""
    return itertools.product(Mode, CONFIGS, names)


def test_rewards_telescope_over_the_whole_episode():
    """R4-H8: across stage changes, several slots, prune, fossilise and both endings."""
    for mode, config, name in cases(*SCRIPTS):
        steps = EPISODES[name]
        costs = [term for term in TERMS_OF[mode] if TERMS[term].potential is None]
        rewards = [reward(step, mode, config) for step in steps]
        paid = sum(
            config.discount**t * (one.total - sum(one.terms[cost] for cost in costs)) for t, one in enumerate(rewards)
        )
        final = 0.0 if steps[-1].ending is Ending.TERMINATED else potential(steps[-1].end, mode, config)
        expected = config.discount ** len(steps) * final - potential(steps[0].start, mode, config)
        assert math.isclose(paid, expected, abs_tol=1e-9), (mode, config.discount, name)


def test_twin_mode_pays_exactly_what_growth_bought():
    for name in SCRIPTS.keys() - {"crash"}:
        last = EPISODES[name][-1]
        seeds = sum(slot.parameters for slot in last.after.slots if slot.delivered)
        growth = (HOST_PARAMETERS + seeds) / HOST_PARAMETERS
        delivered = last.table_after[last.after.delivered]
        bought = delivered - last.twin_after.quality - 0.08 * math.log(growth)
        assert math.isclose(total(name, Mode.TWIN), bought, abs_tol=1e-9), name


def test_helpful_growth_beats_none_and_none_beats_useless_growth():
    """S7-anti-gaming, the ranking that every mode owes. What is not delivered costs nothing but its operations."""
    useless = ("useless", "useless, kept at once", "everything at once", "harmful, kept", "ransom", "crash")
    for mode, config, name in cases(*useless):
        none = total("nothing", mode, config)
        assert total("helpful", mode, config) > total("helpful, one slot", mode, config) > none, mode
        free = mode not in CHARGED and EPISODES[name][-1].ending is Ending.TRUNCATED
        if free and not EPISODES[name][-1].after.delivered:
            assert total(name, mode, config) == pytest.approx(none, abs=1e-9), (mode, config.discount, name)
        else:
            assert total(name, mode, config) < none - 1e-6, (mode, config.discount, name)


def test_germinating_and_pruning_in_turn_never_pays():
    """S7-anti-gaming: the slots end empty, so the cycle earned nothing, and its operations cost."""
    for mode, config, name in cases("cycle newborn", "cycle training", "cycle blending", "cycle holding"):
        steps = EPISODES[name]
        assert steps[-1].after.host.total_parameters == HOST_PARAMETERS
        idle = play(nothing, World(horizon=len(steps)))
        profit = total(name, mode, config) - discounted(idle, mode, config)
        assert profit <= 1e-9, (mode, config.discount, name)
        assert profit < -1e-3 or mode not in CHARGED, (mode, config.discount, name)


def test_waiting_in_holding_never_beats_fossilising():
    """S7-anti-gaming: it is delivered all the same, and where time is charged for it costs."""
    assert EPISODES["helpful, held"][-1].after.delivered == {"a", "b", "c"}
    for mode, config in itertools.product(Mode, CONFIGS):
        held, kept = total("helpful, held", mode, config), total("helpful", mode, config)
        assert held <= kept + 1e-9, (mode, config.discount)
        if mode is Mode.SHAPED:
            assert held < kept - 1e-3, config.discount
        elif config.discount == 1.0:  # else it matters that other operations are charged for sooner
            assert held == pytest.approx(kept), mode


def test_a_held_seed_that_fails_its_gate_earns_nothing():
    """Five that are harmful stay in HOLDING to the end: the network that is delivered is the host alone."""
    last = EPISODES["five at once"][-1]
    assert {slot.stage for slot in last.after.slots} == {Stage.HOLDING}
    assert last.after.delivered == frozenset()
    idle = play(nothing, World(horizon=40))
    assert total("five at once", Mode.TWIN) == pytest.approx(discounted(idle, Mode.TWIN, CONFIG))


def test_alpha_turntabling_never_pays():
    """S7-anti-gaming: never better than keeping the seed, and with a useless seed never better than nothing."""
    swings = {speed: play(turntable("helpful", speed, "a"), World()) for speed in AlphaSpeed}
    idles = {speed: play(turntable("useless", speed), World()) for speed in AlphaSpeed}
    for mode, config, speed in cases(*AlphaSpeed):
        swung, kept = discounted(swings[speed], mode, config), total("helpful, one slot", mode, config)
        assert swung <= kept + 1e-9, (mode, config.discount, speed)
        assert swung < kept or mode not in CHARGED, (mode, config.discount, speed)
        idle, none = discounted(idles[speed], mode, config), total("nothing", mode, config)
        assert idle <= none + 1e-9, (mode, config.discount, speed)
        assert idle < none - 1e-6 or mode not in CHARGED, (mode, config.discount, speed)


def test_fossilising_a_useless_seed_early_never_pays():
    """S7-anti-gaming: even where the gate would let it pass."""
    early = {hold: play(grower("useless", "a", hold=hold, world=LOOSE), LOOSE) for hold in (0, 1, 5)}
    for mode, config, hold in cases(*early):
        assert discounted(early[hold], mode, config) < total("nothing", mode, config), (mode, config.discount, hold)


def test_fossilising_a_helpful_seed_before_it_has_shown_itself_costs():
    """S7-anti-gaming: legitimacy."""
    first, second = (
        discounted(play(grower("helpful", "a", hold=hold), World()), Mode.SHAPED, CONFIG) for hold in (1, 2)
    )
    assert first < second


@pytest.mark.parametrize("blueprint", ["helpful", "useless"])
def test_host_drift_pays_no_seed_and_charges_none(blueprint):
    """S7-anti-gaming: step by step the same reward, whether the host improves, stands still or declines."""
    plays = [play(grower(blueprint), World(host)) for host in (steady, rising, declining)]
    for mode in (Mode.SHAPED, Mode.SIMPLIFIED, Mode.LOSS, Mode.TWIN):
        hosts = [[reward(step, mode, CONFIG).total for step in steps] for steps in plays]
        for still, up, down in zip(*hosts, strict=True):
            assert up == pytest.approx(still, abs=1e-9), mode
            assert down == pytest.approx(still, abs=1e-9), mode


def test_standing_still_pays_nothing():
    """An empty host over a whole episode, and a fossil over the epochs after it was kept."""
    still = EPISODES["helpful, one slot"][-6:-1]
    assert all(slot.stage is Stage.FOSSILIZED for step in still for slot in step.before.slots[:1])
    for mode in Mode:
        assert all(reward(step, mode, CONFIG).total == 0.0 for step in EPISODES["nothing"][:-1]), mode
        for step in still:
            assert reward(step, mode, CONFIG).total == pytest.approx(0.0, abs=1e-12), mode


plays = st.lists(st.integers(0, 10**6), min_size=25, max_size=25)


@settings(max_examples=30)
@given(plays, st.sampled_from([1.0, 0.95]), st.booleans())
def test_no_play_with_useless_seeds_beats_doing_nothing(numbers, discount, with_harmful):
    """S7-anti-gaming: any legal sequence of operations, with gates that let everything pass."""
    config = RewardConfig(outcomes=OUTCOMES, discount=discount)
    blueprints = ("useless", "harmful") if with_harmful else ("useless",)
    steps = play(chooser(numbers, blueprints, LOOSE), LOOSE)
    for mode in Mode:
        assert discounted(steps, mode, config) <= total("nothing", mode, config) + 1e-9, mode


@settings(max_examples=30)
@given(plays, st.sampled_from([1.0, 0.95]))
def test_no_play_with_ransomware_beats_doing_nothing(numbers, discount):
    """S7-anti-gaming: removal costs much and nothing was gained."""
    config = RewardConfig(outcomes=OUTCOMES, discount=discount)
    steps = play(chooser(numbers, ("ransom", "useless"), LOOSE), LOOSE)
    for mode in Mode:
        assert discounted(steps, mode, config) <= total("nothing", mode, config) + 1e-9, mode


@settings(max_examples=30)
@given(plays)
def test_no_play_is_paid_more_than_growth_bought(numbers):
    """S7-anti-gaming: shaped and simplified pay at most the causal gain minus rent."""
    steps = play(chooser(numbers, ("helpful", "useless", "harmful", "ransom"), LOOSE), LOOSE)
    bought = discounted(steps, Mode.TWIN, CONFIG)
    rent = sum(reward(step, Mode.TWIN, CONFIG).terms[TermName.RENT] for step in steps)
    for mode in (Mode.SHAPED, Mode.SIMPLIFIED):
        assert discounted(steps, mode, CONFIG) <= max(bought, rent) + 1e-9


def test_modes_agree_on_the_order_of_honest_players():
    honest = ("helpful", "helpful, one slot", "nothing", "useless, kept at once")
    for mode, (better, worse) in itertools.product(Mode, itertools.pairwise(honest)):
        assert total(better, mode) > total(worse, mode), (mode, better, worse)
