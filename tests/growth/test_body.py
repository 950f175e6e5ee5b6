"""A body over its whole life: random legal play with every invariant checked, saving, events, coalitions."""

import copy
import itertools
import math
import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import esper
from esper.contracts import (
    CHOICES,
    RULES,
    Action,
    AlphaMode,
    AlphaRetargeted,
    AlphaSpeed,
    AlphaTarget,
    Event,
    Head,
    Op,
    OperationRefused,
    Stage,
    StageChanged,
    Style,
)
from esper.growth import (
    AlphaSchedule,
    Body,
    DenseHost,
    InvalidCheckpoint,
    Slot,
    UnknownCoalition,
    chain,
    count_parameters,
)
from esper.growth.membership import SchedulerFirst
from tests.growth.cases import (
    CASES,
    do,
    full_state,
    gradients,
    grow,
    loss_of,
    optimiser_of,
    own_keys,
    same,
    train_epoch,
)

CONV = CASES[0]


class Recorder:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def write(self, event: Event) -> None:
        self.events.append(event)


def actions(case) -> st.SearchStrategy[Action]:
    heads = {head.value: st.sampled_from(values) for head, values in CHOICES.items() if head is not Head.OP}
    names = st.sampled_from([*case.at, "nowhere"])
    kinds = st.sampled_from(["norm", "conv_light", "mlp", "unheard_of"])
    return st.builds(Action, op=st.sampled_from(Op), slot=names, blueprint=kinds, **heads)


def check_invariants(case, body: Body, optimizer: torch.optim.Optimizer, host_keys: list[str]) -> None:
    live = {id(p) for p in body.parameters()}
    assert {id(p) for group in optimizer.param_groups for p in group["params"]} == live
    assert set(optimizer.state) <= set(body.parameters())
    assert own_keys(body.host) == host_keys
    for slot, snapshot in zip(body.slots, body.snapshots(), strict=True):
        rule = RULES[snapshot.stage]
        assert (slot.seed is not None) == rule.holds_seed == (snapshot.blueprint is not None)
        assert 0.0 <= snapshot.alpha <= 1.0
        assert rule.holds_seed == (snapshot.alpha > 0.0)
        assert rule.holds_seed or snapshot.contribution is None
        if snapshot.stage in (Stage.HOLDING, Stage.FOSSILIZED):
            assert snapshot.alpha_mode is AlphaMode.STILL
            assert snapshot.alpha == snapshot.alpha_target > 0.0
    costs = body.costs()
    assert costs.live.parameters == sum(p.numel() for p in body.parameters())
    with body.eval().only(()), torch.no_grad():
        ungrown = body(case.inputs())
    plain = body.harvest().eval()
    assert count_parameters(plain.parameters()) == costs.kept.parameters
    delivered = [
        slot.slot
        for slot in body.snapshots()
        if slot.stage is Stage.FOSSILIZED or body.judge(Action(Op.FOSSILIZE, slot.slot))
    ]
    assert [fossil.slot for fossil in body.delivered()] == delivered
    with body.only(delivered), torch.no_grad():
        assert torch.equal(plain(case.inputs()), body(case.inputs()))
        if not body.blended():
            assert torch.equal(ungrown, body(case.inputs()))


PLAYS = st.lists(actions(CONV) | st.just("epoch"), min_size=5, max_size=40)


@settings(max_examples=6)
@given(PLAYS)
def test_random_play_keeps_every_invariant(play):
    plays(play)


@pytest.mark.slow
@settings(max_examples=60)
@given(PLAYS)
def test_much_random_play_keeps_every_invariant(play):
    plays(play)


def plays(play: list[Action | str]) -> None:
    """All of it, with every invariant checked after every move."""
    recorder = Recorder()
    body = CONV.body(sink=recorder)
    optimizer = optimiser_of(body)
    keys = own_keys(body.host)
    for move in play:
        if move == "epoch":
            train_epoch(CONV, body, optimizer)
        else:
            before = full_state(body, optimizer)
            allowed = bool(body.judge(move))
            assert bool(body.execute(move)) == allowed
            if not allowed or move.op is Op.WAIT:
                assert same(full_state(body, optimizer), before)
        check_invariants(CONV, body, optimizer, keys)
    for event in recorder.events:
        if isinstance(event, StageChanged):
            assert event.after in RULES[event.before].may_become
    fresh = CONV.body()
    fresh.load_state_dict(body.state_dict())
    assert same(fresh.state_dict(), body.state_dict())


