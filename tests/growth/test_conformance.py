"""What every host must be able to rely on, whoever wrote it: one suite over all cases."""

import copy
import io
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from esper.contracts import RULES, Action, AlphaSpeed, AlphaTarget, Op, Stage, Style
from esper.growth import Body, count_flops, count_parameters, plant
from tests.growth.cases import (
    CASES,
    CLASSES,
    LANGUAGE,
    PRUNE_SLOWLY,
    Case,
    do,
    full_state,
    gradients,
    grow,
    life,
    logits,
    optimiser_of,
    own_keys,
    same,
    train_epoch,
)

every_host = pytest.mark.parametrize("case", [*CASES, LANGUAGE[0], LANGUAGE[2]], ids=lambda case: case.name)
own_groups = pytest.mark.parametrize("options", [{}, {"lr": 1e-3}], ids=["joined", "own-groups"])


@every_host
def test_empty_slot_is_bit_identical_to_the_host_in_output_and_gradient(case: Case):
    plain, body = case.host(), case.body()
    silent = itertools.takewhile(
        lambda stage: stage is not Stage.GERMINATED, life(case, body, optimiser_of(body), case.at[0])
    )
    for stage in silent:
        assert own_keys(body.host) == list(plain.state_dict()), stage
        assert same(gradients(case, body), gradients(case, plain)), stage
        assert torch.equal(logits(body.eval()(case.inputs())), logits(plain.eval()(case.inputs()))), stage


@every_host
@pytest.mark.parametrize("style", Style, ids=lambda style: style.name)
def test_newborn_seed_joins_at_full_strength_without_a_jump_and_learns(case: Case, style):
    """Pitfalls P-dead-seed, P-no-feedback: it sees its own effect, because it is part of the network."""
    plain, body = case.host(), case.body()
    for slot in case.at:
        grow(case, body, optimiser_of(body), slot, Stage.GERMINATED, style)
        assert body.slot(slot).alpha == 1.0
    assert torch.equal(logits(body.eval()(case.inputs())), logits(plain.eval()(case.inputs())))
    before = [[parameter.clone() for parameter in body.slot(slot).seed_parameters] for slot in case.at]
    train_epoch(case, body, optimiser_of(body))
    for slot, old in zip(case.at, before, strict=True):
        assert not same(old, list(body.slot(slot).seed_parameters)), slot
        assert body.slot(slot).state.gradient_norm > 0, slot


@every_host
def test_nan_seed_that_is_left_out_is_harmless(case: Case):
    """Pitfall P-alpha-zero: 0 times NaN is NaN, so what is left out is not computed."""
    plain, body = case.host(), case.body()
    grow(case, body, optimiser_of(body), case.at[0], Stage.GERMINATED)
    for parameter in body.slot(case.at[0]).seed_parameters:
        nn.init.constant_(parameter, float("nan"))
    expected = logits(plain.eval()(case.inputs()))
    with body.eval().only(()):
        assert torch.equal(logits(body(case.inputs())), expected)
    assert torch.equal(logits(body.coalition_outputs([()], case.inputs())[frozenset()]), expected)
    assert body.execute(Action(Op.PRUNE, case.at[0], alpha_speed=AlphaSpeed.INSTANT))
    assert torch.equal(logits(body(case.inputs())), expected)


@every_host
def test_host_upstream_of_a_full_strength_seed_stays_trainable(case: Case):
    """Pitfall P-starved-host."""
    for style in Style:
        body = case.body()
        optimizer = optimiser_of(body)
        for stage in (Stage.HOLDING, Stage.FOSSILIZED):
            grow(case, body, optimizer, case.at[0], stage, style)
            assert body.slot(case.at[0]).alpha == 1.0
            gradients(case, body)
            assert body.host.get_parameter(case.upstream).grad.abs().max() > 0, (style, stage)
            assert all(p.grad is not None for p in body.slot(case.at[0]).seed_parameters), (style, stage)


@every_host
def test_coalitions_agree_with_whole_passes_and_touch_nothing(case: Case):
    body = case.body()
    optimizer = optimiser_of(body)
    for slot in case.at:
        grow(case, body, optimizer, slot, Stage.HOLDING)
    body.train()
    before = full_state(body, optimizer)
    n = len(case.at)
    wanted = [{slot for i, slot in enumerate(case.at) if mask >> i & 1} for mask in range(2**n)]
    outputs = body.coalition_outputs([*wanted, *wanted], case.inputs())
    assert same(full_state(body, optimizer), before)
    assert len(outputs) == 2**n
    body.eval()
    for coalition in wanted:
        with body.only(coalition), torch.no_grad():
            assert torch.equal(logits(outputs[frozenset(coalition)]), logits(body(case.inputs())))
    assert not torch.equal(logits(outputs[frozenset()]), logits(outputs[frozenset(case.at)]))


