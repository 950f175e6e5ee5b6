"""What a newborn would gain is what a newborn gets, and asking for it changes nothing."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import esper
from esper.contracts import Action, Gain, Kind, Op, Operator, Stage, Style, Topology
from esper.growth import AlphaSchedule, Body, DenseHost, blueprint, blueprints_for, find_blueprint
from esper.growth.blueprints import Blueprint, registry
from esper.growth.first_order import MEASURED_AFTER, ROWS, SETTLING_EPOCHS, Newborn, first_gradients, gains_of
from tests.growth.cases import CASES, CLASSES, LANGUAGE, Case, full_state, gradients, loss_of, same


class Tokens(nn.Module):
    """Its features have three axes, the last of which holds the channels."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix, self.head = nn.Linear(5, 8), nn.Linear(8, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.mix(torch.relu(self.embed(x)))).mean(dim=1))


CONV, DENSE, RESIDUAL = (next(case for case in CASES if case.name == name) for name in ("conv", "dense", "residual"))
TOKENS = Case("tokens", Tokens, ("embed", "mix"), shape=(6, 5))
every_host = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
OWN = [
    (case, each)
    for case, topology in ((CONV, Topology.CNN), (DENSE, Topology.DENSE), (TOKENS, Topology.DENSE))
    for each in blueprints_for(topology)
    if each.build.__module__.startswith("esper.")
]
OWN += [(LANGUAGE[0], find_blueprint(name, Topology.TRANSFORMER)) for name in ("attention", "block")]


def grafted(case: Case) -> Body:
    topology = "dense" if case is TOKENS else None
    body = esper.graft(case.host(), at=list(case.at), example=case.inputs(2), topology=topology)
    return body.train()


def backward(case: Case, body: Body, rows: int = 4) -> None:
    body.zero_grad()
    loss_of(case)(body(case.inputs(rows))).backward()


def measured(case: Case, body: Body) -> Body:
    """After an epoch of one batch."""
    body.watch_gains()
    backward(case, body)
    body.tick()
    return body


def planted(body: Body, slot: str, seed: Newborn, name: str, style: Style, alpha: float = 1.0) -> Body:
    """A copy of the body in which this very newborn is blended in."""
    twin = copy.deepcopy(body)
    assert twin.execute(Action(Op.GERMINATE, slot, blueprint=name, style=style))
    place = twin.slot(slot)
    place.state = replace(place.state, stage=Stage.HOLDING, schedule=AlphaSchedule(alpha, alpha))
    place.seed.load_state_dict(seed.seed.state_dict())
    return twin


def newborn(body: Body, slot: str, each: Blueprint, operator: Operator) -> Newborn:
    like = body.slot(slot)._alpha
    return Newborn(each, body.slot(slot).site.channels, operator, like.device, like.dtype)


@pytest.mark.parametrize("alpha", [1.0, 0.5])
@pytest.mark.parametrize("style", Style, ids=lambda style: style.name)
@pytest.mark.parametrize(("case", "each"), OWN, ids=lambda part: part.name)
def test_the_gradients_are_those_of_a_real_newborn(case, each, style, alpha):
    body = grafted(case)
    slot = case.at[-1]
    body.watch_gains()
    backward(case, body)
    seed = newborn(body, slot, each, style.operator)
    h, g, call = body.slot(slot).meter._seen
    (found,) = first_gradients([seed], h, [g], alpha, call)
    twin = planted(body, slot, seed, each.name, style, alpha)
    backward(case, twin)
    real = list(zip(twin.slot(slot).seed.parameters(), seed.seed.parameters(), strict=True))
    awake = [theirs.grad.flatten() for theirs, ours in real if ours.requires_grad]
    assert np.abs(found).sum() > 0.0
    torch.testing.assert_close(torch.from_numpy(found[0]), torch.cat(awake), rtol=1e-4, atol=1e-6)
    assert not any(theirs.grad.any() for theirs, ours in real if not ours.requires_grad)


@pytest.mark.parametrize(("case", "each"), OWN, ids=lambda part: part.name)
def test_the_gains_are_those_of_a_real_newborn_that_is_added_at_full_strength(case, each):
    body = grafted(case)
    before = copy.deepcopy(body)
    measured(case, body)
    for slot in case.at:
        twin = planted(before, slot, newborn(body, slot, each, Operator.ADD), each.name, Style.LINEAR_ADD)
        backward(case, twin)
        real = torch.cat([parameter.grad.flatten() for parameter in twin.slot(slot).seed.parameters()])
        gain = next(gain for gain in body.slot(slot).gains if gain.blueprint == each.name)
        assert gain.norm == pytest.approx(float(real.norm()), rel=1e-3)
        assert gain.push == pytest.approx(float(real.abs().sum()), rel=1e-3)