@pytest.mark.parametrize("bodies", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_random_legal_play_reaches_every_stage_and_keeps_every_invariant(bodies):
    """C-growth. Only legal operations are drawn, so that seeds live long enough to be held, kept and pruned."""
    draw = random.Random(0)
    stages, ops = set(), set()
    for _ in range(bodies):
        body = CONV.body()
        optimizer = optimiser_of(body)
        keys = own_keys(body.host)
        for _ in range(35):
            speed, style = draw.choice(list(AlphaSpeed)), draw.choice((Style.LINEAR_ADD, Style.GATED))
            wanted = (
                Action(op, slot, blueprint="conv_small", style=style, alpha_speed=speed)
                for op, slot in itertools.product(set(Op) - {Op.WAIT}, CONV.at)
            )
            legal = [action for action in wanted if body.judge(action)]
            if legal:
                action = draw.choices(legal, [0.1 if action.op is Op.PRUNE else 1.0 for action in legal])[0]
                assert body.execute(action)
                ops.add(action.op)
            train_epoch(CONV, body, optimizer)
            check_invariants(CONV, body, optimizer, keys)
            stages |= {snapshot.stage for snapshot in body.snapshots()}
    assert stages == set(Stage)
    assert ops == set(Op) - {Op.WAIT}


def test_events_tell_the_story_with_reasons():
    recorder = Recorder()
    body = CONV.body(sink=recorder)
    grow(CONV, body, optimiser_of(body), "block1", Stage.FOSSILIZED)
    changes = [event for event in recorder.events if isinstance(event, StageChanged)]
    assert [(event.before.name, event.after.name) for event in changes] == [
        ("DORMANT", "GERMINATED"),
        ("GERMINATED", "TRAINING"),
        ("TRAINING", "HOLDING"),
        ("HOLDING", "FOSSILIZED"),
    ]
    assert any("contribution 0.5 is at least" in reason for reason in changes[-1].reasons)
    assert [event.target for event in recorder.events if isinstance(event, AlphaRetargeted)] == [1.0]
    refused = [event for event in recorder.events if isinstance(event, OperationRefused)]
    assert refused
    assert all(event.reasons for event in refused)


def test_contribution_without_a_seed_is_not_measured():
    """R4-M18: at alpha 0, which is the alpha of an empty slot."""
    body = CONV.body()
    body.record_qualities({frozenset(): 0.3})
    assert body.slot("block1").snapshot().contribution is None
    with pytest.raises(UnknownCoalition, match="'block1', which has no seed with alpha above 0"):
        body.coalition_outputs([{"block1"}], CONV.inputs())


def test_gradient_norm_is_the_mean_over_batches_and_none_without_any():
    body = CONV.body()
    grow(CONV, body, optimiser_of(body), "block1", Stage.TRAINING)
    body.tick()
    assert body.slot("block1").state.gradient_norm is None
    norms = []
    for scale in (1.0, 3.0):
        body.zero_grad()
        (scale * loss_of(CONV)(body.train()(CONV.inputs()))).backward()
        body.record_gradients()
        norms.append(torch.cat([p.grad.flatten() for p in body.slot("block1").seed_parameters]).norm().item())
    body.tick()
    assert body.slot("block1").state.gradient_norm == pytest.approx(sum(norms) / 2)


def test_a_single_bad_batch_shows_as_an_anomaly_and_blocks_the_gate():
    body = CONV.body()
    optimizer = optimiser_of(body)
    grow(CONV, body, optimizer, "block1", Stage.HOLDING)
    train_epoch(CONV, body, optimizer)
    body.slot("block1").seed_parameters[0].grad.fill_(math.inf)
    body.record_gradients()
    body.tick()
    assert body.snapshots()[1].anomalies == ("non-finite gradient",)
    assert "anomaly: non-finite gradient" in body.execute(Action(Op.FOSSILIZE, "block1")).reasons
    train_epoch(CONV, body, optimizer)
    do(body, Op.FOSSILIZE, "block1")


def test_batches_whose_step_a_gradient_scaler_skips_are_no_anomaly():
    body = CONV.body()
    optimizer = optimiser_of(body)
    grow(CONV, body, optimizer, "block1", Stage.TRAINING)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
    skipped, batches = 0, 10
    for _ in range(batches):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = loss_of(CONV)(body.train()(CONV.inputs()))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        body.record_gradients()
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        skipped += scaler.get_scale() < before
    assert 0 < skipped < batches
    body.tick()
    snapshot = body.snapshots()[1]
    assert snapshot.anomalies == ()
    assert 0 < snapshot.gradient_norm < 10


def test_a_batch_that_spoils_all_that_follow_is_an_anomaly():
    body = CONV.body()
    grow(CONV, body, optimiser_of(body), "block1", Stage.TRAINING)
    for scale in (1.0, math.nan, math.nan):
        gradients(CONV, body)
        body.slot("block1").seed_parameters[0].grad.mul_(scale)
        body.record_gradients()
    body.tick()
    assert body.snapshots()[1].anomalies == ("non-finite gradient",)


def test_an_anomaly_reported_from_outside_blocks_the_gate():
    body = CONV.body()
    optimizer = optimiser_of(body)
    grow(CONV, body, optimizer, "block1", Stage.HOLDING)
    body.record_anomaly("block1", "loss spike")
    train_epoch(CONV, body, optimizer)
    assert body.execute(Action(Op.FOSSILIZE, "block1")).reasons == ("anomaly: loss spike",)


SCHEDULERS = {
    "lambda": lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.9**epoch),
    "one-cycle": lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=100),
    "cosine": lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50),
    "linear": lambda optimizer: torch.optim.lr_scheduler.LinearLR(optimizer, 0.3, total_iters=20),
    "warm restarts": lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 4),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_learning_rate_schedule_goes_on_while_seeds_come_and_go(name):
    body = CONV.body()
    optimizer = optimiser_of(body)
    scheduler = SCHEDULERS[name](optimizer)
    control = torch.optim.AdamW([nn.Parameter(torch.zeros(1))], lr=1e-2)
    control_scheduler = SCHEDULERS[name](control)
    do(body, Op.GERMINATE, "block1", blueprint="norm")
    for epoch in range(6):
        train_epoch(CONV, body, optimizer)
        control.step()
        scheduler.step()
        control_scheduler.step()
        if epoch == 3:
            do(body, Op.PRUNE, "block1")
    assert {group["lr"] for group in optimizer.param_groups} == {control.param_groups[0]["lr"]}