@every_host
def test_harvest_delivers_the_fossils_drops_the_rest_and_is_a_plain_module(case: Case, tmp_path: Path):
    body = case.body()
    optimizer = optimiser_of(body)
    first, second = case.at[:2]
    grow(case, body, optimizer, first, Stage.FOSSILIZED, Style.GATED)
    grow(case, body, optimizer, second, Stage.HOLDING)
    plain, inputs = body.harvest().eval(), case.inputs()
    with body.eval().only({first}), torch.no_grad():
        expected = logits(body(inputs))
    assert torch.equal(logits(plain(inputs)), expected)
    assert count_parameters(plain.parameters()) == body.costs().kept.parameters
    assert torch.equal(logits(copy.deepcopy(plain)(inputs)), expected)

    torch.save(plain.state_dict(), tmp_path / "grown.pt")
    rebuilt = plant(case.build(), body.delivered()).eval()
    rebuilt.load_state_dict(torch.load(tmp_path / "grown.pt", weights_only=True), strict=True)
    assert torch.equal(logits(rebuilt(inputs)), expected)

    do(body, Op.PRUNE, second, **PRUNE_SLOWLY)
    train_epoch(case, body, optimizer)
    assert torch.equal(logits(plain(inputs)), expected), "a harvest shares nothing with its body"


@every_host
def test_harvest_delivers_a_held_seed_that_its_gate_would_let_through(case: Case, tmp_path: Path):
    """At the alpha at which it is held, and only as long as nothing speaks against it."""
    body = case.body()
    optimizer, slot, inputs = optimiser_of(body), case.at[0], case.inputs()
    grow(case, body, optimizer, slot, Stage.BLENDING, Style.GATED)  # to half strength
    grow(case, body, optimizer, slot, Stage.HOLDING)
    assert body.delivered() == (), "it must be held for a while first"
    train_epoch(case, body, optimizer)
    (fossil,) = body.delivered()
    assert (fossil.slot, fossil.alpha, fossil.style) == (slot, 0.5, Style.GATED)
    costs, plain = body.costs(), body.harvest().eval()
    assert costs.kept == costs.live
    assert count_parameters(plain.parameters()) == costs.kept.parameters > costs.host.parameters
    with torch.no_grad():
        assert torch.equal(logits(plain(inputs)), logits(body.eval()(inputs)))
    torch.save(body.state_dict(), tmp_path / "body.pt")
    fresh = case.body()
    fresh.load_state_dict(torch.load(tmp_path / "body.pt", weights_only=True))
    assert fresh.delivered() == body.delivered()

    body.record_qualities({body.blended(): 0.5, frozenset(): 0.495})  # which is too little
    assert body.delivered() == ()
    assert body.costs().kept == costs.host
    with body.only(()), torch.no_grad():
        assert torch.equal(logits(body.harvest().eval()(inputs)), logits(body.eval()(inputs)))


@every_host
def test_harvest_survives_export(case: Case):
    body = case.body()
    grow(case, body, optimiser_of(body), case.at[0], Stage.FOSSILIZED, Style.LINEAR_MULTIPLY)
    plain = body.harvest().eval()
    exported = torch.export.export(plain, (case.inputs(),))
    buffer = io.BytesIO()
    torch.export.save(exported, buffer)
    buffer.seek(0)
    loaded = torch.export.load(buffer).module()
    torch.testing.assert_close(logits(loaded(case.inputs())), logits(plain(case.inputs())))