@every_host
def test_measuring_leaves_every_bit_as_it_was(case: Case):
    """Output, gradients, running statistics, modes, weights, and the random numbers of births and of everybody else."""
    body, plain = grafted(case), grafted(case)
    body.watch_gains()
    assert same(gradients(case, body), gradients(case, plain))
    body.tick()
    plain.tick()
    assert all(slot.gains for slot in body.slots)
    found, expected = full_state(body), full_state(plain)
    for state in (found, expected):
        del state["identities"]
        state["snapshots"] = [replace(each, gains=()) for each in state["snapshots"]]
        del state["weights"]["_extra_state"]["gains"]
    assert same(found, expected)


def test_a_newborn_stays_as_it_was_born():
    body = grafted(CONV)
    first = [slot.gains for slot in measured(CONV, body).slots]
    again = grafted(CONV)
    assert [slot.gains for slot in measured(CONV, again).slots] == first
    assert all(len(gains) == len(body.slots[0].site.blueprints) for gains in first)


def test_a_frozen_host_is_measured_and_gets_no_gradients():
    free = measured(CONV, grafted(CONV))
    frozen = grafted(CONV).requires_grad_(False)
    measured(CONV, frozen)
    assert [slot.gains for slot in frozen.slots] == [slot.gains for slot in free.slots]
    assert all(parameter.grad is None for parameter in frozen.parameters())


def test_compiled_passes_do_not_measure():
    body = grafted(DENSE)
    compiled = torch.compile(body, backend="eager")
    body.watch_gains()
    loss_of(DENSE)(compiled(DENSE.inputs())).backward()
    body.tick()
    assert [slot.gains for slot in body.slots] == [(), ()]
    measured(DENSE, body)
    assert all(slot.gains for slot in body.slots)


def test_lower_precision_is_measured_nearly_alike():
    body, exact = grafted(CONV), measured(CONV, grafted(CONV))
    body.watch_gains()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = loss_of(CONV)(body(CONV.inputs()))
    loss.backward()
    body.tick()
    for rough, fine in zip(body.slots, exact.slots, strict=True):
        ratios = [a.push / b.push for a, b in zip(rough.gains, fine.gains, strict=True)]
        assert 0.5 < min(ratios) < max(ratios) < 2.0