def test_a_scheduler_that_was_made_too_early_is_told_at_once():
    body = CONV.body()
    optimizer = torch.optim.SGD(body.host_weights(), lr=0.1)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1.0)
    with pytest.raises(SchedulerFirst, match="make the scheduler after the call of optimise_with"):
        body.optimise_with(optimizer)


def test_an_optimiser_of_the_whole_body_steps_seeds_once():
    body = CONV.body()
    do(body, Op.GERMINATE, "block1", blueprint="norm")
    optimizer = torch.optim.SGD(body.parameters(), lr=0.1)
    body.optimise_with(optimizer, lr=0.5)
    held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    assert len(held) == len(set(held)) == len(list(body.parameters()))


def test_seeds_follow_the_body_to_another_dtype():
    body = CONV.body().double()
    do(body, Op.GERMINATE, "block1", blueprint="conv_light")
    assert {p.dtype for p in body.parameters()} == {torch.float64}


def test_a_seed_is_born_in_the_bodys_mode():
    body = CONV.body().eval()
    do(body, Op.GERMINATE, "block1", blueprint="conv_light")
    assert not any(module.training for module in body.modules())


def test_a_copied_body_lives_its_own_life():
    body = CONV.body()
    grow(CONV, body, optimiser_of(body), "block1", Stage.HOLDING)
    twin = copy.deepcopy(body)
    with torch.no_grad():
        before = body.eval()(CONV.inputs())
        for parameter in twin.parameters():
            parameter.mul_(2.0)
        assert torch.equal(body(CONV.inputs()), before)
        assert not torch.equal(twin.eval()(CONV.inputs()), before)
        with twin.only(()):
            muted = twin(CONV.inputs())
        assert not torch.equal(muted, twin(CONV.inputs())), "the copy's hooks belong to the copy's slots"


def test_coalitions_of_a_chain_share_the_prefix():
    """Pitfall P-separate-passes: coalitions are separate passes, not one larger batch, and share what they can.

    Eight coalitions of three seeds run the first block once, the second twice, the third four times."""
    body = CONV.body()
    optimizer = optimiser_of(body)
    for slot in CONV.at:
        grow(CONV, body, optimizer, slot, Stage.HOLDING)
    calls: dict[str, int] = {}
    for index in range(3):
        leaf = body.host.get_submodule(f"block{index}.0")
        leaf.register_forward_hook(lambda *_, name=f"block{index}": calls.update({name: calls.get(name, 0) + 1}))
    wanted = [{slot for i, slot in enumerate(CONV.at) if mask >> i & 1} for mask in range(8)]
    body.coalition_outputs(wanted, CONV.inputs())
    assert calls == {"block0": 1, "block1": 2, "block2": 4}


