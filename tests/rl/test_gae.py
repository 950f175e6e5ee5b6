"""Advantages against a slow and obvious definition."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from esper.rl import advantages, normalised
from esper.rl.gae import gains


def brute_force(rewards, values, bootstrap, discount, smoothing):
    """One episode: the sum of all later errors, each discounted by its distance, straight from the definition."""
    nexts = [*values[1:], bootstrap]
    errors = [r + discount * v2 - v for r, v, v2 in zip(rewards, values, nexts, strict=True)]
    n = len(errors)
    return [sum((discount * smoothing) ** (k - t) * errors[k] for k in range(t, n)) for t in range(n)]


numbers = st.floats(-5, 5, width=32)
factors = st.floats(0.0, 1.0)
episodes = st.tuples(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=6), numbers)
"""Rewards and values of the steps, and the bootstrap behind the last one."""
rows_of_episodes = st.lists(st.lists(episodes, max_size=4), min_size=1, max_size=4)


@given(rows_of_episodes, factors, factors)
def test_rows_of_episodes_match_brute_force_and_padding_is_inert(rows, discount, smoothing):
    """R0-X4, R0-R1, R0-R2, R0-R3, R0-R4, S5-storage: each row by itself, each episode in it by itself."""
    shape = (len(rows), 2 + max(sum(len(steps) for steps, _ in row) for row in rows))
    # What is not to be read holds numbers that would show.
    rewards, values, bootstrap = torch.full(shape, 99.0), torch.full(shape, -77.0), torch.full(shape, 55.0)
    ends, valid = torch.ones(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.bool)
    expected = torch.zeros(shape)
    for i, row in enumerate(rows):
        t = 0
        for steps, last in row:
            here = slice(t, t + len(steps))
            rewards[i, here] = torch.tensor([reward for reward, _ in steps])
            values[i, here] = torch.tensor([value for _, value in steps])
            ends[i, here], valid[i, here] = False, True
            t += len(steps)
            ends[i, t - 1], bootstrap[i, t - 1] = True, last
            found = brute_force([r for r, _ in steps], [v for _, v in steps], last, discount, smoothing)
            expected[i, here] = torch.tensor(found)
    given_tensors = (rewards, values, bootstrap, ends, valid)
    copies = [tensor.clone() for tensor in given_tensors]
    found = advantages(*given_tensors, discount, smoothing)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert (found[~valid] == 0).all()
    assert all(torch.equal(tensor, copy) for tensor, copy in zip(given_tensors, copies, strict=True))


class Allocations(TorchDispatchMode):
    """Counts the operations whose result is new memory."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += any(each.alias_info is None for each in func._schema.returns)
        return func(*args, **(kwargs or {}))


def test_nothing_is_allocated_inside_the_loop_over_time():
    """R0-R1, R0-R2: as many operations make new memory for thirty steps of fifty rows as for two steps of one."""
    counts = []
    for shape in ((1, 2), (50, 30)):
        numbers_of_all, yes = torch.randn(3, *shape), torch.ones(shape, dtype=torch.bool)
        with Allocations() as seen:
            advantages(*numbers_of_all, yes, yes, 0.9, 0.95)
        counts.append(seen.count)
    assert counts[0] == counts[1] > 0


def test_truncation_bootstraps_and_termination_does_not():
    """R4-H4: a terminated episode carries a bootstrap of 0."""
    rewards, values, yes = torch.zeros(2, 1), torch.zeros(2, 1), torch.ones(2, 1, dtype=torch.bool)
    found = advantages(rewards, values, torch.tensor([[5.0], [0.0]]), yes, yes, 0.9, 0.95)
    assert found.flatten().tolist() == pytest.approx([4.5, 0.0])


def test_an_episode_sees_nothing_of_the_next_one_in_its_row():
    """S5-storage."""
    values, bootstrap = torch.zeros(1, 4), torch.zeros(1, 4)
    ends, valid = torch.tensor([[False, True, False, True]]), torch.ones(1, 4, dtype=torch.bool)
    found = advantages(torch.tensor([[0.0, 0.0, 100.0, 100.0]]), values, bootstrap, ends, valid, 1.0, 1.0)
    assert found.tolist() == [[0.0, 0.0, 200.0, 100.0]]


@pytest.mark.parametrize("steps", [0, 1])
def test_no_step_and_one_step_are_handled(steps):
    """R2-CRIT1: no error, and no NaN from the mean of nothing."""
    ones, yes = torch.ones(2, steps), torch.ones(2, steps, dtype=torch.bool)
    found = advantages(ones, 0.25 * ones, 0.5 * ones, yes, yes, 0.5, 0.9)
    assert torch.equal(found, ones)
    assert torch.equal(normalised(found, yes), 0 * ones)


@given(st.lists(numbers, min_size=2, max_size=20))
def test_normalisation_uses_valid_entries_only(entries):
    """R0-R4."""
    values = torch.tensor([[*entries, 1000.0, -1000.0]])
    valid = torch.tensor([[True] * len(entries) + [False] * 2])
    result = normalised(values, valid)
    assert (result[~valid] == 0).all()
    assert result.isfinite().all()
    assert result.mean().item() == pytest.approx(0.0, abs=1e-2)
    if max(entries) - min(entries) > 1e-2:
        assert result[valid].std(correction=0).item() == pytest.approx(1.0, abs=1e-2)