class Skipped(nn.Module):
    """What stands behind the slot is not all that uses the features."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.same, self.head = nn.Linear(7, 8), nn.Identity(), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        return self.head(torch.relu(self.same(h)) + 3.0 * h)


def test_the_gradient_is_that_behind_the_slot_alone():
    case = Case("skipped", Skipped, ("stem", "same"), shape=(7,), blueprint="mlp")
    body = grafted(case)
    before = copy.deepcopy(body)
    measured(case, body)
    for slot in case.at:
        seed = newborn(body, slot, blueprints_for(Topology.DENSE)[3], Operator.ADD)
        twin = planted(before, slot, seed, "mlp", Style.LINEAR_ADD)
        backward(case, twin)
        real = torch.cat([parameter.grad.flatten() for parameter in twin.slot(slot).seed.parameters()])
        assert body.slot(slot).gains[3].norm == pytest.approx(float(real.norm()), rel=1e-4)


def test_few_rows_of_a_large_batch_stand_for_all():
    """Their gradient is that of their own mean loss, whatever else is in the batch."""
    large, small = grafted(DENSE), grafted(DENSE)
    for body, rows in ((large, 3 * ROWS), (small, ROWS)):
        body.watch_gains()
        backward(DENSE, body, rows)
        body.tick()
    for ours, theirs in zip(large.slots, small.slots, strict=True):
        assert [gain.push for gain in ours.gains] == pytest.approx([gain.push for gain in theirs.gains], rel=1e-4)


def test_a_ragged_last_batch_and_evaluation_are_left_out():
    body, ragged = grafted(DENSE), grafted(DENSE)
    for each, sizes in ((body, [8]), (ragged, [8, 3])):
        each.watch_gains()
        for rows in sizes:
            backward(DENSE, each, rows)
        each.eval()
        backward(DENSE, each, 8)
        with torch.no_grad():
            each.train()(DENSE.inputs(8))
        each.tick()
    assert [slot.gains for slot in body.slots] == [slot.gains for slot in ragged.slots]
    assert body.slots[0].gains


def test_without_a_backward_pass_nothing_is_measured():
    body = grafted(DENSE)
    body.watch_gains()
    body(DENSE.inputs())
    body.tick()
    assert body.snapshots()[0].gains == ()


def test_a_slot_with_a_seed_has_no_gains_and_an_emptied_one_is_measured_next():
    body = measured(DENSE, grafted(DENSE))
    first, other = body.slots
    kept = other.gains
    body.execute(Action(Op.GERMINATE, first.id, blueprint="mlp"))
    measured(DENSE, body)
    assert (first.gains, body.snapshots()[0].gains) == ((), ())
    assert body.snapshots()[1].gains == other.gains
    assert other.gains == kept, "between measurements the last one stays"
    body.execute(Action(Op.PRUNE, first.id, alpha_speed=esper.contracts.AlphaSpeed.INSTANT))
    measured(DENSE, body)
    assert first.gains


def test_measurements_become_rarer_and_follow_when_a_seed_has_come_and_settled():
    body, when, births = grafted(DENSE), [], {9}
    for epoch in range(1, 45):
        if epoch in births:
            body.execute(Action(Op.GERMINATE, body.slots[0].id, blueprint="mlp"))
        body.watch_gains()
        if body.slots[1].meter.armed:
            when.append(epoch)
        backward(DENSE, body)
        body.tick()
    assert when == sorted({1, 6, 36, 8 + SETTLING_EPOCHS})
    assert {1, 6, 36} < MEASURED_AFTER


class Broken(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(channels))

    def forward(self, h: Tensor) -> Tensor:
        return h * self.weight * math.nan


class Misfit(Broken):
    def forward(self, h: Tensor) -> Tensor:
        return (h.unflatten(0, (-1, 1000)) * self.weight).flatten(0, 1)


@pytest.mark.parametrize(("kind", "left"), [(Broken, 4), (Misfit, 0)])
def test_a_blueprint_that_fails_is_not_measured_and_training_goes_on(kind, left, monkeypatch):
    monkeypatch.setitem(registry._REGISTRY, Topology.DENSE, dict(list(registry._REGISTRY[Topology.DENSE].items())[:4]))
    blueprint("fails", topology="dense", kind=Kind.REWEIGHT)(kind)
    body = measured(DENSE, grafted(DENSE))
    assert [len(slot.gains) for slot in body.slots] == [left, left]
    assert body.epoch == 1


def test_figures_by_hand():
    halves = np.float32([[0.5, 0.5, -1.0, 0.0], [0.5, -0.25, -3.0, 0.0]])
    gain, _ = gains_of(["mlp", "norm"], [halves, halves[:, :1]])
    assert gain.norm == pytest.approx(math.hypot(1.0, 0.25, 4.0))
    assert gain.push == pytest.approx(5.25)
    assert gain.agreed == pytest.approx(1.0 + 2.0), "twice the lesser of two that point the same way"
    assert gain.steadiness == pytest.approx(math.log(1000.0 * 2.0) + math.log(3.0) + math.log(2.0))
    (whole,) = gains_of(["mlp"], [halves[:1]])
    assert whole == Gain("mlp", pytest.approx(math.sqrt(1.5)), pytest.approx(2.0))


def test_the_figures_of_one_newborn_do_not_depend_on_the_others():
    draw = np.random.default_rng(0)
    gradients = [draw.normal(size=(2, size)).astype(np.float32) for size in (3, 1, 20)]
    together = gains_of(["a", "b", "c"], gradients)
    for name, each, gain in zip("abc", gradients, together, strict=True):
        (alone,) = gains_of([name], [each])
        assert gain == Gain(name, *map(pytest.approx, (alone.norm, alone.push, alone.agreed, alone.steadiness)))


def test_one_row_cannot_be_halved():
    body = grafted(DENSE)
    body.watch_gains()
    backward(DENSE, body, 1)
    body.tick()
    assert all(gain.agreed is gain.steadiness is None for slot in body.slots for gain in slot.gains)
    assert body.slots[0].gains


def test_wide_newborns_are_built_anew_and_tell_the_same():
    case = Case("wide", lambda: DenseHost(7, CLASSES, (40,)), ("layer0",), shape=(7,))
    first, again = (measured(case, grafted(case)).slots[0].gains for _ in range(2))
    assert first == again != ()
