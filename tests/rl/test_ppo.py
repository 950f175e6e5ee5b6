"""The agent in real environments: what it refuses, what it stores, and that it goes on exactly."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from esper.rl import (
    PPO,
    BadCheckpoint,
    DiscountMismatch,
    EmptyMask,
    LearningProgress,
    NoEnvironment,
    NonFinite,
    PPOConfig,
    RLError,
    UnsupportedSpace,
    VectorConfig,
    WrongShape,
    load_checkpoint,
    replay,
)
from esper.rl.rows import EVALUATION, TRAINING, episode_seed
from tests.rl.cases import assert_same, everything_of, weights_of
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


def walker(config: PPOConfig = STEADY, network: VectorConfig = SMALL, **options) -> PPO:
    return PPO(Walk, environments=3, steps=16, network=network, config=config, **options)


MANY = spaces.MultiDiscrete([3, 2])
NAN = np.array([np.nan], np.float32)


BAD_INPUT = {
    "observations of words": (
        lambda: PPO(lambda: Wrong(observations=spaces.Dict({"a": spaces.Tuple([spaces.Text(3)])}))),
        UnsupportedSpace,
        r"observations\['a'\]\[0\] are Text.*; the agent reads Box, Discrete, MultiDiscrete, MultiBinary, and Dict",
    ),
    "observations of nothing": (
        lambda: PPO(lambda: Wrong(observations=spaces.Dict({}))),
        UnsupportedSpace,
        "which show nothing; give at least one number",
    ),
    "actions of several kinds": (
        lambda: PPO(lambda: Wrong(actions=spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1)]))),
        UnsupportedSpace,
        r"actions are Tuple\(.*\); the agent acts in Discrete, MultiDiscrete, MultiBinary, and Box of real numbers",
    ),
    "whole numbers in a box": (
        lambda: PPO(lambda: Wrong(actions=spaces.Box(0, 3, (2,), np.int64))),
        UnsupportedSpace,
        r"actions are Box\(.*\); the agent acts in .* Box of real numbers",
    ),
    "box without room": (
        lambda: PPO(lambda: Wrong(actions=spaces.Box(np.zeros(2), np.array([1.0, 0.0])))),
        UnsupportedSpace,
        "whose lower and upper bounds are the same somewhere",
    ),
    "actions of nothing": (
        lambda: PPO(lambda: Wrong(actions=spaces.Box(0, 1, (0,)))),
        UnsupportedSpace,
        "in which nothing can be done",
    ),
    "mask for real numbers": (
        lambda: PPO(lambda: Wrong(actions=spaces.Box(0, 1, (2,)), mask=np.ones(2))),
        RLError,
        r"gives an action mask, but actions are Box\(.*\); drop the mask",
    ),
    "dependent masks for real numbers": (
        lambda: PPO(lambda: Wrong(actions=spaces.Box(0, 1, (2,))), dependent_masks=True),
        RLError,
        "dependent_masks=True, but actions are Box.*; masks are for choices",
    ),
    "heads of real numbers that are not always used": (
        lambda: PPO(lambda: Wrong(actions=spaces.Box(0, 1, (1,))), heads={"op": [0]}),
        RLError,
        "heads says under which choices heads are used; actions are real numbers",
    ),
    "exploration with real numbers": (
        lambda: PPO(lambda: Wrong(actions=spaces.Box(0, 1, (2,))), config=PPOConfig(exploration=0.1)),
        RLError,
        "exploration = 0.1 is for choices; actions are real numbers, so give 0",
    ),
    "not an environment": (lambda: PPO(3), RLError, "env is 3; give a registered name, a function"),
    "function that makes something else": (
        lambda: PPO(lambda: object()),
        RLError,
        "gave <object.*>, which has no observation_space and no action_space and no reset and no step",
    ),
    "function that makes what only looks like an environment": (
        lambda: PPO(lambda: SimpleNamespace(observation_space=MANY, action_space=MANY, reset=None, step=None)),
        RLError,
        r"which is no gymnasium\.Env; derive its class from gymnasium\.Env",
    ),
    "environment without spaces": (
        lambda: PPO(lambda: Wrong(actions=None)),
        RLError,
        "has action_space = None; it must be a space of gymnasium",
    ),
    "reset that tells too little": (
        lambda: PPO(lambda: Wrong(reset=np.zeros(1))),
        RLError,
        r"reset\(\) of .* gave a ndarray; it must give an observation and an info dictionary",
    ),
    "step that tells too little": (
        lambda: PPO(lambda: Wrong(step=(np.zeros(1), 0.0, True, {}))).learn(1),
        RLError,
        r"step\(\) of .* gave 4 things; it must give five things: observation, reward, terminated, truncated, info",
    ),
    "observation that is not in its space": (
        lambda: PPO(lambda: Wrong(observations=spaces.Discrete(3), seen=3)),
        WrongShape,
        r"observation is 3, which is not in its space Discrete\(3\)",
    ),
    "observation without a part": (
        lambda: PPO(lambda: Wrong(observations=spaces.Dict({"a": spaces.Discrete(3)}), seen={"b": 1})),
        WrongShape,
        r"an observation lacks observation\['a'\], which its space promises",
    ),
    "observation of words": (
        lambda: PPO(lambda: Wrong(seen=np.array(["far"]))),
        WrongShape,
        "observation holds <U3; its space promises numbers",
    ),
    "steps twice": (
        lambda: PPO(Clock).learn(1, until=2),
        RLError,
        "give total_timesteps, which are more steps, or until, which are steps in all; not both",
    ),
    "no number of steps": (lambda: PPO(Clock).learn(), RLError, "there is no training to finish; say how many steps"),
    "no module": (
        lambda: PPO(Clock, network=lambda space: space),
        RLError,
        "network gave a Box; it must give an nn.Module",
    ),
    "module that makes something else": (
        lambda: PPO(Clock, network=lambda space: torch.nn.Flatten(0)),
        WrongShape,
        r"Flatten made \(2,\) of two observations; it must give features of shape \(2, F\)",
    ),
    "mask of another length": (
        lambda: PPO(lambda: Wrong(actions=MANY, mask=np.ones(4))),
        WrongShape,
        r"the action mask has shape \(4,\); actions MultiDiscrete\(\[3 2\]\) need \(5,\)",
    ),
    "dependent mask without saying so": (
        lambda: PPO(lambda: Wrong(actions=MANY, mask=np.ones((3, 5)))),
        WrongShape,
        r"has shape \(3, 5\); actions .* need \(5,\); for masks that depend .* pass dependent_masks=True",
    ),
    "plain mask where it is dependent": (
        lambda: PPO(lambda: Wrong(actions=MANY, mask=np.ones(5)), dependent_masks=True),
        WrongShape,
        r"has shape \(5,\); actions .* need \(3, 5\)$",
    ),
    "mask that allows nothing": (
        lambda: PPO(lambda: Wrong(actions=MANY, mask=np.zeros(5))).learn(1),
        EmptyMask,
        r"the mask at index \[0, 0, 0\] allows nothing",
    ),
    "first observation is not a number": (
        lambda: PPO(lambda: Wrong(seen=NAN)),
        NonFinite,
        r"observation\[0\] is not finite in environment 0; mend the environment",
    ),
    "later observation is not a number": (
        lambda: PPO(lambda: Wrong(then=NAN)).learn(1),
        NonFinite,
        r"observation\[0\] is not finite",
    ),
    "observation of another size": (
        lambda: PPO(lambda: Wrong(seen=np.zeros(3))),
        WrongShape,
        r"observation has shape \(3,\); its space promises \(1,\)",
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
    "no environment": (lambda: PPO(Clock, environments=0), RLError, "environments = 0; give a whole number from 1 on"),
    "no step": (lambda: PPO(Clock, steps=0), RLError, "steps = 0; give a whole number from 1 on"),
    "negative seed": (lambda: PPO(Clock, seed=-1), RLError, "seed = -1; give a whole number from 0 on"),
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
    agent._collect(agent.rows)
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
        agent._collect(agent.rows)
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
    agent._collect(agent.rows)
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
        **{f"memory {place}": part.clone() for place, part in enumerate(agent.state)},
        **{f"seen {name}": part.clone() for name, part in agent.rows.observation.items()},
        "totals": [seat.total for seat in agent.rows.seats],
    }


@pytest.mark.parametrize("env", [Walk, "CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize("normalise", [False, True])
def test_resumed_training_equals_training_that_was_never_stopped(env, normalise, tmp_path):
    """C-rl, R0-P8: bit for bit, in the middle of episodes."""
    network = replace(SMALL, normalise=normalise)

    def agent() -> PPO:
        return PPO(env, environments=3, steps=16, network=network, config=STEADY, seed=4)

    straight, stopped = agent(), agent()
    straight.learn(48 * 6)
    stopped.learn(48 * 2)
    stopped.save(tmp_path / "agent.pt")
    assert not stopped.starts.all()
    resumed = PPO.load(tmp_path / "agent.pt", env)
    assert_same(everything(resumed), everything(stopped))
    resumed.learn(until=48 * 6)
    assert_same(everything(resumed), everything(straight))
    assert resumed.steps == 48 * 6


ANNEALED = PPOConfig(learning_rate=0.01, final_learning_rate=0.001, entropy_weight=0.1, epochs=3)


def test_checkpoint_written_while_learning_goes_on_with_the_same_annealing(tmp_path):
    """C-rl: settings that anneal do so towards the same end, also in a second call of learn."""

    def save(now: LearningProgress) -> None:
        if now.steps == 48 * 3:
            straight.save(tmp_path / "agent.pt")

    straight = walker(ANNEALED).learn(48)
    straight.learn(48 * 4, save)
    resumed = PPO.load(tmp_path / "agent.pt", Walk).learn()
    assert_same(everything(resumed), everything(straight))
    with pytest.raises(RLError, match="there is no training to finish"):
        resumed.learn()


def test_steps_are_more_steps_or_steps_in_all():
    one, other = walker(), walker()
    assert one.learn(96).learn(48).steps == other.learn(until=96).learn(until=144).steps == 144
    assert_same(everything(one), everything(other))
    assert other.learn(until=100).steps == 144


def test_agent_of_a_registered_environment_is_loaded_without_one(tmp_path):
    agent = PPO("CartPole-v1", environments=2, steps=8, network=SMALL).learn(32)
    agent.save(tmp_path / "agent.pt")
    again = PPO.load(tmp_path / "agent.pt")
    assert again.evaluate(3) == agent.evaluate(3)
    assert_same(everything(again.learn(16)), everything(agent.learn(16)))


def test_agent_without_an_environment_predicts_and_says_what_is_missing(tmp_path):
    agent = walker().learn(48)
    agent.save(tmp_path / "agent.pt")
    again = PPO.load(tmp_path / "agent.pt")
    one, other = (each.predict(np.ones(2)) for each in (agent, again))
    assert np.array_equal(one[0], other[0])
    for play in (lambda: again.learn(1), lambda: again.evaluate(1)):
        with pytest.raises(NoEnvironment, match=r"loaded without an environment; give one, as in PPO.load\(path, env="):
            play()
    assert again.evaluate(3, env=Walk) == agent.evaluate(3)
    again.save(tmp_path / "again.pt")
    PPO.load(tmp_path / "again.pt", Walk).learn(48)


def test_environment_that_does_not_repeat_itself_is_resumed_with_new_episodes_only(tmp_path):
    agent = PPO(Unsteady, environments=2, steps=8, network=SMALL).learn(16)
    agent.save(tmp_path / "agent.pt")
    with pytest.raises(RLError, match=r"does not repeat itself from its seed, .* PPO.load\(\.\.\., exact=False\)"):
        PPO.load(tmp_path / "agent.pt", Unsteady)
    new = PPO.load(tmp_path / "agent.pt", Unsteady, exact=False)
    assert new.starts.all()
    assert [seat.episode for seat in new.rows.seats] == [seat.episode + 1 for seat in agent.rows.seats]
    assert_same(everything_of(new.learner), everything_of(agent.learner))
    assert new.learn(16).steps == 32


def test_warm_start_takes_the_weights_and_nothing_else(tmp_path):
    old = walker(ANNEALED, seed=1).learn(96)
    old.save(tmp_path / "agent.pt")
    new = walker(seed=2).warm_start(tmp_path / "agent.pt")
    assert_same(weights_of(new.network), weights_of(old.network))
    assert new.steps == 0
    assert not new.learner.optimizer.state_dict()["state"]
    assert new.learner.config is not old.learner.config
    before = new.predict(np.ones(2))[1]
    assert torch.equal(before[0], old.predict(np.ones(2))[1][0])
    new.learn(48)
    other = PPO(Walk, environments=3, steps=16)
    with pytest.raises(BadCheckpoint, match="hidden: the checkpoint has 6, the network 64"):
        other.warm_start(tmp_path / "agent.pt")


def damaged(change: dict[str, object], path: Path) -> Path:
    raw = torch.load(path, weights_only=True)
    raw["extra"] = {name: value for name, value in (raw["extra"] | change).items() if value != "gone"}
    torch.save(raw, path)
    return path


BAD_CHECKPOINTS = {
    "another space": ({}, {"env": Clock}, "was saved with observation_space Box.*; the environment has Box"),
    "a network of its own": (
        {},
        {"env": Walk, "network": lambda space: torch.nn.Flatten()},
        "was saved without a network of its own; leave network= out",
    ),
    "not of an agent": ({"starts": "gone"}, {}, "is a checkpoint, but not of an agent; give one that PPO.save wrote"),
    "of an older agent": ({"rows": "gone"}, {}, r"did not store its spaces; take its weights alone, with PPO\(env"),
    "without memory": ({"state": "gone"}, {}, "lacks state; it is damaged"),
    "without spaces": ({"settings": {"env": None}}, {}, "has spaces that cannot be read; it is damaged"),
    "sizes that cannot be": ({"sizes": {"hidden": 0}}, {"env": Walk}, "sizes of a network that cannot be"),
    "damaged random numbers": ({"generator": torch.zeros(3)}, {"env": Walk}, "random numbers are damaged"),
}


@pytest.mark.parametrize("wrong", BAD_CHECKPOINTS)
def test_checkpoint_that_does_not_fit_is_refused_with_what_is_wrong(wrong, tmp_path):
    change, arguments, said = BAD_CHECKPOINTS[wrong]
    walker().save(tmp_path / "agent.pt")
    with pytest.raises(BadCheckpoint, match=said):
        PPO.load(damaged(change, tmp_path / "agent.pt"), **arguments)


def test_checkpoint_with_settings_of_another_program_is_refused(tmp_path):
    walker().save(tmp_path / "agent.pt")
    raw = torch.load(tmp_path / "agent.pt", weights_only=True)
    raw["config"] = {**raw["config"], "momentum": 1.0}
    torch.save(raw, tmp_path / "agent.pt")
    with pytest.raises(BadCheckpoint, match=r"settings \['momentum'\] that this program does not know"):
        PPO.load(tmp_path / "agent.pt", Walk)


class MyEncoder(torch.nn.Linear):
    """A module of the user's own."""

    def __init__(self, space, features=3):
        super().__init__(2, features)


