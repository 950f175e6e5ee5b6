"""Always the same seed in the same place."""

import pytest

from esper.contracts import Op
from esper.controller import BadConstant, Constant
from esper.environment import FIELDS, GrowEnv
from tests.controller.playing import play
from tests.environment.worlds import POINTWISE


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("constant:first:largest", {"block0"}),
        ("constant:last:conv_light", {"block2"}),
        ("constant:block1:norm", {"block1"}),
        ("constant:block9:norm", set()),
        ("constant:first:mlp", set()),
    ],
)
def test_a_constant_plants_its_seed_as_soon_as_it_can_and_nothing_else(name, kept):
    env = GrowEnv(POINTWISE)
    turns = play(env, Constant.from_name(name, FIELDS), seed=0)
    germinated = [(epoch, turn) for epoch, turn in enumerate(turns) if turn.executed.op is Op.GERMINATE]
    assert {turn.executed.slot for _, turn in germinated} == kept
    assert all(epoch == 0 for epoch, _ in germinated)


def test_the_largest_is_the_one_with_the_most_parameters():
    env = GrowEnv(POINTWISE)
    observation, _ = env.reset(seed=0)
    ((_, blueprint),) = Constant.from_name("constant:first:largest", FIELDS).decide(observation, env.codec, 0)
    assert blueprint == "conv_heavy"


@pytest.mark.parametrize("name", ["constant:", "constant:first", "constant::norm"])
def test_a_name_without_slot_and_blueprint_is_refused(name):
    with pytest.raises(BadConstant, match="names no slot and blueprint; write constant:first:largest"):
        Constant.from_name(name, FIELDS)
