"""Greedy play by medians: each thing in the step by which half of all drawn plays would have done it."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from esper.rl import Typical

REST, DO, FINISH = 0, 1, 2


def policy(*probabilities):
    return torch.tensor(probabilities).log().clamp(min=-1e4).reshape(1, 1, 1, len(probabilities))


def course(*steps):
    typical = Typical(REST)
    return [int(typical.draw(policy(*step))) for step in steps]


def test_what_the_policy_is_sure_of_is_done_at_once():
    assert course((0.1, 0.1, 0.8), (0.1, 0.8, 0.1), (0.8, 0.1, 0.1)) == [FINISH, DO, REST]


def test_what_is_never_the_likeliest_step_is_done_when_the_steps_add_up():
    """With 0.3 a step, it would have been done after two steps with 0.51; then the count begins anew."""
    assert course(*[(0.7, 0.0, 0.3)] * 6) == [REST, FINISH] * 3
    assert course(*[(0.9, 0.0, 0.1)] * 7) == [REST] * 6 + [FINISH]


def test_what_is_done_with_two_fifths_in_every_step_is_done():
    """Of drawn episodes 64 of 100 have done it after two steps."""
    assert course(*[(0.6, 0.4)] * 2) == [REST, DO]


def test_it_does_not_rest_where_hardly_any_play_would_though_nothing_else_is_likelier_than_not():
    """Resting has 0.15; the two others take turns, as they do in drawn play."""
    assert REST not in course(*[(0.15, 0.45, 0.40)] * 20)
    assert course(*[(0.15, 0.45, 0.40)] * 4) == [DO, FINISH, DO, FINISH]


def test_something_rare_is_done_by_its_own_median_though_something_else_is_always_likelier():
    made = course(*[(0.4, 0.5, 0.1)] * 14)
    assert [step for step, choice in enumerate(made) if choice == FINISH] == [6, 13]


def test_chances_from_before_it_became_legal_again_are_forgotten():
    assert course((0.6, 0.0, 0.4), (1.0, 0.0, 0.0), (0.7, 0.0, 0.3)) == [REST, REST, FINISH]
    rare = [(0.2, 0.5, 0.3), (0.4, 0.6, 0.0), (0.2, 0.5, 0.3)]
    assert course(*rare) == [DO] * 3


@given(st.lists(st.floats(0.0, 0.9), min_size=1, max_size=25))
def test_one_thing_is_done_at_the_median_of_drawn_plays_and_left_if_most_of_them_leave_it(hazards):
    """Against the distribution of the step in which it is done, by the definition of a hazard rate."""
    left, by_now = 1.0, []
    for hazard in hazards:
        left *= 1 - hazard
        by_now.append(1 - left)
    if any(abs(share - 0.5) < 1e-4 for share in by_now):
        return
    median = next((step for step, share in enumerate(by_now) if share > 0.5), None)
    made = course(*[(1 - hazard, hazard) for hazard in hazards])
    assert (made.index(DO) if DO in made else None) == median


def drawn(steps, source):
    """What a play makes of a thing to begin and a thing to finish once it was begun: 0, 1 or 2 things done."""
    stage = 0
    for begins, finishes in steps:
        stage += float(torch.rand((), generator=source)) < (begins, finishes, 0.0)[stage]
    return stage


@pytest.mark.parametrize(("begins", "finishes"), [(0.4, 0.3), (0.05, 0.3), (0.02, 0.9), (0.3, 0.01), (0.15, 0.15)])
def test_it_ends_where_most_drawn_plays_end(begins, finishes):
    """Twenty steps: nothing begun, begun, or finished."""
    source, steps = torch.Generator().manual_seed(0), [(begins, finishes)] * 20
    ends = [drawn(steps, source) for _ in range(400)]
    typical, stage = Typical(REST), 0
    for step in steps:
        hazard = (*step, 0.0)[stage]
        rest = [1 - hazard, 0.0, 0.0]
        rest[stage + 1 if stage < 2 else 0] += hazard
        stage += int(typical.draw(policy(*rest))) != REST
    assert stage == max(range(3), key=ends.count)


@given(st.integers(0, 10**6), st.lists(st.lists(st.booleans(), min_size=4, max_size=4).filter(any), min_size=8))
@settings(max_examples=60)
def test_nothing_illegal_is_ever_chosen(seed, masks):
    """Also where resting is not allowed."""
    typical, source = Typical(REST), torch.Generator().manual_seed(seed)
    for legal in masks:
        mask = torch.tensor(legal)
        logits = torch.log_softmax((3 * torch.randn(4, generator=source)).where(mask, -1e4), dim=-1).where(mask, -1e4)
        assert legal[int(typical.draw(logits.reshape(1, 1, 1, 4)))]


def test_a_copy_goes_its_own_way():
    """The state of a policy is a value: acting twice from the same one gives the same."""
    typical = Typical(REST)
    typical.draw(policy(0.7, 0.0, 0.3))
    twin = copy.copy(typical)
    assert int(twin.draw(policy(0.7, 0.0, 0.3))) == int(typical.draw(policy(0.7, 0.0, 0.3))) == FINISH


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 1), (1,)])
def test_the_choice_has_the_shape_of_the_row(shape):
    assert Typical(REST).draw(torch.tensor([0.2, 0.8]).log().expand(*shape, 2)).shape == shape