def without_spaces(raw):
    del raw["extra"]["rows"], raw["extra"]["sizes"]


def with_removed_setting(raw):
    raw["config"]["momentum"] = 1.0


AGENTS = {
    "linear": (Walk, {"network": SMALL}),
    "lstm": (Walk, {"network": replace(SMALL, memory_kind="lstm")}),
    "normalised": (Walk, {"network": replace(SMALL, normalise=True, activation="relu")}),
    "named heads": (lambda: Wrong(actions=MANY), {"heads": {"op": [], "door": [1, 2]}}),
    "own encoder": (Walk, {"network": replace(SMALL, encoder=MyEncoder)}),
    "real numbers": (lambda: Wrong(actions=spaces.Box(-1, 1, (2,))), {"network": replace(SMALL, memory=0)}),
}


def followed(advice: str, env) -> PPO:
    return eval(advice, {"PPO": PPO, "VectorConfig": VectorConfig, "MyEncoder": MyEncoder, "env": env})


@pytest.mark.parametrize("change", [without_spaces, with_removed_setting])
@pytest.mark.parametrize("kind", AGENTS)
def test_advice_to_take_the_weights_of_a_file_that_cannot_be_loaded_works_as_it_is_written(kind, change, tmp_path):
    (env, options), path = AGENTS[kind], tmp_path / "agent.pt"
    old = PPO(env, seed=5, **options)
    old.save(path)
    raw = torch.load(path, weights_only=True)
    change(raw)
    torch.save(raw, path)
    with pytest.raises(BadCheckpoint, match="take its weights alone") as refused:
        PPO.load(path, env, network=MyEncoder if kind == "own encoder" else None)
    new = followed(str(refused.value).partition("take its weights alone, with ")[2], env)
    assert_same(weights_of(new.network), weights_of(old.network))