@pytest.mark.parametrize(
    "case",
    [CASES[2], *(pytest.param(case, marks=pytest.mark.slow) for case in CASES[3:5])],
    ids=lambda case: case.name,
)
def test_harvest_survives_compilation(case: Case):
    body = case.body()
    grow(case, body, optimiser_of(body), case.at[0], Stage.FOSSILIZED, Style.GATED)
    plain = body.harvest().eval()
    compiled = torch.compile(plain, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(logits(compiled(case.inputs())), logits(plain(case.inputs())))


@pytest.mark.parametrize(
    ("case", "options"),
    [(CASES[0], {}), *((case, {"lr": 1e-3}) for case in CASES)],
    ids=["joined", *(case.name for case in CASES)],
)
def test_body_in_any_stage_loads_into_a_fresh_one(case: Case, options, tmp_path: Path):
    """Pitfall P-rebuild: a strict load grows the seeds it needs, and both go on alike."""
    grown = case.body()
    optimizer = optimiser_of(grown, **options)

    def loaded(saved: dict[str, Any]) -> tuple[Body, torch.optim.Optimizer]:
        body = case.body()
        optimizer = optimiser_of(body, **options)
        body.load_state_dict(saved["body"], strict=True)
        optimizer.load_state_dict(saved["optimizer"])
        return body, optimizer

    for stage in life(case, grown, optimizer, case.at[1], Style.GATED):
        torch.save({"body": grown.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "body.pt")
        fresh, fresh_optimizer = loaded(torch.load(tmp_path / "body.pt", weights_only=True))
        assert fresh.snapshots() == grown.snapshots(), stage
        assert [s.state for s in fresh.slots] == [s.state for s in grown.slots], stage
        # The copy goes on, so that the original stays where it is.
        body, body_optimizer = copy.deepcopy((grown, optimizer))
        for _ in range(2):
            train_epoch(case, body, body_optimizer)
            train_epoch(case, fresh, fresh_optimizer)
        assert same(fresh.state_dict(), body.state_dict()), stage
        assert torch.equal(logits(fresh.eval()(case.inputs())), logits(body.eval()(case.inputs()))), stage


@every_host
@own_groups
def test_optimiser_has_exactly_the_live_parameters_and_momentum_of_what_stays(case: Case, options):
    """Pitfall P-late-gate: membership follows the live parameters."""
    body = case.body()
    optimizer = optimiser_of(body, **options)
    first, second = case.at[:2]

    def check() -> None:
        members = [id(p) for group in optimizer.param_groups for p in group["params"]]
        assert sorted(members) == sorted(id(p) for p in body.parameters() if p.requires_grad)
        assert set(optimizer.state) <= set(body.parameters())

    check()
    grow(case, body, optimizer, first, Stage.HOLDING)
    check()
    momentum = {p: optimizer.state[p]["exp_avg"].clone() for p in body.parameters()}
    do(body, Op.GERMINATE, second, blueprint=case.blueprint)
    check()
    do(body, Op.PRUNE, second)
    check()
    assert all(torch.equal(optimizer.state[p]["exp_avg"], value) for p, value in momentum.items())
    do(body, Op.SET_ALPHA_TARGET, first, style=Style.GATED, alpha_target=AlphaTarget.HALF, alpha_speed=0)
    while body.slot(first).seed.gate is None:
        train_epoch(case, body, optimizer)
        check()
    train_epoch(case, body, optimizer)
    gate = body.slot(first).seed.gate  # born late, and optimised too
    assert all(p in optimizer.state for p in gate.parameters())
    do(body, Op.PRUNE, first, **PRUNE_SLOWLY)
    while body.slot(first).seed is not None:
        train_epoch(case, body, optimizer)
        check()
    check()


@every_host
def test_accounting_is_exact_in_every_stage(case: Case):
    """Pitfall P-frozen-count: structure is counted, not flags."""
    body = case.body()
    host = count_parameters(case.host().parameters())
    for stage in life(case, body, optimiser_of(body), case.at[0], Style.GATED):
        costs, seed = body.costs(), body.slot(case.at[0]).seed
        assert costs.host.parameters == host
        assert costs.live.parameters == host + sum(p.numel() for p in (seed.parameters() if seed else ())), stage
        assert (case.at[0] in costs.seeds) == RULES[stage].holds_seed, stage
        body.requires_grad_(False)
        assert body.costs() == costs, "structure is counted, not flags"
        body.requires_grad_(True)
        with torch.no_grad():
            assert costs.live.flops == count_flops(body.eval(), case.inputs(1)), stage
            assert costs.kept.flops == count_flops(body.harvest().eval(), case.inputs(1)), stage


@every_host
def test_refused_operation_changes_nothing(case: Case):
    body = case.body()
    optimizer = optimiser_of(body)
    for stage in life(case, body, optimizer, case.at[0]):
        before, refused = full_state(body, optimizer), 0
        for op, slot in itertools.product(Op, (case.at[0], "no such")):
            action = Action(op, slot, blueprint="no such" if slot in case.at else case.blueprint)
            if not body.judge(action):
                assert not body.execute(action)
                assert same(full_state(body, optimizer), before), (stage, op)
                refused += 1
        assert refused >= len(Op)


@every_host
def test_graft_leaves_the_model_and_the_random_state_as_they_were(case: Case):
    random_state = torch.get_rng_state()
    host, reference = case.body().host, case.host()
    assert torch.equal(torch.get_rng_state(), random_state)
    assert same(host.state_dict(), reference.state_dict())
    assert logits(host(case.inputs())).shape[-1] == CLASSES
