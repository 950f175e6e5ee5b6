"""Figures of gradients, weights, memories and observations: true, one transfer, no loop over what the numbers are."""

import math
from dataclasses import astuple
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from esper.rl import Learner, extreme_ratios
from esper.telemetry.gradients import (
    GradientCollector,
    UpdateExaminer,
    gradients_of,
    memory_figures,
    observation_figures,
    weight_figures,
)
from tests.rl.cases import STEADY, rollout, small_network

NAN, INF = math.nan, math.inf


def collected(*batches):
    collector = GradientCollector()
    for batch in batches:
        collector.see(batch)
    return collector.figures()


def test_figures_are_those_of_plain_arithmetic():
    first = {"host": [torch.tensor([3.0, 0.0]), torch.tensor([[4.0]])], "seed": [torch.tensor([-2.0])]}
    second = {"host": [torch.tensor([0.0, 0.0]), torch.tensor([[1.0]])], "seed": [torch.tensor([6.0])]}
    found = collected(first, second)
    host, seed = found["host"], found["seed"]
    assert (host.norm, host.largest, host.not_finite) == (3.0, 4.0, 0)
    assert host.zeros == pytest.approx((1 / 3 + 2 / 3) / 2)
    assert (seed.norm, seed.largest, seed.zeros, seed.not_finite) == (4.0, 6.0, 0.0, 0)


def test_no_gradient_is_told_from_a_gradient_of_zero():
    found = collected({"none": [None, None], "zero": [torch.zeros(3), None], "empty": []})
    assert (found["none"].norm, found["none"].zeros) == (None, None)
    assert (found["zero"].norm, found["zero"].zeros) == (0.0, 1.0)
    assert found["empty"].norm is None
    assert GradientCollector().figures() == {}


def test_squares_neither_overflow_nor_vanish():
    for size in (1e-25, 1e30):
        assert collected({"host": [torch.full((4,), size)]})["host"].norm == pytest.approx(2 * size, rel=1e-5)


@given(st.lists(st.lists(st.floats(width=32), min_size=1, max_size=6), min_size=1, max_size=4))
def test_figures_hold_for_any_numbers(parts):
    (found,) = collected({"host": [torch.tensor(part) for part in parts]}).values()
    numbers = [number for part in parts for number in part]
    finite = [abs(number) for number in numbers if math.isfinite(number)]
    assert found.not_finite == len(numbers) - len(finite)
    assert found.largest == pytest.approx(max(finite, default=0.0), rel=1e-6)
    assert found.zeros == pytest.approx(sum(number == 0 for number in numbers) / len(numbers), abs=1e-6)
    norm = math.sqrt(sum(number**2 for number in finite))
    if norm < 3e38 and (norm == 0 or norm > 1e-30):
        assert found.norm == pytest.approx(norm, rel=1e-4)


@pytest.fixture
def questions(monkeypatch):
    """How often the device was asked for numbers."""
    asked = []
    for name in ("tolist", "item", "__bool__", "__int__", "__float__", "numpy", "cpu"):
        method = getattr(torch.Tensor, name)
        monkeypatch.setattr(
            torch.Tensor, name, lambda tensor, *rest, own=method, asked=asked: asked.append(own) or own(tensor, *rest)
        )
    return asked


def test_every_kind_of_figure_is_one_transfer(questions):
    """R4-C6: whatever the numbers are."""
    network = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    before = {name: weight.clone() for name, weight in network.state_dict().items()}
    collector = GradientCollector()
    for scale in (1.0, NAN, INF):
        network.zero_grad()
        (network(torch.ones(5, 3)).sum() * scale).backward()
        collector.see(gradients_of(network))
    assert not questions
    collector.figures()
    assert len(questions) == 1
    weight_figures(network, before)
    assert len(questions) == 2
    observation_figures({"host": torch.full((2, 3, 4), NAN)}, torch.ones(2, 3, dtype=torch.bool))
    assert len(questions) == 3
    memory_figures([(torch.full((1, 1, 4), NAN), torch.ones(1, 1, 4))] * 3)
    assert len(questions) == 4


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))
        self.body = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        self.head = nn.Linear(2, 1)
        self.unused = nn.Linear(2, 1)


def test_gradients_belong_to_the_parts_of_a_network():
    network = Nested()
    network.head(network.body(network.scale * torch.ones(2))).sum().backward()
    found = collected(gradients_of(network))
    assert list(found) == ["own", "body", "head", "unused"]
    assert found["unused"].norm is None
    flat = torch.cat([parameter.grad.flatten() for parameter in network.body.parameters()])
    assert found["body"].norm == pytest.approx(flat.norm().item(), rel=1e-5)