def test_weights_of_another_network_are_refused_with_the_agent_that_takes_them(tmp_path):
    env, options = AGENTS["lstm"]
    old, path = PPO(env, seed=5, **options), tmp_path / "agent.pt"
    old.save(path)
    with pytest.raises(BadCheckpoint, match=r"hidden: the checkpoint has 6, the network 64; memory: ") as refused:
        PPO(env).warm_start(path)
    new = followed(str(refused.value).rpartition("; ")[2].removesuffix(" takes its weights"), env)
    assert_same(weights_of(new.network), weights_of(old.network))


def test_linear_memory_that_was_read_in_another_way_is_refused(tmp_path):
    agent, path = PPO(Walk, seed=5), tmp_path / "agent.pt"
    agent.save(path)
    raw = torch.load(path, weights_only=True)
    assert raw["schema"].pop("changes")
    torch.save(raw, path)
    with pytest.raises(BadCheckpoint, match=r"has a linear memory that does not read changes; .* so train anew"):
        PPO.load(path, Walk)
    with pytest.raises(BadCheckpoint, match="so train anew"):
        PPO(Walk).warm_start(path)


def test_an_agent_loaded_with_another_module_is_told_of_warm_start(tmp_path):
    walker(network=replace(SMALL, encoder=MyEncoder)).save(tmp_path / "agent.pt")
    with pytest.raises(BadCheckpoint, match=r"another kind of network \(inputs: .*encoder=MyEncoder.*warm_start\("):
        PPO.load(tmp_path / "agent.pt", Walk, network=lambda space: MyEncoder(space, 4))


