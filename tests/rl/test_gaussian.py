"""Real numbers that are cut off at bounds: their probabilities are those of what happens."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from esper.rl import Gaussian
from esper.rl.gaussian import FAR


def law(mean: float, deviation: float, low: float = -1.0, high: float = 1.0) -> Gaussian:
    return Gaussian(*(torch.tensor([number], dtype=torch.float64) for number in (mean, math.log(deviation), low, high)))


@pytest.mark.parametrize("mean", [-3.0, -0.4, 0.9, 2.0])
@pytest.mark.parametrize("deviation", [0.1, 0.7])
def test_probabilities_of_bounds_and_between_add_up_to_one(mean, deviation):
    one = law(mean, deviation)

    def probability(number: float) -> float:
        return math.exp(one.log_probs(torch.tensor([number], dtype=torch.float64)).item())

    inside, _ = integrate.quad(probability, -1 + 1e-9, 1 - 1e-9, points=[min(max(mean, -0.99), 0.99)])
    assert probability(-1.0) + inside + probability(1.0) == pytest.approx(1.0, abs=1e-6)
    assert probability(1.0) == pytest.approx(stats.norm.sf((1 - mean) / deviation), rel=1e-9)
    assert probability(0.2) == pytest.approx(stats.norm.pdf(0.2, mean, deviation), rel=1e-9)


def test_expected_score_is_zero():
    """So nothing is learned where every action is worth the same, also when most of them are cut off."""
    mean = torch.full((200_000, 1), 0.8, requires_grad=True)
    log_deviation = torch.full((200_000, 1), -0.3, requires_grad=True)
    one = Gaussian(mean, log_deviation, torch.tensor([-1.0]), torch.tensor([1.0]))
    numbers = one.draw(torch.Generator().manual_seed(0)).detach()
    assert 0.3 < (numbers == 1.0).float().mean() < 0.5
    one.log_probs(numbers).sum().backward()
    for gradient in (mean.grad, log_deviation.grad):
        assert abs(gradient.mean().item()) < 4 * gradient.std().item() / math.sqrt(len(gradient))
        assert gradient.std() > 0.1


def test_draws_follow_the_distribution_and_without_a_generator_are_its_middle():
    one = Gaussian(torch.full((20_000, 1), 0.3), *(torch.tensor([number]) for number in (math.log(0.5), -1.0, 1.0)))
    drawn = one.draw(torch.Generator().manual_seed(1))
    expected = np.clip(np.random.default_rng(0).normal(0.3, 0.5, 200_000), -1, 1)
    assert drawn.mean().item() == pytest.approx(expected.mean(), abs=0.02)
    assert drawn.std().item() == pytest.approx(expected.std(), abs=0.02)
    assert (one.draw(None) == 0.3).all()
    assert law(3.0, 1.0).draw(None).item() == 1.0


@pytest.mark.parametrize(("low", "high"), [(-FAR, FAR), (0.0, FAR), (-FAR, 0.0), (-1.0, 1.0)])
@pytest.mark.parametrize("mean", [-50.0, -1.0, 0.0, 50.0])
def test_probabilities_and_gradients_are_finite_whatever_the_bounds(low, high, mean):
    means = torch.full((64, 1), mean, requires_grad=True)
    one = Gaussian(means, torch.tensor([-1.0]), torch.tensor([low]), torch.tensor([high]))
    numbers = one.draw(torch.Generator().manual_seed(0)).detach()
    log_probs = one.log_probs(numbers)
    log_probs.sum().backward()
    assert log_probs.isfinite().all()
    assert means.grad.isfinite().all()


def test_entropy_is_that_of_the_normal_distribution():
    assert law(0.3, 0.5).nats().item() == pytest.approx(stats.norm.entropy(scale=0.5))