def test_what_an_update_moved_is_told_by_part():
    network = Nested()
    before = {name: weight.clone() for name, weight in network.state_dict().items()}
    with torch.no_grad():
        network.head.weight.mul_(1.1)
        network.scale[0] = NAN
    found = weight_figures(network, before)
    head = torch.cat([weight.flatten() for weight in network.head.parameters()])
    assert found["head"].norm == pytest.approx(head.norm().item(), rel=1e-5)
    assert found["head"].moved == pytest.approx(
        (network.head.weight - before["head.weight"]).norm().item() / head.norm().item(), rel=1e-4
    )
    assert (found["body"].moved, found["body"].not_finite) == (0.0, 0)
    assert found["own"].not_finite == 1


def test_observations_are_told_without_padding_and_what_is_not_a_number():
    seen = torch.tensor([[[1.0, 5.0], [3.0, 5.0]], [[2.0, 5.0], [99.0, 99.0]]])
    valid = torch.tensor([[True, True], [True, False]])
    found = observation_figures({"host": seen, "mask": valid.unsqueeze(-1)}, valid)
    host = found["host"]
    assert (host.lowest, host.highest, host.still, host.not_finite) == (1.0, 5.0, 0.5, 0)
    assert host.mean == pytest.approx(3.5)
    assert host.deviation == pytest.approx(torch.tensor([1.0, 3.0, 2.0, 5.0, 5.0, 5.0]).std(correction=0).item())
    assert (found["mask"].mean, found["mask"].still) == (1.0, 1.0)
    lost = observation_figures({"host": torch.tensor([[[1.0], [NAN], [3.0]]])}, torch.ones(1, 3, dtype=torch.bool))
    assert (lost["host"].mean, lost["host"].lowest, lost["host"].highest, lost["host"].not_finite) == (2.0, 1.0, 3.0, 1)


def test_the_memory_is_told_by_norms_and_saturation():
    """R4-gaps."""
    states = [
        (torch.tensor([[[0.6, 0.8]]]), torch.tensor([[[3.0, -4.0]]])),
        (torch.ones(1, 1, 2), torch.zeros(1, 1, 2)),
    ]
    found = memory_figures(states)
    assert found.steps == 2
    assert found.hidden == pytest.approx((1.0 + math.sqrt(2)) / 2)
    assert (found.cell, found.largest_cell, found.saturated, found.not_finite) == (2.5, 4.0, 0.5, 0)


def test_a_memory_that_is_not_there_is_not_healthy_but_absent():
    """R4-gaps."""
    for absent in ([], [None, None], [(torch.zeros(0, 1, 0), torch.zeros(0, 1, 0))]):
        assert memory_figures(absent) is None


def test_a_memory_that_is_not_a_number_is_counted_and_its_rest_still_measured():
    """R4-gaps."""
    found = memory_figures([(torch.tensor([[[NAN, 0.5]]]), torch.tensor([[[INF, 2.0]]]))])
    assert (found.hidden, found.cell, found.largest_cell, found.not_finite) == (0.5, 2.0, 2.0, 2)


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_a_compiled_update_has_the_diagnostics_of_an_eager_one(backend, monkeypatch):
    """R4-gaps: compiling the replay changes no figure beyond rounding."""
    torch.compiler.reset()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    looks, metrics = [], []
    for compiled in (False, True):
        network = small_network()
        sequences = rollout(network, rows=2, steps=4)
        learner = Learner(network, STEADY, compile=compiled)
        examiner = UpdateExaminer(network)
        metrics.append(learner.update(sequences, probe=examiner.see))
        looks.append(examiner.report(sequences.observation, sequences.valid))
        assert extreme_ratios(network, sequences, 0.0, 3)
    eager, other = looks
    assert eager.gradients.keys() == other.gradients.keys()
    for part, figures in eager.gradients.items():
        assert astuple(other.gradients[part]) == pytest.approx(astuple(figures), rel=1e-3, abs=1e-6)
        assert astuple(other.weights[part]) == pytest.approx(astuple(eager.weights[part]), rel=1e-3, abs=1e-6)
    assert metrics[1].bellman_error == pytest.approx(metrics[0].bellman_error, rel=1e-4)
    assert metrics[1].gradient_norm == pytest.approx(metrics[0].gradient_norm, rel=1e-3)
