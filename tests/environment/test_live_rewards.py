"""What players earn in the live environment, with the rewards as it computes them."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from esper.contracts import (
    WAIT,
    Action,
    AlphaSpeed,
    AlphaTarget,
    EpisodeEvent,
    Event,
    Kind,
    Op,
    RansomwareSuspected,
    RewardHackingSuspected,
    Stage,
    Topology,
)
from esper.controller import RandomLegal
from esper.environment import GrowEnv, find_task
from esper.growth.blueprints import registry
from esper.rewards import TERMS, TERMS_OF, Ending, Mode, Moment, RewardConfig, TermName, needs_twin
from tests.environment.worlds import CLUSTERS, LOOSE, Inert, Player, Ransom, grower, idle, play

WITH_TWIN = [mode for mode in Mode if needs_twin(mode)]
WITHOUT_TWIN = [mode for mode in Mode if not needs_twin(mode)]


@pytest.fixture(scope="module", autouse=True)
def _seeds_that_cannot_help() -> Iterator[None]:
    useless = {
        name: registry.Blueprint(name, Topology.DENSE, Kind.REWEIGHT, build)
        for name, build in {"inert": Inert, "ransom": Ransom}.items()
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry._REGISTRY, Topology.DENSE, registry._REGISTRY[Topology.DENSE] | useless)
        yield


class Suspicions:
    """A sink that keeps the suspicions."""

    def __init__(self) -> None:
        self.kept: list[EpisodeEvent] = []

    def write(self, event: Event) -> None:
        if isinstance(event, RansomwareSuspected | RewardHackingSuspected):
            self.kept.append(event)


def earned(env: GrowEnv, player: Player, seed: int) -> float:
    return sum(record["reward"] for record in play(env, player, seed))


# Gaming


def cycler(env: GrowEnv) -> Action:
    """Germinates and prunes in the same slot again and again."""
    stage = env.episode.snapshot.slots[2].stage
    if stage is Stage.DORMANT:
        return Action(Op.GERMINATE, "layer1", blueprint="ransom")
    pruning = Action(Op.PRUNE, "layer1", alpha_speed=AlphaSpeed.INSTANT)
    return pruning if stage in (Stage.GERMINATED, Stage.TRAINING) else WAIT


def turntabler(env: GrowEnv) -> Action:
    """Grows an inert seed and then turns its alpha up and down."""
    slot = env.episode.snapshot.slots[2]
    if slot.stage is Stage.HOLDING:
        target = AlphaTarget.HALF if slot.alpha == 1.0 else AlphaTarget.FULL
        return Action(Op.SET_ALPHA_TARGET, "layer1", alpha_target=target, alpha_speed=AlphaSpeed.INSTANT)
    return grower(("layer1", "inert"))(env)


USELESS: dict[str, Player] = {
    "germinating and pruning": cycler,
    "turning alpha up and down": turntabler,
    "fossilising at once": grower(("layer1", "inert")),
    "fossilising two": grower(("layer0", "inert"), ("layer1", "inert")),
    "waiting in HOLDING": grower(("layer1", "inert"), keep=False),
    "keeping a ransom seed": grower(("layer1", "ransom")),
    "holding a ransom seed": grower(("layer1", "ransom"), keep=False),
    "keeping two that undo each other": grower(("layer1.0", "ransom"), ("layer1", "ransom")),
}


@pytest.mark.parametrize("mode", Mode)
def test_no_play_with_seeds_that_cannot_help_earns_more_than_waiting(mode):
    """S7-anti-gaming, as each mode is played live: the gates let everything pass, and the seeds bring nothing."""
    env = GrowEnv(CLUSTERS, mode, world=LOOSE)
    nothing = earned(env, idle, 1)
    charged = TermName.INTERVENTION_COST in TERMS_OF[mode]
    for name, player in USELESS.items():
        records = play(env, player, 1)
        assert any(record["executed"].op is Op.GERMINATE for record in records)
        leaves_no_trace = name == "germinating and pruning" and not charged
        least_loss = -1e-9 if leaves_no_trace else 1e-4
        assert sum(record["reward"] for record in records) <= nothing - least_loss, name


def test_the_plays_that_are_to_be_useless_do_what_their_names_say():
    """The test above would be empty otherwise."""
    env = GrowEnv(CLUSTERS, world=LOOSE)
    ops = {name: [record["executed"].op for record in play(env, player, 1)] for name, player in USELESS.items()}
    assert ops["germinating and pruning"].count(Op.PRUNE) >= 2
    assert ops["turning alpha up and down"].count(Op.SET_ALPHA_TARGET) >= 3
    assert ops["fossilising two"].count(Op.FOSSILIZE) == 2
    assert Op.FOSSILIZE in ops["fossilising at once"]
    assert Op.FOSSILIZE in ops["keeping a ransom seed"]
    assert Op.FOSSILIZE not in ops["waiting in HOLDING"] + ops["holding a ransom seed"]


# Suspicions


def suspicions(mode: Mode, player: Player) -> list[EpisodeEvent]:
    sink = Suspicions()
    env = GrowEnv(CLUSTERS, mode, sink=sink)
    for seed in range(3):
        play(env, player, seed)
    return sink.kept


@pytest.mark.parametrize("mode", WITH_TWIN)
def test_a_seed_that_is_needed_and_brought_nothing_is_reported(mode):
    """R4-H9: through the sink of the live environment, in every mode that plays the twin."""
    told = suspicions(mode, grower(("layer1", "ransom")))
    assert {type(event) for event in told} == {RansomwareSuspected, RewardHackingSuspected}
    for event in told:
        assert event.slot == "layer1"
        assert event.contribution > 0.1
        assert event.contribution > 3 * event.gain
        assert (event.gain <= 0.01) == isinstance(event, RansomwareSuspected)


@pytest.mark.parametrize("mode", Mode)
def test_two_seeds_that_only_undo_each_other_are_reported_in_every_mode(mode):
    """R4-H9: what the coalitions show needs no twin, so `frugal`, the default of a run, tells it too."""
    told = suspicions(mode, grower(("layer1.0", "ransom"), ("layer1", "ransom")))
    assert {event.slot for event in told if isinstance(event, RansomwareSuspected)} == {"layer1.0", "layer1"}


@pytest.mark.parametrize("mode", WITHOUT_TWIN)
def test_without_a_twin_a_lone_ransom_seed_goes_unreported(mode):
    """The one exception, as docs/rewards.md states it: such modes pay quality itself, so it earns nothing either."""
    assert suspicions(mode, grower(("layer1", "ransom"))) == []


@pytest.mark.parametrize("mode", [Mode.TWIN, Mode.FRUGAL])
def test_honest_play_is_not_suspected(mode):
    assert suspicions(mode, idle) == suspicions(mode, grower(("layer0", "inert"), ("layer1", "inert"))) == []


# Telescoping


def moment_of(env: GrowEnv, ending: Ending) -> Moment:
    snapshot, measured = env.episode.snapshot, env.episode.evaluation
    return Moment(
        snapshot, measured.table, env._twin(snapshot.host.epoch), ending, measured.worths[snapshot.delivered].loss
    )


ENDINGS = {(False, False): Ending.RUNNING, (False, True): Ending.TRUNCATED, (True, False): Ending.TERMINATED}


def random_play(env: GrowEnv, seed: int) -> Iterator[tuple[dict[str, Any], Moment]]:
    """Every step of an episode of random legal operations, and the moment it leads to; first the start.

    Four of five prunings are thought better of, so that some seeds grow old.
    """
    policy, generator = RandomLegal(), torch.Generator().manual_seed(seed)
    observation, _ = env.reset(seed=seed)
    yield {}, moment_of(env, Ending.RUNNING)
    over = False
    while not over:
        decision, _ = policy.act(observation, policy.start(env.codec), generator)
        while decision.choices[0] == Op.PRUNE and torch.rand((), generator=generator) < 0.8:
            decision, _ = policy.act(observation, policy.start(env.codec), generator)
        observation, _, terminated, truncated, info = env.step(decision.choices)
        over = terminated or truncated
        yield info, moment_of(env, ENDINGS[terminated, truncated])


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_shaping_telescopes_at_every_step_of_random_legal_play(discount):
    """R4-H8: the discounted sum of a shaping term is gamma^t Phi(s_t) - Phi(s_0), in the live loop, up to the end."""
    config = RewardConfig(outcomes=CLUSTERS.classes, discount=discount)
    ops: set[Op] = set()
    slots: set[str | None] = set()
    endings: set[Ending] = set()
    long = replace(CLUSTERS, horizon=30)
    for seed, mode in enumerate((Mode.SHAPED, Mode.TWIN, Mode.LOSS, Mode.FRUGAL)):
        potentials = {name: TERMS[name].potential for name in TERMS_OF[mode] if TERMS[name].potential}
        env = GrowEnv(long, mode, config, world=LOOSE)
        (_, start), *steps = random_play(env, seed)
        paid = dict.fromkeys(potentials, 0.0)
        for t, (info, moment) in enumerate(steps):
            ops, slots = ops | {info["executed"].op}, slots | {info["executed"].slot}
            for name, potential in potentials.items():
                paid[name] += discount**t * info["reward_terms"][name]
                worth = 0.0 if moment.ending is Ending.TERMINATED else potential(moment, config)
                expected = discount ** (t + 1) * worth - potential(start, config)
                assert paid[name] == pytest.approx(expected, abs=1e-12), (mode, name, t)
        endings.add(moment.ending)
    assert ops == set(Op), "stages change, seeds are pruned and fossilised"
    assert slots == {None, *CLUSTERS.slots}
    assert Ending.TRUNCATED in endings


# The default task


ORACLE = grower(("block1", "conv_heavy"), ("block2", "conv_heavy"))
NOTHING_GROWN = grower(("block0", "inert"), ("block1", "inert"), ("block2", "inert"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_every_mode_ranks_helpful_over_no_growth_over_useless_growth(seed):
    """Useless growth passes no gate, so that it costs its operations alone, where these cost anything.

    On the default task and through its real gates; examples/oracle.py shows it in one mode, on one seed.
    """
    env = GrowEnv(find_task("digits-pointwise"))
    for mode in Mode:
        env.reward_mode = mode
        oracle, alone, useless = (play(env, player, seed) for player in (ORACLE, idle, NOTHING_GROWN))
        assert oracle[-1]["quality"] >= 0.75
        assert alone[-1]["quality"] <= 0.35
        totals = [sum(record["reward"] for record in records) for records in (oracle, alone, useless)]
        assert totals[0] > totals[1], (mode, totals)
        if TermName.INTERVENTION_COST in TERMS_OF[mode]:
            assert totals[1] > totals[2], (mode, totals)
        else:
            assert totals[1] == pytest.approx(totals[2]), (mode, totals)