def test_saving_twice_gives_the_same_content(tmp_path):
    agent = walker()
    agent.learn(48)
    for name in ("one.pt", "two.pt"):
        agent.save(tmp_path / name)
    one, two = (load_checkpoint(tmp_path / name).extra for name in ("one.pt", "two.pt"))
    assert one["settings"].items() >= {"seed": 0, "environments": 3, "steps": 16, "env": None}.items()
    assert one["rows"]["seats"] == two["rows"]["seats"]


def test_evaluation_does_not_disturb_training():
    disturbed, quiet = walker(), walker()

    def disturb(_: LearningProgress) -> None:
        disturbed.evaluate(3)
        disturbed.evaluate(3, greedy=False)
        disturbed.predict(np.ones(2), deterministic=False)

    disturbed.learn(48 * 3, disturb)
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
    action, state = agent.predict(np.zeros(2), action_masks=mask)
    assert action[0] == 1
    assert state[0].any()
    again, after = agent.predict(np.zeros(2), state, action_masks=mask)
    assert not torch.equal(after[0], state[0])
    assert again.dtype == np.int64
    fresh, first = agent.predict(np.zeros(2), after, episode_start=True, action_masks=mask)
    assert np.array_equal(fresh, action)
    assert torch.equal(first[0], state[0])


