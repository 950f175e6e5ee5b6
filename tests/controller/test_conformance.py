"""What holds for every policy."""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from esper.contracts import HEADS_OF, Head, Op, WrongBody
from esper.controller import (
    ConstantByRent,
    ControllerNetwork,
    Heuristic,
    HeuristicConfig,
    Learned,
    NoGrowth,
    Policy,
    RandomLegal,
    Ranker,
    Schedule,
    ScheduledSeed,
    find_policy,
    load_gain_networks,
    random_schedule,
    shipped_file,
)
from esper.controller.learned import Mind
from esper.environment import FIELDS, GrowEnv
from tests.controller.playing import Seat, Turn, play
from tests.environment.worlds import CLUSTERS
from tests.growth.cases import same

EAGER = HeuristicConfig(plateau_epochs=1, min_improvement=1.0, patience_holding=1, min_contribution=0.05, max_active=2)
ENV = GrowEnv(CLUSTERS, "frugal")
POLICIES: dict[str, Callable[[], Policy]] = {
    "none": NoGrowth,
    "random": RandomLegal,
    "schedule": lambda: Schedule((ScheduledSeed(0, "layer1.0", "mlp"), ScheduledSeed(2, "layer1", "low_rank"))),
    "random schedule": lambda: random_schedule(ENV.codec, CLUSTERS.horizon, torch.Generator().manual_seed(1)),
    "learned, in moods": lambda: Learned(ControllerNetwork(FIELDS), moods=2.0),
    "learned": lambda: Learned(ControllerNetwork(FIELDS)),
    "learned, greedy": lambda: Learned(ControllerNetwork(FIELDS), greedy=True),
    "heuristic": lambda: Heuristic(FIELDS),
    "constant": lambda: ConstantByRent(FIELDS),
    "ranker": lambda: Ranker(load_gain_networks(shipped_file("ranker")), FIELDS),
    "keeper": lambda: find_policy("keeper", FIELDS),
    "eager heuristic": lambda: Heuristic(FIELDS, EAGER),
}


every_policy = pytest.mark.parametrize("name", POLICIES)


@cache
def policy_of(name: str) -> Policy:
    return POLICIES[name]()


@cache
def played(name: str, seed: int) -> list[Turn]:
    return play(ENV, policy_of(name), seed)


@every_policy
def test_every_choice_is_legal_and_what_the_op_does_not_use_is_zero(name):
    turns = [turn for seed in range(3) for turn in played(name, seed)]
    assert [turn.refused for turn in turns] == [()] * len(turns)
    for turn in turns:
        assert turn.executed.op == turn.choices[0]
        unused = [
            choice for head, choice in zip(Head, turn.choices, strict=True) if head not in HEADS_OF[Op(turn.choices[0])]
        ]
        assert not any(unused)


def test_those_that_grow_do():
    grown = {name: {turn.executed.op for turn in played(name, 0)} for name in POLICIES}
    assert grown["none"] == {Op.WAIT}
    assert grown["eager heuristic"] >= {Op.GERMINATE, Op.ADVANCE, Op.PRUNE}
    assert grown["schedule"] >= {Op.GERMINATE, Op.ADVANCE, Op.FOSSILIZE}
    may_wait = ("none", "learned, greedy", "constant", "ranker")
    assert all(Op.GERMINATE in ops for name, ops in grown.items() if name not in may_wait)


@every_policy
def test_the_same_seed_plays_the_same_episode_also_beside_another_one(name):
    seats = [Seat(GrowEnv(CLUSTERS, "frugal"), policy_of(name), seed) for seed in (0, 1)]
    while not all(seat.over for seat in seats):
        for seat in seats:
            if not seat.over:
                seat.turn()
    assert [seat.turns for seat in seats] == [played(name, seed) for seed in (0, 1)]


def plain(state: Any) -> Any:
    """Tensors as a tuple, and the rest beside them, which can be compared."""
    if isinstance(state, Mind):
        return (*state.memory, torch.tensor(tuple(vars(state.course).values())[-1] or ()))
    return state


@every_policy
def test_acting_changes_neither_the_state_nor_the_observation_nor_the_global_random_numbers(name):
    policy = policy_of(name)
    seat = Seat(ENV, policy, 2)
    for _ in range(8):
        seat.turn()
    state, observation, before = copy.deepcopy(seat.state), copy.deepcopy(seat.observation), torch.get_rng_state()
    chosen = [policy.act(seat.observation, seat.state, torch.Generator().manual_seed(4)) for _ in range(2)]
    (first, then), (second, again) = chosen
    assert first.choices == second.choices
    assert same(plain(then), plain(again))
    assert same(plain(seat.state), plain(state))
    assert all((seat.observation[name] == observation[name]).all() for name in observation)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("slots", [("layer1", "layer1.0", "layer0"), ("layer0.0", "layer1.0", "layer1")], ids=", ".join)
@every_policy
def test_choices_among_as_many_slots_of_other_names_or_order_are_refused(name, slots):
    """R0-X3: compared by name and place, never by count, and nothing is played."""
    policy = policy_of(name)
    state = policy.start(GrowEnv(replace(CLUSTERS, slots=slots)).codec)
    observation, _ = ENV.reset(seed=0)
    decision, _ = policy.act(observation, state, torch.Generator().manual_seed(0))
    message = f"the choices are among the slots {', '.join(slots)}; the body has layer0, layer1.0, layer1, so start"
    with pytest.raises(WrongBody, match=message):
        ENV.step(decision.choices)
    assert ENV.episode.snapshot.host.epoch == 0


def test_policies_have_names():
    names = {"none", "random", "schedule", "learned", "heuristic", "constant", "ranker", "keeper"}
    assert {make().name for make in POLICIES.values()} == names
