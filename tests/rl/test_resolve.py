"""Choices that last: made with the policy's probability, and one answer while it stays as it is."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from esper.rl import Resolve

DO, LEAVE, UNDO = 1, 0, 3
POLICY = torch.tensor([0.55, 0.25, 0.15, 0.05]).log().reshape(1, 1, 1, 4)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def drawn(resolve, source, steps, policy=POLICY):
    return [int(resolve.draw(policy, source)) for _ in range(steps)]


@pytest.mark.parametrize("persistence", [0.0, 0.5, 0.95, 1.0])
def test_the_first_choice_has_the_probabilities_of_the_policy(persistence):
    source, counts, episodes = generator(), torch.zeros(4), 2_000
    for _ in range(episodes):
        counts[drawn(Resolve((DO, UNDO), persistence), source, 1)] += 1
    expected = POLICY.exp().flatten()
    assert (counts / episodes - expected).abs().le(4 * (expected * (1 - expected) / episodes).sqrt()).all()


def test_without_persistence_every_choice_has_the_probabilities_of_the_policy():
    counts = torch.bincount(torch.tensor(drawn(Resolve((DO, UNDO), 0.0), generator(), 5_000)), minlength=4)
    torch.testing.assert_close(counts / 5_000, POLICY.exp().flatten(), rtol=0.0, atol=0.025)


def test_choices_that_do_not_last_keep_their_proportions():
    counts = torch.bincount(torch.tensor(drawn(Resolve((DO, UNDO), 1.0), generator(), 5_000)), minlength=4)
    assert counts[LEAVE] / counts[2] == pytest.approx(0.55 / 0.15, rel=0.15)


def test_what_is_not_done_at_once_is_never_done_while_the_policy_stays_as_it_is():
    source = generator()
    episodes = [drawn(Resolve((DO,), 1.0), source, 30) for _ in range(400)]
    never = sum(DO not in each for each in episodes) / len(episodes)
    assert never == pytest.approx(0.75, abs=0.07)
    anew = sum(DO not in drawn(Resolve((DO,), 0.0), source, 30) for _ in range(400)) / 400
    assert anew < 0.01


def test_once_it_was_done_it_is_decided_anew():
    source = generator()
    done = [each[1] == DO for each in (drawn(Resolve((DO,), 1.0), source, 2) for _ in range(3_000)) if each[0] == DO]
    assert sum(done) / len(done) == pytest.approx(0.25, abs=0.06)


def test_a_policy_that_changes_its_mind_is_followed():
    source = generator()
    for _ in range(50):
        resolve = Resolve((DO,), 1.0)
        drawn(resolve, source, 5)
        sure = torch.tensor([1e-7, 1.0, 1e-7, 1e-7]).log().reshape(1, 1, 1, 4)
        assert int(resolve.draw(sure, source)) == DO


@given(st.integers(0, 10**6), st.floats(0, 1), st.lists(st.booleans(), min_size=4, max_size=4).filter(any))
@settings(max_examples=60)
def test_nothing_illegal_is_ever_chosen(seed, persistence, legal):
    """Also where lasting choices alone are legal."""
    mask = torch.tensor(legal)
    logits = torch.randn(4, generator=generator(seed)).where(mask, -1e4)
    policy = torch.log_softmax(logits, dim=-1).where(mask, -1e4).reshape(1, 1, 1, 4)
    assert all(legal[choice] for choice in drawn(Resolve((DO, UNDO), persistence), generator(seed), 8, policy))


def test_the_same_generator_gives_the_same_choices():
    assert drawn(Resolve((DO, UNDO), 0.9), generator(3), 50) == drawn(Resolve((DO, UNDO), 0.9), generator(3), 50)
