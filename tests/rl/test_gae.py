"""Advantages against a slow and obvious definition."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from esper.rl import advantages, normalised


def brute_force(rewards, values, bootstrap, discount, smoothing):
    """The sum of all later errors, each discounted by its distance: straight from the definition."""
    nexts = [*values[1:], bootstrap]
    errors = [r + discount * v2 - v for r, v, v2 in zip(rewards, values, nexts, strict=True)]
    n = len(errors)
    return [sum((discount * smoothing) ** (k - t) * errors[k] for k in range(t, n)) for t in range(n)]


numbers = st.floats(-5, 5)
episodes = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=9)
factors = st.floats(0.5, 1.0)


@given(st.lists(st.tuples(episodes, numbers), min_size=1, max_size=4), factors, factors)
def test_rows_of_any_length_match_brute_force_and_padding_is_inert(rows, discount, smoothing):
    longest = max(len(steps) for steps, _ in rows)
    shape = (len(rows), longest)
    rewards, values = torch.full(shape, 99.0), torch.full(shape, -77.0)
    valid = torch.zeros(shape, dtype=torch.bool)
    for i, (steps, _) in enumerate(rows):
        rewards[i, : len(steps)] = torch.tensor([reward for reward, _ in steps])
        values[i, : len(steps)] = torch.tensor([value for _, value in steps])
        valid[i, : len(steps)] = True
    bootstrap = torch.tensor([last for _, last in rows])
    found = advantages(rewards, values, bootstrap, valid, discount, smoothing)
    for i, (steps, last) in enumerate(rows):
        expected = brute_force([r for r, _ in steps], [v for _, v in steps], last, discount, smoothing)
        assert found[i, : len(steps)].tolist() == pytest.approx(expected, rel=1e-3, abs=1e-3)
        assert (found[i, len(steps) :] == 0).all()


def test_truncation_bootstraps_and_termination_does_not():
    rewards, values = torch.zeros(2, 1), torch.zeros(2, 1)
    found = advantages(rewards, values, torch.tensor([5.0, 0.0]), torch.ones(2, 1, dtype=torch.bool), 0.9, 0.95)
    assert found.flatten().tolist() == pytest.approx([4.5, 0.0])


def test_rows_do_not_see_each_other():
    rewards, values = torch.randn(3, 6), torch.randn(3, 6)
    valid, bootstrap = torch.ones(3, 6, dtype=torch.bool), torch.randn(3)
    together = advantages(rewards, values, bootstrap, valid, 0.9, 0.95)
    alone = [
        advantages(rewards[i : i + 1], values[i : i + 1], bootstrap[i : i + 1], valid[:1], 0.9, 0.95) for i in range(3)
    ]
    assert torch.allclose(together, torch.cat(alone))


@given(st.lists(numbers, min_size=2, max_size=20))
def test_normalisation_uses_valid_entries_only(entries):
    values = torch.tensor([*entries, 1000.0, -1000.0])
    valid = torch.tensor([True] * len(entries) + [False] * 2)
    result = normalised(values, valid)
    assert (result[~valid] == 0).all()
    assert result.isfinite().all()
    assert result.sum().item() == pytest.approx(0.0, abs=1e-2)


@pytest.mark.parametrize("count", [0, 1])
def test_nothing_and_one_value_normalise_to_zero(count):
    valid = torch.arange(4) < count
    assert torch.equal(normalised(torch.tensor([3.0, 1.0, 2.0, 9.0]), valid), torch.zeros(4))
