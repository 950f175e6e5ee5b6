"""The policies to beat."""

from collections import Counter

import numpy as np
import pytest
import torch

from esper.contracts import CHOICES, HEADS_OF, ActionCodec, Head, Op
from esper.controller import NoGrowth, RandomLegal
from esper.environment import GrowEnv
from tests.controller.playing import play
from tests.environment.worlds import POINTWISE

DRAWS = 6_000
OP_SLOT = np.array([[1, 1, 1], [1, 0, 1], [0, 0, 0], [0, 1, 0], [0, 0, 0], [0, 1, 0]], dtype=np.int8)
SLOT_BLUEPRINT = np.array([[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 1, 0]], dtype=np.int8)
MASKS = {
    **{f"mask_{head}": np.ones(len(values), dtype=np.int8) for head, values in CHOICES.items()},
    "mask_op": OP_SLOT.max(axis=1),
    "mask_slot": np.ones(3, dtype=np.int8),
    "mask_blueprint": np.array([1, 1, 1, 0], dtype=np.int8),
    "mask_op_slot": OP_SLOT,
    "mask_slot_blueprint": SLOT_BLUEPRINT,
}


@pytest.fixture(scope="module")
def drawn() -> list[dict[Head, int]]:
    policy, generator = RandomLegal(), torch.Generator().manual_seed(0)
    state = policy.start(ActionCodec(("a", "b", "c"), ("norm", "light", "heavy", "odd")))
    return [dict(zip(Head, policy.act(MASKS, state, generator)[0].choices, strict=True)) for _ in range(DRAWS)]


def shares(values: list[int]) -> dict[int, float]:
    return {value: count / len(values) for value, count in Counter(values).items()}


def even(*values: int) -> dict[int, float]:
    return {value: pytest.approx(1 / len(values), abs=0.05) for value in values}


def test_no_growth_never_does_anything():
    turns = play(GrowEnv(POINTWISE), NoGrowth(), 0)
    assert {turn.choices for turn in turns} == {(0,) * 8}
    assert sum(turn.reward for turn in turns) == 0.0


def test_random_draws_each_legal_op_as_often_as_the_others(drawn):
    assert shares([each[Head.OP] for each in drawn]) == even(Op.WAIT, Op.GERMINATE, Op.PRUNE, Op.ADVANCE)


def test_random_draws_the_slot_from_those_in_which_the_op_is_legal(drawn):
    for op in (Op.GERMINATE, Op.PRUNE, Op.ADVANCE):
        slots = shares([each[Head.SLOT] for each in drawn if each[Head.OP] == op])
        assert slots == even(*np.flatnonzero(OP_SLOT[op]).tolist())


def test_random_draws_the_blueprint_from_those_that_fit_the_slot(drawn):
    germinated = [each for each in drawn if each[Head.OP] == Op.GERMINATE]
    for slot in (0, 2):
        blueprints = shares([each[Head.BLUEPRINT] for each in germinated if each[Head.SLOT] == slot])
        assert blueprints == even(*np.flatnonzero(SLOT_BLUEPRINT[slot]).tolist())


@pytest.mark.parametrize("op", [Op.GERMINATE, Op.PRUNE])
def test_random_draws_every_other_head_of_the_op_evenly(drawn, op):
    for head in HEADS_OF[op] - {Head.OP, Head.SLOT, Head.BLUEPRINT}:
        assert shares([each[head] for each in drawn if each[Head.OP] == op]) == even(*range(len(CHOICES[head])))