def test_a_hook_on_a_sequence_is_respected():
    host = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 2))
    body = esper.graft(host, at=["0"], example=torch.zeros(2, 4))
    host[0].register_forward_hook(lambda module, inputs, output: output + 1.0)
    steps = chain.chain_of(host, list(body.slots))
    assert steps is not None
    assert not any(isinstance(step.run, nn.ReLU) for step in steps.steps), "not taken apart"
    x = torch.randn(3, 4)
    assert torch.equal(body.coalition_outputs([()], x)[frozenset()], body.eval()(x))


HOSTILE: list[tuple[str, Any, str]] = [
    ("stage", "HOLDINGG", "'stage' is 'HOLDINGG'; did you mean 'holding'"),
    ("stage", ["HOLDING"], "'stage' is a list of 1"),
    ("stage", "DORMANT", "cannot be"),
    ("age", -1, "an age of -1"),
    ("age", 10**30, "'age' must be an integer"),
    ("age", True, "'age' must be an integer, and is True"),
    ("slot", "elsewhere", "this body has 'block1'"),
    ("plan", {"blueprint": "conv_light"}, "it lacks 'plan.style'"),
    ("plan", "conv_light", "'plan' must be a table"),
    ("schedule", {"start": 0.0, "target": 9.0, "ticks": 0, "curve": "LINEAR", "elapsed": 0}, "between 0 and 1"),
    ("schedule", {"start": 0.0, "target": None, "ticks": 0, "curve": "LINEAR", "elapsed": 0}, "must be a number"),
    ("schedule", {"target": 1.0, "start": 1.0, "ticks": 10**12, "elapsed": 10**12}, "no body lives to be"),
    ("contribution", "lots", "'contribution' must be a number"),
    ("contribution", 10**400, "cannot be"),
    ("anomalies", ["x"] * 1000, "over 100 of them"),
    ("anomalies", "x", "'anomalies' must be a list of strings"),
]


@pytest.mark.parametrize(("field", "value", "message"), HOSTILE)
def test_hostile_slot_state_is_refused_and_changes_nothing(field, value, message):
    body = CONV.body()
    optimizer = optimiser_of(body)
    grow(CONV, body, optimizer, "block1", Stage.HOLDING)
    state = copy.deepcopy(body.state_dict())
    state["_extra_state"]["slots"][1][field] = value
    fresh = CONV.body()
    before = full_state(fresh)
    with pytest.raises(InvalidCheckpoint, match=message):
        fresh.load_state_dict(state)
    assert same(full_state(fresh), before)


def damage(state: dict[str, Any], how: str) -> None:
    if how == "missing":
        del state["host.block1.esper_slot.seed.delta.0.weight"]
    elif how == "unexpected":
        state["host.block0.esper_slot.seed.delta.0.weight"] = torch.zeros(1)
    elif how == "shape":
        state["host.head.2.weight"] = torch.zeros(1, 1)
    elif how == "no slot":
        state["_extra_state"]["slots"].pop()
    elif how == "no body":
        del state["_extra_state"]
    elif how == "random state":
        state["_extra_state"]["generator"] = torch.zeros(3)
    elif how == "epoch":
        state["_extra_state"]["epoch"] = "seven"
    elif how == "blueprint":
        state["_extra_state"]["slots"][1]["plan"]["blueprint"] = "rm -rf"
    elif how == "not a tensor":
        state["host.head.2.weight"] = "weights"


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("missing", "'host.block1.esper_slot.seed.delta.0.weight' is missing"),
        ("unexpected", "'host.block0.esper_slot.seed.delta.0.weight' is unexpected"),
        ("shape", r"has shape \(1, 1\) instead of"),
        ("no slot", "is not one of 3 slots"),
        ("no body", "not that of a body"),
        ("random state", "random state is damaged"),
        ("epoch", "not that of a body"),
        ("blueprint", "no blueprint 'rm -rf'"),
        ("not a tensor", "'host.head.2.weight' is missing"),
    ],
)
def test_state_that_does_not_fit_is_refused_and_changes_nothing(how, message):
    body = CONV.body()
    grow(CONV, body, optimiser_of(body), "block1", Stage.HOLDING)
    state = copy.deepcopy(body.state_dict())
    damage(state, how)
    fresh = CONV.body()
    before = full_state(fresh)
    with pytest.raises(InvalidCheckpoint, match=message):
        fresh.load_state_dict(state)
    assert same(full_state(fresh), before)


