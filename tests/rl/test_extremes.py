"""The steps that an update moved most, by name."""

import math

import pytest
import torch

from esper.rl import Learner, extreme_ratios, replay
from tests.rl.cases import SIZES, STEADY, ragged, rollout, small_network


def test_no_ratio_leaves_one_before_anything_was_learned():
    network = small_network()
    found = extreme_ratios(network, rollout(network), 0.0, 4)
    assert len(found) == 4
    assert all(each.ratio == pytest.approx(1.0, abs=1e-5) for each in found)


@pytest.mark.parametrize("experience", [rollout, ragged])
def test_the_steps_with_the_most_extreme_ratios_are_found_the_furthest_first(experience):
    network = small_network()
    sequences = experience(network)
    Learner(network, STEADY).update(sequences)
    found = extreme_ratios(network, sequences, 0.0, 5)
    distances = [abs(math.log(each.ratio)) for each in found]
    assert distances == sorted(distances, reverse=True)
    moved = (replay(network, sequences).log_probs - sequences.log_probs).detach()
    moved[~(sequences.free & sequences.valid.unsqueeze(-1))] = 0.0
    assert distances[0] == pytest.approx(moved.abs().max().item(), rel=1e-5)
    for each in found:
        place = each.row, each.step, list(SIZES).index(each.head)
        assert sequences.free[place]
        assert sequences.valid[place[:2]]
        assert sequences.choices[place] == each.choice
        assert math.log(each.ratio) == pytest.approx(moved[place].item(), rel=1e-4)


def test_there_are_no_more_than_there_are_choices():
    network = small_network()
    sequences = rollout(network)
    alone = sequences._replace(free=torch.zeros_like(sequences.free))
    assert extreme_ratios(network, alone, 0.0, 3) == []


def test_a_ratio_that_is_not_a_number_comes_first():
    network = small_network()
    sequences = rollout(network)
    with torch.no_grad():
        network.actor.weight[0, 0] = math.nan
    assert extreme_ratios(network, sequences, 0.0, 1)[0].ratio == math.inf