@pytest.mark.parametrize("count", [0, 1])
def test_nothing_and_one_value_normalise_to_zero(count):
    """R2-CRIT1."""
    valid = (torch.arange(4) < count).unsqueeze(0)
    assert torch.equal(normalised(torch.tensor([[3.0, 1.0, 2.0, 9.0]]), valid), torch.zeros(1, 4))


@given(numbers, st.integers(1, 300), st.floats(0.0, 1e-7))
def test_values_that_differ_by_rounding_alone_are_not_blown_up(value, count, noise):
    """R2-CRIT1: else equal advantages would all become 1, or all -1, by the rounding of their mean."""
    values = value * (1 + noise * (torch.arange(count) % 2)).unsqueeze(0)
    assert normalised(values, torch.ones(1, count, dtype=torch.bool)).abs().max() < 0.05


@given(st.floats(1e-3, 1e3))
def test_normalisation_does_not_depend_on_the_unit(unit):
    values, valid = torch.tensor([[1.0, 2.0, 4.0]]), torch.ones(1, 3, dtype=torch.bool)
    torch.testing.assert_close(normalised(values * unit, valid), normalised(values, valid))


def v_trace(rewards, values, bootstrap, discount, smoothing, counts):
    """One episode, by the definition: corrected values from the last step on, and advantages against them."""
    corrected, advantage = bootstrap, []
    for t in reversed(range(len(rewards))):
        plain = values[t + 1] if t + 1 < len(rewards) else bootstrap
        following = smoothing * corrected + (1 - smoothing) * plain
        advantage.insert(0, rewards[t] + discount * following - values[t])
        corrected = values[t] + counts[t] * advantage[0]
    return advantage


@given(st.lists(st.tuples(numbers, numbers, factors), min_size=1, max_size=6), numbers, factors, factors)
def test_decisions_that_count_less_pass_on_less_of_what_they_brought(steps, last, discount, smoothing):
    rewards, values, counts = (torch.tensor(column).reshape(1, -1) for column in zip(*steps, strict=True))
    ends = torch.arange(len(steps)).reshape(1, -1) == len(steps) - 1
    course = rewards, values, torch.full_like(rewards, last), ends, torch.ones_like(ends)
    found = advantages(*course, discount, smoothing, counts)
    columns = [part.flatten().tolist() for part in (rewards, values, counts)]
    expected = v_trace(columns[0], columns[1], last, discount, smoothing, columns[2])
    assert found.flatten().tolist() == pytest.approx(expected, abs=1e-3)
    torch.testing.assert_close(advantages(*course, 0.9, 0.8, torch.ones_like(rewards)), advantages(*course, 0.9, 0.8))


def everything(rows: int, steps: int):
    return torch.ones(rows, steps, dtype=torch.bool), torch.ones(rows, steps)


def test_groups_are_normalised_apart_and_one_group_is_all():
    values = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    deciding, ones = everything(6, 5)
    groups = [0, 1, 0, 1, 1, 0]
    scaled = torch.where((torch.tensor(groups) == 1).unsqueeze(-1), 7 + 100 * values, values)
    result = gains(scaled, deciding, ones, groups)
    for group in (0, 1):
        rows = torch.tensor(groups) == group
        torch.testing.assert_close(result[rows], normalised(values[rows], deciding[rows]))
    assert torch.equal(gains(values, deciding, ones, [0] * 6), normalised(values, deciding))


def test_gains_are_0_where_nothing_was_decided_and_such_steps_have_no_part_in_the_scale():
    values = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    deciding = torch.rand(4, 5, generator=torch.Generator().manual_seed(1)) < 0.5
    result = gains(values, deciding, torch.ones(4, 5), [0] * 4)
    assert not result[~deciding].any()
    assert result[deciding].mean().item() == pytest.approx(0.0, abs=1e-6)
    assert result[deciding].std(correction=0).item() == pytest.approx(1.0, abs=1e-5)


def test_a_decision_that_counts_half_is_half_of_one_among_decisions_that_count_one_in_the_mean():
    """Two halves are one: rows that count half, written twice, give what rows that count fully give."""
    values = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
    twice = torch.cat([values[:1], values[:1], values[1:]])
    counts = torch.tensor([[0.5], [0.5], [1.0]]).expand(3, 3)
    deciding, ones = everything(2, 3)
    once, found = gains(values, deciding, ones, [0, 0]), gains(twice, *everything(3, 3)[:1], counts, [0] * 3)
    torch.testing.assert_close(found[0] + found[1], once[0] * 9 / 6)
    torch.testing.assert_close(found[2], once[1] * 9 / 6)


def test_decisions_that_do_not_count_at_all_make_no_nan():
    assert torch.equal(gains(torch.randn(2, 3), everything(2, 3)[0], torch.zeros(2, 3), [0, 0]), torch.zeros(2, 3))
