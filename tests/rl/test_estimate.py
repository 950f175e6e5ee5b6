"""Importance weights: what they are, and on how many episodes they fall."""

import math

import pytest
import torch

from esper.rl import EpisodesInMemory, importance_estimate, replay
from tests.rl import lock


def recorded_by(network, habits=(lock.MISTAKEN,), episodes=40):
    """Episodes with the log-probabilities that the network gives to them."""
    rows = lock.recorded(list(habits), episodes, seed=0)
    with torch.no_grad():
        log_probs = replay(network, rows).log_probs
    return rows._replace(log_probs=torch.where(rows.free, log_probs, 0.0))


def test_of_the_policy_that_was_recorded_it_is_the_mean_return_of_all_episodes():
    network = lock.network(0)
    rows = recorded_by(network)
    found = importance_estimate(network, EpisodesInMemory(rows))
    mean = rows.rewards.sum(dim=1).mean().item()
    assert (found.weighted, found.recorded) == (pytest.approx(mean, abs=1e-5), pytest.approx(mean, abs=1e-5))
    assert (found.effective, found.episodes) == (pytest.approx(40, abs=1e-3), 40)


def test_weights_are_products_over_free_heads_of_the_ratios_of_probabilities():
    network, other = lock.network(0), lock.network(1)
    rows = recorded_by(network)
    with torch.no_grad():
        other.actor.weight.mul_(100)
        log_probs = replay(other, rows).log_probs
    weights = [math.exp(float((log_probs - rows.log_probs)[row][rows.free[row]].sum())) for row in range(rows.rows)]
    returns = rows.rewards.sum(dim=1).tolist()
    found = importance_estimate(other, EpisodesInMemory(rows), batch=7)
    expected = sum(weight * total for weight, total in zip(weights, returns, strict=True)) / sum(weights)
    assert found.weighted == pytest.approx(expected, rel=1e-3)
    assert found.effective == pytest.approx(sum(weights) ** 2 / sum(weight**2 for weight in weights), rel=1e-3)
    assert found.effective < 39


def test_one_episode_that_alone_is_likely_takes_all_the_weight():
    network = lock.network(0)
    rows = recorded_by(network)
    surprising = torch.zeros(rows.rows).index_fill(0, torch.tensor([3]), -200.0)
    shifted = rows._replace(log_probs=rows.log_probs + surprising[:, None, None] * rows.free)
    found = importance_estimate(network, EpisodesInMemory(shifted))
    assert found.effective == pytest.approx(1.0)
    assert found.weighted == pytest.approx(rows.rewards[3].sum().item(), abs=1e-6)
