"""One definition of a masked choice: its probabilities, its entropy, and how it is drawn."""

import ast
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import esper
from esper.rl import EmptyMask, chosen, entropy, log_probabilities, require_choice, sample
from esper.rl.categorical import FILL

sizes = st.integers(1, 8)
epsilons = st.sampled_from([0.0, 0.01, 0.3])


@st.composite
def cases(draw):
    n = draw(sizes)
    logits = torch.tensor(draw(st.lists(st.floats(-50, 50), min_size=n, max_size=n)))
    mask = torch.tensor(draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    mask[draw(st.integers(0, n - 1))] = True
    return logits, mask, draw(epsilons)


@given(cases())
def test_probabilities_sum_to_one_and_illegal_choices_have_none(case):
    logits, mask, epsilon = case
    log_probs = log_probabilities(logits, mask, epsilon)
    assert log_probs.exp().sum().item() == pytest.approx(1.0, abs=1e-5)
    assert (log_probs[~mask] == FILL).all()
    assert (log_probs.exp()[~mask] == 0).all()
    assert log_probs.isfinite().all()


@given(cases())
def test_mixture_is_softmax_plus_uniform_over_the_legal(case):
    logits, mask, epsilon = case
    legal = torch.softmax(logits[mask].double(), dim=0)
    expected = (1 - epsilon) * legal + epsilon / mask.sum()
    torch.testing.assert_close(
        log_probabilities(logits, mask, epsilon).exp()[mask].double(), expected, atol=1e-5, rtol=1e-4
    )


@given(cases())
def test_entropy_lies_between_zero_and_one(case):
    """S4-masked-logits."""
    logits, mask, epsilon = case
    value = entropy(log_probabilities(logits, mask, epsilon), mask).item()
    assert -1e-6 <= value <= 1.0 + 1e-5


@pytest.mark.parametrize("legal", [2, 3, 7])
def test_uniform_has_entropy_one_whatever_the_number_of_legal_choices(legal):
    mask = torch.arange(9) < legal
    assert entropy(log_probabilities(torch.zeros(9), mask), mask).item() == pytest.approx(1.0)


def test_a_forced_choice_has_log_probability_and_entropy_zero():
    mask = torch.tensor([False, True, False])
    log_probs = log_probabilities(torch.randn(3), mask, epsilon=0.1)
    assert log_probs[1].item() == pytest.approx(0.0, abs=1e-6)
    assert entropy(log_probs, mask).item() == 0.0


def test_exploration_keeps_the_gradient_of_an_unlikely_choice():
    """Pitfall: a hard floor makes the log-probability a constant."""
    logits = torch.tensor([6.0, -6.0], requires_grad=True)
    log_probs = log_probabilities(logits, torch.tensor([True, True]), epsilon=0.05)
    assert log_probs[1].exp().item() >= 0.025
    log_probs[1].backward()
    assert logits.grad.abs().min() > 0


def test_illegal_logits_get_no_gradient():
    logits = torch.randn(4, 5, requires_grad=True)
    mask = torch.rand(4, 5) > 0.5
    mask[:, 0] = True
    log_probs = log_probabilities(logits, mask, epsilon=0.1)
    (chosen(log_probs, torch.zeros(4, dtype=torch.long)) + entropy(log_probs, mask)).sum().backward()
    assert (logits.grad[~mask] == 0).all()
    assert logits.grad.isfinite().all()


def test_sampling_draws_from_its_generator_only_and_never_an_illegal_choice():
    mask = torch.tensor([True, False, True, False]).expand(1000, 4)
    log_probs = log_probabilities(torch.zeros(1000, 4), mask)
    state = torch.get_rng_state()
    first = sample(log_probs, torch.Generator().manual_seed(1))
    again = sample(log_probs, torch.Generator().manual_seed(1))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first, again)
    assert set(first.tolist()) == {0, 2}
    assert first.float().mean().item() == pytest.approx(1.0, abs=0.15)


def test_a_mask_that_allows_nothing_is_refused_with_its_place():
    mask = torch.ones(2, 3, 4, dtype=torch.bool)
    require_choice(mask)
    mask[1, 2] = False
    with pytest.raises(EmptyMask, match=r"index \[1, 2\] allows nothing"):
        require_choice(mask)


def test_half_precision_stays_finite():
    mask = torch.tensor([True, False, True])
    log_probs = log_probabilities(torch.tensor([5.0, 60000.0, -5.0], dtype=torch.float16), mask, epsilon=0.1)
    assert log_probs.isfinite().all()
    assert math.isfinite(entropy(log_probs, mask).item())


def test_entropy_is_defined_once():
    """R2-concern2: by one function, and nobody brings distributions of another make."""
    source = Path(esper.__file__).parent
    trees = {path.relative_to(source).as_posix(): ast.parse(path.read_text()) for path in source.rglob("*.py")}
    defined = [
        name
        for name, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.strip("_") == "entropy"
    ]
    assert defined == ["rl/categorical.py"]
    for name, tree in trees.items():
        attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        assert not attributes & {"Categorical", "OneHotCategorical"}, name
        imported = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        assert "torch.distributions" not in imported, name