def test_prediction_of_several_observations_is_that_of_each():
    agent = walker().learn(96)
    seen = np.random.default_rng(0).normal(size=(2, 4, 2))
    masks = np.random.default_rng(1).random((4, 5)) < 0.5
    masks[:, [0, 3]] = True
    first, state = agent.predict(seen[0], action_masks=masks)
    starts = np.array([False, True, False, True])
    second, _ = agent.predict(seen[1], state, starts, action_masks=masks)
    assert first.shape == second.shape == (4, 2)
    for row in range(4):
        action, own = agent.predict(seen[0, row], action_masks=masks[row])
        assert np.array_equal(action, first[row])
        action, _ = agent.predict(seen[1, row], own, starts[row], action_masks=masks[row])
        assert np.array_equal(action, second[row])


def test_prediction_can_be_drawn():
    agent = walker()
    drawn = {int(agent.predict(np.zeros(2), deterministic=False)[0][0]) for _ in range(60)}
    assert drawn == {0, 1, 2}
    assert len({int(agent.predict(np.zeros(2))[0][0]) for _ in range(9)}) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"observation": np.zeros(3)}, r"has shape \(3,\); its space promises \(2,\), or with an axis for rows"),
        (
            {"observation": np.zeros((2, 2)), "action_masks": np.ones((3, 5))},
            "there are 2 observations; give masks, memory and",
        ),
        ({"observation": np.zeros(2), "action_masks": np.ones(4)}, r"the action mask has shape \(4,\)"),
    ],
)
def test_prediction_refuses_what_does_not_fit(arguments, said):
    with pytest.raises(WrongShape, match=said):
        walker().predict(**arguments)


