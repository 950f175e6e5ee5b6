"""What no episode can be is refused with its step, though its checksum agrees."""

from dataclasses import replace

import numpy as np
import pytest

from esper.contracts import Op
from esper.runs.recordings import BadRecording
from esper.runs.recordings.row import facts_of, numbers_of, trajectory_of
from esper.runs.recordings.schema import NUMBERS, SEEN


def refused(trajectory, schema) -> str:
    with pytest.raises(BadRecording, match=r"\w") as error:
        trajectory_of(dict.fromkeys(NUMBERS) | facts_of(trajectory) | numbers_of(trajectory), schema)
    return str(error.value)


def changed(trajectory, name, step, value):
    """The episode with one number changed in a way that its checksum agrees with."""
    if name in SEEN:
        array = trajectory.observation[name].copy()
        array.reshape(len(array), -1)[step, 0] = value
        return replace(trajectory, observation={**trajectory.observation, name: array})
    array = getattr(trajectory, name).copy()
    array[step] = value
    return replace(trajectory, **{name: array})


NOT_LEGAL = [Op.FOSSILIZE, 0, 0, 0, 0, 0, 0, 0]
HOSTILE = [
    ("rewards", np.nan, "step 3: rewards is nan; give a finite number"),
    ("rewards", np.inf, "step 3: rewards is inf; give a finite number"),
    ("host", -np.inf, r"step 3: host [0] is -inf; give a finite number"),
    ("host_valid", 2, r"step 3: host_valid [0] is 2; give 0 or 1"),
    ("mask_op", -1, r"step 3: mask_op [0] is -1; give 0 or 1"),
    ("choices", [6, *[0] * 7], "step 3: choice_op is 6; give 0 to 5"),
    ("choices", [0, -1, *[0] * 6], "step 3: choice_slot is -1; give 0 to 1"),
    ("choices", [0, 0, 0, 0, 2, 0, 0, 0], "step 3: the choice of head tempo is 2; the mask forbids it"),
    ("log_probs", [0.5, *[0] * 7], "step 3: the log-probability of head op is 0.5; give at most 0"),
    ("log_probs", [np.nan, *[0] * 7], "step 3: log_prob_op is nan; give a finite number"),
    ("log_probs", [0, 0, 0, 0, 0, 0, 0, -2], "step 3: the log-probability of head alpha_curve is -2.0; give 0 where"),
]


@pytest.mark.parametrize(("name", "value", "message"), HOSTILE)
def test_what_no_episode_can_have_is_refused_with_its_step(recorded, name, value, message):
    one = recorded.trajectories[2 if name == "choices" else 4]
    assert message in refused(changed(one, name, 3, value), recorded.schema)


def test_a_choice_that_the_mask_forbids_is_refused(recorded):
    one = recorded.trajectories[2]
    assert not one.observation["mask_op"][0, Op.FOSSILIZE]
    assert "step 0: the choice of head op is 4; the mask forbids it" in refused(
        changed(one, "choices", 0, NOT_LEGAL), recorded.schema
    )


def test_a_certain_policy_with_a_probability_below_1_is_refused(recorded):
    one = recorded.trajectories[2]
    assert not one.about.drawn
    assert "step 0: the log-probability of head op is -1.0; give 0 where nothing was drawn" in refused(
        changed(one, "log_probs", 0, [-1.0, *[0] * 7]), recorded.schema
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": ""}, "task has 0 letters"),
        ({"policy": "p" * 2000}, "policy has 2,000 letters; give 1 to 1,000"),
        ({"seed": -1}, "seed is -1; give a number from 0"),
        ({"score": np.nan}, "score is nan; give a finite number"),
    ],
)
def test_what_no_episode_can_be_about_is_refused(recorded, change, message):
    one = recorded.trajectories[0]
    assert message in refused(replace(one, about=replace(one.about, **change)), recorded.schema)
