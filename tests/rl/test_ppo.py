"""The agent in real environments: what it refuses, what it stores, and that it goes on exactly."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from esper.rl import (
    PPO,
    BadCheckpoint,
    DiscountMismatch,
    EmptyMask,
    NonFinite,
    PPOConfig,
    RLError,
    UnsupportedSpace,
    VectorConfig,
    WrongShape,
    load_checkpoint,
    replay,
)
from esper.rl.environments import EVALUATION, TRAINING, episode_seed
from tests.rl.cases import assert_same, everything_of
from tests.rl.worlds import Bandit, Clock, Shaped, Unsteady, Walk, Wrong

SMALL = VectorConfig(hidden=6, memory=5, critic=6)
STEADY = PPOConfig(
    learning_rate=1e-3,
    final_learning_rate=1e-3,
    entropy_weight=0.01,
    final_entropy_weight=0.01,
    epochs=3,
    minibatches=2,
)
"""Nothing anneals, so where training is to end does not matter."""


def clock(**options) -> PPO:
    return PPO(lambda: Clock(**options), environments=2, steps=8, network=SMALL)


def walker(config: PPOConfig = STEADY, **options) -> PPO:
    return PPO(Walk, environments=3, steps=16, network=SMALL, config=config, **options)


MANY = spaces.MultiDiscrete([3, 2])
NAN = np.array([np.nan], np.float32)


BAD_INPUT = {
    "dictionary of observations": (
        lambda: PPO(lambda: Wrong(observations=spaces.Dict({"a": spaces.Box(0, 1)}))),
        UnsupportedSpace,
        "observations are Dict; the agent needs a Box, so wrap .*FlattenObservation",
    ),
    "discrete observations": (
        lambda: PPO(lambda: Wrong(observations=spaces.Discrete(4))),
        UnsupportedSpace,
        "observations are Discrete; the agent needs a Box",
    ),
    "continuous actions": (
        lambda: PPO(lambda: Wrong(actions=spaces.Box(0, 1))),
        UnsupportedSpace,
        r"actions are Box\(.*\); the agent needs Discrete, or MultiDiscrete",
    ),
    "matrix of actions": (
        lambda: PPO(lambda: Wrong(actions=spaces.MultiDiscrete([[2, 2], [2, 2]]))),
        UnsupportedSpace,
        "the agent needs Discrete, or MultiDiscrete with one axis that starts at 0",
    ),
    "heads that start elsewhere": (
        lambda: PPO(lambda: Wrong(actions=spaces.MultiDiscrete([2, 2], start=[0, 1]))),
        UnsupportedSpace,
        "MultiDiscrete with one axis that starts at 0",
    ),
    "mask of another length": (
        lambda: PPO(lambda: Wrong(actions=MANY, mask=np.ones(4))),
        WrongShape,
        r"info\['action_mask'\] has shape \(4,\); the action space needs \(5,\)",
    ),
    "dependent mask without saying so": (
        lambda: PPO(lambda: Wrong(actions=MANY, mask=np.ones((3, 5)))),
        WrongShape,
        r"has shape \(3, 5\); the action space needs \(5,\); for masks that depend .* pass dependent_masks=True",
    ),
    "plain mask where it is dependent": (
        lambda: PPO(lambda: Wrong(actions=MANY, mask=np.ones(5)), dependent_masks=True),
        WrongShape,
        r"has shape \(5,\); the action space needs \(3, 5\)$",
    ),
    "mask that allows nothing": (
        lambda: PPO(lambda: Wrong(actions=MANY, mask=np.zeros(5))).learn(1),
        EmptyMask,
        r"the mask at index \[0, 0, 0\] allows nothing",
    ),
    "first observation is not a number": (
        lambda: PPO(lambda: Wrong(seen=NAN)),
        NonFinite,
        r"observation\[0\] is not finite; mend the environment",
    ),
    "later observation is not a number": (
        lambda: PPO(lambda: Wrong(then=NAN)).learn(1),
        NonFinite,
        r"observation\[0\] is not finite",
    ),
    "observation of another size": (
        lambda: PPO(lambda: Wrong(seen=np.zeros(3))),
        WrongShape,
        "has 3 numbers; its space promises 1",
    ),
    "reward is not a number": (
        lambda: PPO(lambda: Wrong(reward=float("nan"))).learn(1),
        NonFinite,
        "gave a reward of nan; rewards must be finite",
    ),
    "no learning rate": (
        lambda: PPO(Clock, config=PPOConfig(learning_rate=0.0)),
        RLError,
        "learning_rate = 0.0; give a value from",
    ),
    "discount of other rewards": (
        lambda: PPO(lambda: gymnasium.wrappers.TimeLimit(Shaped(), 3), config=PPOConfig(discount=0.99)),
        DiscountMismatch,
        r"discount = 0\.99; the environment shapes its rewards for a discount of 0\.9, so give PPOConfig",
    ),
    "no environment": (lambda: PPO(Clock, environments=0), RLError, "environments = 0; give at least 1"),
    "no step": (lambda: PPO(Clock, steps=0), RLError, "steps = 0; give at least 1"),
    "negative seed": (lambda: PPO(Clock, seed=-1), RLError, "seed = -1; give at least 0"),
    "unknown choice of the first head": (
        lambda: PPO(Walk, heads={"op": (), "style": [1, 3]}),
        RLError,
        r"head 'style' is used under \[1, 3\]; the first head has choices 0 to 2",
    ),
    "too few heads": (
        lambda: PPO(Walk, heads={"op": ()}),
        WrongShape,
        "heads names 1 heads; the action space has 2",
    ),
    "factor for an unknown head": (
        lambda: PPO(Walk, config=PPOConfig(head_entropy={"style": 2.0})),
        RLError,
        "head_entropy names 'style'; the heads are head0, head1",
    ),
}


@pytest.mark.parametrize("wrong", BAD_INPUT)
def test_bad_input_is_refused_with_what_is_wrong_and_what_to_do(wrong):
    make, error, said = BAD_INPUT[wrong]
    with pytest.raises(error, match=said):
        make()


def values_by_hand(agent: PPO, observations: list[float]) -> list[float]:
    """V along an episode that begins at the first observation."""
    state, result = agent.network.memory.start(1), []
    for place, observation in enumerate(observations):
        seen = {"vector": torch.tensor([[[observation]]]), "mask": torch.ones(1, 1, 1, 1, 2, dtype=torch.bool)}
        encoded = agent.network.encode(seen, state, torch.tensor([[place == 0]]))
        result.append(encoded.values.item())
        state = encoded.state.detached()
    return result


@pytest.mark.parametrize("memory", [0, 5])
@pytest.mark.parametrize(
    ("terminates", "truncates"), [(True, False), (False, True), (True, True)], ids=["terminated", "truncated", "both"]
)
def test_truncation_bootstraps_and_termination_does_not(terminates, truncates, memory):
    """R4-H4, S5-storage: V of the state after the action, with the carried memory, in the loop that collects."""
    network = VectorConfig(hidden=6, memory=memory, critic=6)
    agent = PPO(
        lambda: Clock(terminates=terminates, truncates=truncates), environments=2, steps=8, network=network, seed=3
    )
    agent._collect()
    sequences = agent.buffer.sequences()
    values = values_by_hand(agent, [0.0, 1 / 3, 2 / 3, 1.0])
    after = 0.0 if terminates else values[3]
    # Two whole episodes of three steps, and two steps of a third one, which goes on in the next rollout.
    bootstrap = [0, 0, after, 0, 0, after, 0, values[2]]
    for row in range(2):
        assert sequences.ends[row].tolist() == [False, False, True] * 2 + [False, True]
        assert sequences.starts[row].tolist() == [True, False, False] * 2 + [True, False]
        assert sequences.bootstrap[row].tolist() == pytest.approx(bootstrap, abs=1e-6)
        assert sequences.values[row].tolist() == pytest.approx([*values[:3], *values[:3], *values[:2]], abs=1e-6)
    assert sequences.rewards.eq(1).all()


def test_memory_is_carried_from_rollout_to_rollout_within_an_episode():
    """R0-P9, R0-X2: a row that goes on starts from the state that acting had reached."""
    agent = clock(length=11, truncates=True)
    seen = []
    for _ in range(3):
        agent._collect()
        sequences = agent.buffer.sequences()
        again = replay(agent.network, sequences)
        torch.testing.assert_close(again.log_probs, sequences.log_probs, rtol=0.0, atol=1e-5)
        torch.testing.assert_close(again.values, sequences.values, rtol=0.0, atol=1e-5)
        seen += sequences.observation["vector"][0, :, 0].tolist()
    assert seen == pytest.approx([(step % 11) / 11 for step in range(24)])


def test_actions_of_a_discrete_space_may_start_anywhere():
    agent = PPO(lambda: Clock(truncates=True, start=-7), environments=2, steps=8, network=SMALL)
    agent.learn(32)
    agent.evaluate(2)
    assert agent.predict(np.zeros(1))[0] in (-7, -6)


def test_masks_reach_the_choices():
    """The walk refuses what it forbids."""
    walker().learn(200)


def test_heads_that_the_first_choice_does_not_use_are_pinned():
    free = {"actions": MANY, "mask": np.ones(5)}
    agent = PPO(lambda: Wrong(**free), environments=3, steps=16, network=SMALL, heads={"op": (), "style": [2]})
    agent._collect()
    sequences = agent.buffer.sequences()
    used = sequences.choices[..., 0] == 2
    assert used.any()
    assert not used.all()
    assert not sequences.choices[..., 1][~used].any()
    assert not sequences.free[..., 1][~used].any()
    assert agent.network.heads == ("op", "style")


def everything(agent: PPO) -> dict[str, object]:
    return {
        **everything_of(agent.learner),
        "acting": agent.generator.get_state(),
        "starts": agent.starts.clone(),
        "hidden": agent.state.hidden.clone(),
        "cell": agent.state.cell.clone(),
        **{f"seat {place}": torch.from_numpy(seat.vector.copy()) for place, seat in enumerate(agent.seats)},
        **{f"mask {place}": torch.from_numpy(seat.mask.copy()) for place, seat in enumerate(agent.seats)},
        "totals": [seat.total for seat in agent.seats],
    }


@pytest.mark.parametrize("env", [Walk, "CartPole-v1"])
def test_resumed_training_equals_training_that_was_never_stopped(env, tmp_path):
    """C-rl, R0-P8: bit for bit, in the middle of episodes; in an agent that was doing something else."""

    def agent() -> PPO:
        return PPO(env, environments=3, steps=16, network=SMALL, config=STEADY, seed=4)

    straight, stopped, resumed = agent(), agent(), agent()
    straight.learn(48 * 6)
    stopped.learn(48 * 2)
    stopped.save(tmp_path / "agent.pt")
    assert not stopped.starts.all()
    resumed.learn(48)
    resumed.resume(tmp_path / "agent.pt")
    assert_same(everything(resumed), everything(stopped))
    resumed.learn(48 * 6)
    assert_same(everything(resumed), everything(straight))
    assert resumed.steps == 48 * 6


def test_checkpoint_written_while_learning_goes_on_with_the_same_annealing(tmp_path):
    """C-rl: settings that anneal do so towards the same end."""
    config = PPOConfig(learning_rate=0.01, final_learning_rate=0.001, entropy_weight=0.1, epochs=3)
    straight, resumed = walker(config), walker(config)
    straight.learn(48 * 5, lambda now: straight.save(tmp_path / "agent.pt") if now.steps == 96 else None)
    resumed.resume(tmp_path / "agent.pt").learn(48 * 5)
    assert_same(everything(resumed), everything(straight))


def test_environment_that_does_not_repeat_itself_cannot_be_resumed(tmp_path):
    """And the agent that was asked to is as it was."""
    agent = PPO(Unsteady, environments=2, steps=8, network=SMALL)
    agent.learn(16)
    agent.save(tmp_path / "agent.pt")
    other = PPO(Unsteady, environments=2, steps=8, network=SMALL)
    before = everything(other)
    with pytest.raises(RLError, match="does not repeat itself from its seed, so training cannot be resumed exactly"):
        other.resume(tmp_path / "agent.pt")
    assert_same(everything(other), before)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (lambda: PPO(Walk, environments=2, steps=16, network=SMALL), "'environments': 3.*, not .*'environments': 2"),
        (lambda: PPO(Walk, environments=3, steps=8, network=SMALL), "'steps': 16.*, not .*'steps': 8"),
        (lambda: PPO(Walk, environments=3, steps=16, network=SMALL, seed=1), "'seed': 0.*, not .*'seed': 1"),
        (lambda: PPO(Walk, environments=3, steps=16), "hidden: the checkpoint has 6, the network 64"),
    ],
)
def test_resuming_with_other_arguments_is_refused(other, said, tmp_path):
    walker().save(tmp_path / "agent.pt")
    agent = other()
    before = everything(agent)
    with pytest.raises(BadCheckpoint, match=said):
        agent.resume(tmp_path / "agent.pt")
    assert_same(everything(agent), before)


def test_saving_twice_gives_the_same_content(tmp_path):
    agent = walker()
    agent.learn(48)
    for name in ("one.pt", "two.pt"):
        agent.save(tmp_path / name)
    one, two = (load_checkpoint(tmp_path / name).extra for name in ("one.pt", "two.pt"))
    assert one["settings"] == two["settings"] == {"seed": 0, "environments": 3, "steps": 16}
    assert [seat["actions"] for seat in one["seats"]] == [seat["actions"] for seat in two["seats"]]


def test_evaluation_does_not_disturb_training():
    disturbed, quiet = walker(), walker()
    disturbed.learn(48 * 3, lambda _: [disturbed.evaluate(3), disturbed.evaluate(3, greedy=False)])
    quiet.learn(48 * 3)
    assert_same(everything(disturbed), everything(quiet))


def test_evaluation_plays_whole_episodes_of_its_own_seeds():
    """Episodes of different lengths; at the end of each of them no action is legal."""
    agent = walker()
    returns = agent.evaluate(6)
    assert len(set(returns)) == 6
    assert agent.evaluate(6) == returns
    assert agent.evaluate(6, seed=1) != returns
    assert agent.evaluate(4, greedy=False) == agent.evaluate(4, greedy=False)
    assert agent.evaluate(0) == []
    assert clock(length=7, truncates=True).evaluate(3) == [7.0] * 3


def test_evaluation_of_many_episodes_is_that_of_each_alone():
    """Episodes end one by one; those that go on keep their memory."""
    agent = walker()
    with torch.no_grad():
        for parameter in agent.network.parameters():
            parameter.add_(torch.randn_like(parameter))
    together = agent.evaluate(12, seed=100)
    assert together == pytest.approx([agent.evaluate(1, seed=100 + place)[0] for place in range(12)])


def test_prediction_is_the_likeliest_legal_action_and_remembers():
    agent = walker()
    agent.learn(96)
    mask = np.array([False, True, False, True, True])
    action, state = agent.predict(np.zeros(2), info={"action_mask": mask})
    assert action[0] == 1
    assert agent.interface.sizes == (3, 2)
    assert state.hidden.any()
    again, after = agent.predict(np.zeros(2), state, {"action_mask": mask})
    assert not torch.equal(after.hidden, state.hidden)
    assert again.dtype == np.int64
    fresh, first = agent.predict(np.zeros(2), info={"action_mask": mask})
    assert np.array_equal(fresh, action)
    assert torch.equal(first.hidden, state.hidden)
    with pytest.raises(WrongShape, match="has 3 numbers; its space promises 2"):
        agent.predict(np.zeros(3))


def test_an_episode_played_with_predict_is_that_of_evaluate():
    agent = PPO("CartPole-v1", environments=2, steps=16, network=SMALL)
    agent.learn(64)
    (expected,) = agent.evaluate(1, seed=5)
    env = gymnasium.make("CartPole-v1")
    observation, _ = env.reset(seed=episode_seed((EVALUATION, 5), 0))
    state, total, over = None, 0.0, False
    while not over:
        action, state = agent.predict(observation, state)
        observation, reward, terminated, truncated, _ = env.step(action)
        total, over = total + reward, terminated or truncated
    assert total == expected


def test_reports_say_how_far_training_is():
    agent, reports = clock(length=3, terminates=True), []
    agent.learn(33, reports.append)
    assert [report.steps for report in reports] == [16, 32, 48]
    assert reports[0].returns == (3.0,) * 4
    assert all(report.metrics.steps == 16 for report in reports)
    agent.learn(48, reports.append)
    assert len(reports) == 3


def test_the_same_seed_gives_the_same_training_and_another_does_not():
    one, same, other = walker(seed=1), walker(seed=1), walker(seed=2)
    state = torch.get_rng_state()
    for agent in (one, same, other):
        agent.learn(96)
    assert torch.equal(torch.get_rng_state(), state)
    assert_same(everything(one), everything(same))
    assert not torch.equal(one.network.actor.weight, other.network.actor.weight)


def test_masks_may_depend_on_the_first_head():
    """The bandit refuses a style that its row forbids."""
    PPO(Bandit, environments=4, steps=32, network=SMALL, dependent_masks=True).learn(256)


def test_no_episode_of_evaluation_is_one_of_training():
    seats = [(TRAINING, seed, place) for seed in range(30) for place in range(8)]
    train = {episode_seed(seat, episode) for seat in seats for episode in range(9)}
    held_out = {episode_seed((EVALUATION, seed), 0) for seed in (*range(100), *range(10_000, 10_100))}
    assert not train & held_out


def test_an_environment_instead_of_a_way_to_make_one_is_refused():
    with pytest.raises(RLError, match="give its registered name, or a function that makes it"):
        PPO(gymnasium.make("CartPole-v1"))