def test_memory_of_other_rows_is_refused():
    agent = walker()
    _, state = agent.predict(np.zeros((2, 2)))
    with pytest.raises(
        WrongShape, match="there are 3 observations; give masks, memory and episode_start of as many rows"
    ):
        agent.predict(np.zeros((3, 2)), state)


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


def test_callback_is_told_how_far_training_is_and_ends_it_with_false():
    agent, told = clock(length=3, terminates=True), []
    agent.learn(33, told.append)
    assert [progress.steps for progress in told] == [16, 32, 48]
    assert {progress.until for progress in told} == {33}
    assert told[0].returns == (3.0,) * 4
    assert all(progress.metrics.steps == 16 for progress in told)
    assert agent.learn(100, lambda progress: progress.steps < 80).steps == 80
    assert agent.learn().steps == 160, "what the callback ended is finished"


def test_what_a_callback_evaluates_and_saves_goes_on_as_the_training_that_it_was_saved_from(tmp_path):
    agent, path = walker(), tmp_path / "agent.pt"

    def watch(progress):
        if progress.steps == 48:
            agent.evaluate(2)
            agent.save(path)

    agent.learn(96, watch)
    assert_same(everything(PPO.load(path, Walk).learn()), everything(agent))


def test_progress_is_shown_as_a_bar_and_in_tensorboard(tmp_path, capsys):
    clock(length=3, terminates=True).learn(33, progress_bar=True, tensorboard_log=tmp_path / "board")
    assert "33/33" in capsys.readouterr().out
    (file,) = (tmp_path / "board").iterdir()
    events = EventAccumulator(str(file)).Reload()
    names = set(events.Tags()["scalars"])
    assert {"rollout/ep_rew_mean", "train/kl", "train/explained_variance", "heads/head0/entropy"} <= names
    assert [event.step for event in events.Scalars("rollout/ep_rew_mean")] == [16, 32, 48]
    assert [event.value for event in events.Scalars("rollout/ep_rew_mean")] == [3.0] * 3


def test_tensorboard_that_is_not_installed_is_a_clear_error(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(RLError, match=r"needs TensorBoard; install it with pip install 'esper-growth\[tensorboard\]'"):
        clock().learn(16, tensorboard_log=tmp_path)


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