def test_loading_over_a_grown_body_keeps_what_fits_and_drops_the_rest():
    body = CONV.body()
    optimizer = optimiser_of(body)
    grow(CONV, body, optimizer, "block1", Stage.HOLDING)
    saved = copy.deepcopy(body.state_dict())
    kept = body.slot("block1").seed_parameters
    grow(CONV, body, optimizer, "block0", Stage.TRAINING)
    body.load_state_dict(saved)
    assert same(body.state_dict(), saved)
    assert all(a is b for a, b in zip(kept, body.slot("block1").seed_parameters, strict=True))
    assert {id(p) for group in optimizer.param_groups for p in group["params"]} == {id(p) for p in body.parameters()}


def test_alpha_has_one_owner():
    """Pitfall P-one-alpha: snapshot, slot and output all read the slot's schedule."""
    body = CONV.body()
    grow(CONV, body, optimiser_of(body), "block1", Stage.HOLDING)
    slot = body.slot("block1")
    before = body.eval()(CONV.inputs())
    slot.state = replace(slot.state, schedule=AlphaSchedule(target=0.5))
    assert slot.alpha == slot.snapshot().alpha == 0.5
    assert not torch.equal(body(CONV.inputs()), before)


def test_one_tick_is_one_epoch_for_ages_ramps_and_cooling_alike():
    """Pitfall P-one-clock: nothing but `tick` moves time."""
    body = CONV.body()
    optimizer = optimiser_of(body)
    grow(CONV, body, optimizer, "block0", Stage.PRUNED)
    grow(CONV, body, optimizer, "block1", Stage.GERMINATED)
    before = [slot.state for slot in body.slots]
    for _ in range(3):
        gradients(CONV, body)
        body.coalition_outputs([()], CONV.inputs())
        body.record_gradients()
    assert [slot.state for slot in body.slots] == before
    body.tick()
    assert [(slot.state.stage, slot.state.age) for slot in body.slots] == [
        (Stage.EMBARGOED, 0),
        (Stage.GERMINATED, 1),
        (Stage.DORMANT, 1),
    ]


def test_waiting_changes_nothing():
    body = CONV.body()
    before = full_state(body)
    assert body.execute(esper.contracts.WAIT)
    assert same(full_state(body), before)


def test_a_body_of_one_slot_on_a_dense_host_runs_a_whole_life_twice():
    """A pruned slot can be used again after its embargo."""
    case = CASES[1]
    body = case.body()
    optimizer = optimiser_of(body)
    slot: Slot = body.slot("layer0")
    grow(case, body, optimizer, "layer0", Stage.HOLDING)
    do(body, Op.PRUNE, "layer0", alpha_speed=0)
    assert slot.state.stage is Stage.PRUNED
    assert not body.judge(Action(Op.GERMINATE, "layer0", blueprint="mlp"))
    while slot.state.stage is not Stage.DORMANT:
        body.tick()
    grow(case, body, optimizer, "layer0", Stage.FOSSILIZED)
    assert isinstance(body.host, DenseHost)


@pytest.mark.parametrize("fused", [False, True])
def test_a_seed_that_gets_a_gate_goes_on_under_momentum(fused):
    """Fused SGD wants momentum of all parameters of a group or of none."""
    case = CASES[1]
    body = case.body()
    optimizer = torch.optim.SGD(body.parameters(), lr=0.01, momentum=0.9, fused=fused)
    body.optimise_with(optimizer)
    slot = case.at[0]
    grow(case, body, optimizer, slot, Stage.HOLDING)
    do(body, Op.SET_ALPHA_TARGET, slot, style=Style.GATED, alpha_target=AlphaTarget.HALF)
    while body.slot(slot).alpha != 0.5:
        train_epoch(case, body, optimizer)
    gate = body.slot(slot).seed.gate
    before = [weights.clone() for weights in gate.parameters()]
    train_epoch(case, body, optimizer)
    assert not all(torch.equal(old, new) for old, new in zip(before, gate.parameters(), strict=True))
