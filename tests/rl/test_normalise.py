"""Running mean and variance against numpy over everything at once."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from esper.rl import Moments

numbers = st.floats(-100, 100, width=32)
batches = st.lists(st.lists(numbers, max_size=8), min_size=1, max_size=8)


@given(batches)
def test_without_momentum_every_number_counts_alike(given_batches):
    """C-normaliser: mean, variance and count are those of numpy over all batches."""
    moments = Moments()
    for batch in given_batches:
        moments = moments.updated(torch.tensor(batch))
    everything = np.array([number for batch in given_batches for number in batch], dtype=np.float64)
    assert moments.count == len(everything)
    if len(everything):
        assert moments.mean == pytest.approx(everything.mean(), abs=1e-6)
        assert moments.variance == pytest.approx(everything.var(), rel=1e-6, abs=1e-6)


@given(batches, st.floats(0.01, 1.0))
def test_with_momentum_batches_fade_and_the_first_one_counts_fully(given_batches, momentum):
    """R4-M23, C-normaliser: EMA mode is the mean and variance under weights that fall by 1 - m with each batch."""
    moments, weights, kept = Moments(), [], []
    for batch in given_batches:
        moments = moments.updated(torch.tensor(batch), momentum)
        if batch:
            weights = [*(weight * (1 - momentum) for weight in weights), momentum if weights else 1.0]
            kept.append(np.array(batch, dtype=np.float64))
    if kept:
        assert sum(weights) == pytest.approx(1.0)
        share = np.concatenate([np.full(len(b), w / len(b)) for w, b in zip(weights, kept, strict=True)])
        everything = np.concatenate(kept)
        mean = np.average(everything, weights=share)
        assert moments.mean == pytest.approx(mean, abs=1e-6)
        assert moments.variance == pytest.approx(
            np.average((everything - mean) ** 2, weights=share), rel=1e-5, abs=1e-6
        )


def test_momentum_follows_a_change_that_counting_all_alike_does_not():
    """R4-M23."""
    fading, steady = Moments(), Moments()
    for level in [0.0] * 50 + [10.0] * 50:
        batch = torch.full((4,), level)
        fading, steady = fading.updated(batch, 0.1), steady.updated(batch)
    assert fading.mean == pytest.approx(10.0, abs=0.1)
    assert steady.mean == pytest.approx(5.0)


def test_an_empty_batch_changes_nothing():
    """R2-CRIT1."""
    moments = Moments(1.0, 2.0, 3)
    assert moments.updated(torch.zeros(0)) == moments
    assert moments.updated(torch.zeros(0), 0.5) == moments


def test_numbers_that_are_all_alike_are_not_blown_up():
    moments = Moments().updated(torch.full((5,), 7.0))
    assert moments.variance == 0
    assert moments.deviation == 1e-4
    assert Moments(variance=4.0).deviation == 2.0


def test_updating_makes_new_moments_and_leaves_the_batch():
    """R0-A2."""
    moments, batch = Moments(), torch.tensor([1.0, 2.0])
    moments.updated(batch)
    assert moments == Moments()
    assert batch.tolist() == [1.0, 2.0]
