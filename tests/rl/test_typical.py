"""The likeliest course: a choice is made when by now it would have been made more likely than not."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from esper.rl import Resolve, Typical

REST, DO, FINISH = 0, 1, 2


def policy(*probabilities):
    return torch.tensor(probabilities).log().clamp(min=-1e4).reshape(1, 1, 1, len(probabilities))


def course(*steps, lasting=(DO,)):
    typical = Typical(REST, lasting)
    return [int(typical.draw(policy(*step))) for step in steps]


def test_what_the_policy_is_sure_of_is_done_at_once():
    assert course((0.1, 0.1, 0.8), (0.1, 0.8, 0.1), (0.8, 0.1, 0.1)) == [FINISH, DO, REST]


def test_what_is_never_the_likeliest_step_is_done_when_the_steps_add_up():
    """With 0.3 a step, it would have been done after two steps with 0.51; then the count begins anew."""
    assert course(*[(0.7, 0.0, 0.3)] * 6) == [REST, FINISH] * 3
    assert course(*[(0.9, 0.0, 0.1)] * 7) == [REST] * 6 + [FINISH]


def test_a_lasting_choice_does_not_add_up():
    assert course(*[(0.55, 0.45, 0.0)] * 30) == [REST] * 30
    assert course((0.55, 0.45, 0.0), (0.45, 0.55, 0.0)) == [REST, DO]


def test_chances_from_before_it_became_legal_again_are_forgotten():
    assert course((0.6, 0.0, 0.4), (1.0, 0.0, 0.0), (0.6, 0.0, 0.4), (0.6, 0.0, 0.4)) == [REST, REST, REST, FINISH]


def test_it_is_what_most_drawn_episodes_do():
    """The step at which half of the drawn episodes have finished, for a policy that changes from step to step."""
    steps = [policy(1 - p, 0.0, p) for p in (0.05, 0.1, 0.1, 0.2, 0.15, 0.3, 0.1, 0.4)]
    source = torch.Generator().manual_seed(0)

    def finished():
        resolve = Resolve((DO,), 0.9)
        return next((at for at, each in enumerate(steps) if int(resolve.draw(each, source)) == FINISH), len(steps))

    drawn = torch.tensor([finished() for _ in range(4_001)]).float().median()
    typical = Typical(REST, (DO,))
    assert [int(typical.draw(each)) for each in steps].index(FINISH) == drawn


@given(st.integers(0, 10**6), st.lists(st.lists(st.booleans(), min_size=4, max_size=4).filter(any), min_size=8))
@settings(max_examples=60)
def test_nothing_illegal_is_ever_chosen(seed, masks):
    """Also where resting is not allowed."""
    typical, source = Typical(REST, (DO, 3)), torch.Generator().manual_seed(seed)
    for legal in masks:
        mask = torch.tensor(legal)
        logits = torch.log_softmax((3 * torch.randn(4, generator=source)).where(mask, -1e4), dim=-1).where(mask, -1e4)
        assert legal[int(typical.draw(logits.reshape(1, 1, 1, 4)))]


def test_a_copy_goes_its_own_way():
    """The state of a policy is a value: acting twice from the same one gives the same."""
    typical = Typical(REST, (DO,))
    typical.draw(policy(0.7, 0.0, 0.3))
    twin = copy.copy(typical)
    assert int(twin.draw(policy(0.7, 0.0, 0.3))) == int(typical.draw(policy(0.7, 0.0, 0.3))) == FINISH


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 1), (1,)])
def test_the_choice_has_the_shape_of_the_row(shape):
    assert Typical(REST, ()).draw(torch.tensor([0.2, 0.8]).log().expand(*shape, 2)).shape == shape
