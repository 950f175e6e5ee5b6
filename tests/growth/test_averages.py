"""Averages of the weights go on while seeds come and go."""

import copy

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from esper.contracts import AlphaSpeed, AlphaTarget, Op, Stage, Style
from esper.growth import Body
from esper.growth.attachment import Attached
from esper.growth.averages import NotAnAverage
from tests.growth.cases import CASES, do, full_state, grow, optimiser_of, same, train_epoch

CASE = CASES[1]
FIRST, SECOND = CASE.at
DECAY = 0.9


def averaging(**options) -> tuple[Body, torch.optim.Optimizer, AveragedModel]:
    body = CASE.body()
    averaged = AveragedModel(body.host, multi_avg_fn=get_ema_multi_avg_fn(DECAY), **options)
    body.average_with(averaged)
    return body, optimiser_of(body), averaged


def train(body: Body, optimizer: torch.optim.Optimizer, averaged: AveragedModel) -> None:
    train_epoch(CASE, body, optimizer)
    averaged.update_parameters(body.host)


@pytest.mark.parametrize("use_buffers", [False, True])
def test_a_newborn_is_averaged_from_its_birth_on_and_the_host_from_the_start(use_buffers):
    body, optimizer, averaged = averaging(use_buffers=use_buffers)
    expected: dict[str, torch.Tensor] = {}
    for epoch in range(6):
        if epoch == 2:
            do(body, Op.GERMINATE, FIRST, blueprint="mlp", style=Style.GATED)
        for name, weights in body.host.named_parameters():
            expected.setdefault(name, weights.detach().clone())
        train(body, optimizer, averaged)
        for name, weights in body.host.named_parameters():
            expected[name] = weights.detach().clone() if epoch == 0 else expected[name].lerp(weights, 1 - DECAY)
    averages = dict(averaged.module.named_parameters())
    assert averages.keys() == expected.keys()
    for name, weights in averages.items():
        torch.testing.assert_close(weights.detach(), expected[name], msg=name)


def test_an_average_follows_ramps_and_changes_of_style():
    body, optimizer, averaged = averaging()
    grow(CASE, body, optimizer, FIRST, Stage.HOLDING)
    twin = averaged.module.get_submodule(FIRST).esper_slot
    before = copy.deepcopy(twin.seed.delta.state_dict())
    do(body, Op.SET_ALPHA_TARGET, FIRST, style=Style.GATED, alpha_target=AlphaTarget.HALF)
    while body.slot(FIRST).alpha != 0.5:
        body.tick()
        assert twin.alpha == body.slot(FIRST).alpha
    assert twin.seed.gate is not None
    assert same(twin.seed.delta.state_dict(), before)
    train(body, optimizer, averaged)


def test_a_removed_seed_leaves_the_average_and_the_next_one_is_a_newborn_there():
    body, optimizer, averaged = averaging()
    grow(CASE, body, optimizer, FIRST, Stage.HOLDING)
    averaged.update_parameters(body.host)
    do(body, Op.PRUNE, FIRST, alpha_speed=AlphaSpeed.INSTANT)
    assert list(averaged.module.state_dict()) == list(body.host.state_dict()) == list(CASE.host().state_dict())
    while body.slot(FIRST).state.stage is not Stage.DORMANT:
        train(body, optimizer, averaged)
    do(body, Op.GERMINATE, FIRST, blueprint="mlp")
    twin = averaged.module.get_submodule(FIRST).esper_slot
    assert same(twin.seed.state_dict(), body.slot(FIRST).seed.state_dict())
    assert not {id(p) for p in averaged.parameters()} & {id(p) for p in body.parameters()}


def test_an_average_that_is_made_late_or_of_the_body_or_elsewhere_follows_too():
    body = CASE.body()
    optimizer = optimiser_of(body)
    grow(CASE, body, optimizer, FIRST, Stage.HOLDING)
    whole = AveragedModel(body)
    double = AveragedModel(body.host).double()
    for averaged in (whole, double):
        body.average_with(averaged)
    do(body, Op.GERMINATE, SECOND, blueprint="mlp")
    train_epoch(CASE, body, optimizer)
    whole.update_parameters(body)
    double.update_parameters(body.host)
    assert {weights.dtype for weights in double.parameters()} == {torch.float64}
    assert torch.equal(whole.eval()(CASE.inputs()), body.eval()(CASE.inputs()))


def test_an_average_that_lags_behind_catches_up_with_a_loaded_body():
    body, optimizer, averaged = averaging()
    grow(CASE, body, optimizer, FIRST, Stage.HOLDING)
    train(body, optimizer, averaged)
    fresh, _, fresh_average = averaging()
    fresh.load_state_dict(body.state_dict())
    fresh_average.load_state_dict(averaged.state_dict())
    assert torch.equal(fresh_average.eval()(CASE.inputs()), averaged.eval()(CASE.inputs()))


def test_averaged_weights_are_harvested_from_the_model_that_takes_them_over():
    body, optimizer, averaged = averaging()
    grow(CASE, body, optimizer, FIRST, Stage.FOSSILIZED)
    for _ in range(3):
        train(body, optimizer, averaged)
    expected = averaged.eval()(CASE.inputs())
    assert not torch.equal(body.eval()(CASE.inputs()), expected)
    body.host.load_state_dict(averaged.module.state_dict())
    assert torch.equal(body.harvest().eval()(CASE.inputs()), expected)


def test_ungrafting_takes_the_slots_out_of_averages():
    body, optimizer, averaged = averaging()
    grow(CASE, body, optimizer, FIRST, Stage.HOLDING)
    host = body.ungraft()
    assert not any(isinstance(part, Attached) for part in averaged.modules())
    assert list(averaged.module.state_dict()) == list(host.state_dict())
    averaged.update_parameters(host)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda body: AveragedModel(CASE.host()), "no copy of the slots; make it of the model after `graft`"),
        (lambda body: nn.Identity(), "no copy of the slots"),
        (lambda body: body.host, "this is the model itself; give an average of it"),
    ],
)
def test_what_is_no_average_of_the_model_is_refused(wrong, message):
    body = CASE.body()
    before = full_state(body)
    with pytest.raises(NotAnAverage, match=message):
        body.average_with(wrong(body))
    assert same(full_state(body), before)
