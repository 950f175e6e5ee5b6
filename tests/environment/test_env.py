"""The environment as any agent meets it."""

import copy
import itertools
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import FlattenObservation
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from esper.contracts import (
    CHOICES,
    RULES,
    WAIT,
    Action,
    AlphaCurve,
    AlphaTarget,
    Head,
    Op,
    Stage,
    Style,
    Tempo,
)
from esper.environment import Episode, GrowEnv, MissingData, Split, Splits, World, masks_of, twin_curve
from esper.growth import AlphaSchedule, IllegalTransition, Thresholds
from esper.growth.lifecycle import Plan, SlotState
from esper.rewards import RewardConfig, UnknownMode
from esper.rl import PPO, DiscountMismatch, PPOConfig
from esper.runs.config import TrainConfig
from esper.runs.run import new_learner
from tests.environment.worlds import CLUSTERED, CLUSTERS, grower, idle, play, random_player

CODEC = GrowEnv(CLUSTERS).codec
GROWTH = grower(("layer0", "mlp_small"), ("layer1", "mlp"))


@pytest.fixture(scope="module")
def env() -> GrowEnv:
    return GrowEnv(CLUSTERS)


def same_records(left, right) -> bool:
    return len(left) == len(right) and all(map(same_record, left, right))


def same_record(left, right) -> bool:
    seen = (left["observation"], right["observation"])
    facts = ("reward", "quality", "loss", "snapshot")
    return all(np.array_equal(seen[0][key], seen[1][key]) for key in seen[0]) and all(
        left[fact] == right[fact] for fact in facts
    )


def test_it_passes_the_checker_of_gymnasium():
    """C-environment."""
    assert check_env(GrowEnv(replace(CLUSTERS, horizon=3)), skip_render_check=True) is None, "it raises otherwise"


def test_it_is_registered():
    made = gymnasium.make("esper/Grow-v0", task=CLUSTERS)
    observation, info = made.reset(seed=3)
    assert info["episode_seed"] == 3
    assert made.observation_space.contains(observation)
    assert list(made.action_space.nvec) == [6, 3, len(made.unwrapped.codec.blueprints), 4, 3, 3, 4, 5]


def test_all_zeros_waits(env):
    env.reset(seed=0)
    *_, info = env.step(np.zeros(8, dtype=np.int64))
    assert info["executed"] is WAIT
    assert info["refused"] == ()


def test_identical_episodes_are_bit_identical_whatever_ran_before(env):
    first = play(env, GROWTH, seed=5)
    play(env, random_player(1), seed=9)
    torch.manual_seed(99)
    torch.randn(10)
    again = play(GrowEnv(CLUSTERS), GROWTH, seed=5)
    assert same_records(first, again)


def test_threads_at_once_play_the_bits_of_one_after_the_other():
    """R4-H12, R4-H13: the host drops features and seeds are born while other threads do the same."""
    noisy = replace(
        CLUSTERS,
        build_host=lambda: nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 4)),
        slots=("0", "2"),
    )

    def episode(seed: int) -> list[dict]:
        return play(GrowEnv(noisy, "frugal"), grower(("0", "mlp_small"), ("2", "mlp_small")), seed)

    alone = [episode(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(episode, range(4)))
    assert all(map(same_records, alone, together))


def test_an_episode_leaves_the_global_random_numbers_alone(env):
    state, python_state, numpy_state = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    play(env, GROWTH, seed=5)
    assert torch.equal(torch.get_rng_state(), state)
    assert random.getstate() == python_state
    assert np.array_equal(np.random.get_state()[1], numpy_state)


def test_other_seeds_are_other_episodes(env):
    assert not same_records(play(env, idle, seed=1), play(env, idle, seed=2))


def test_waiting_is_the_twin_and_growth_shares_it_until_a_seed_shows(env):
    twin = twin_curve(env.task, CLUSTERED, 5, env.world)
    waiting = play(env, idle, seed=5)
    assert [record["quality"] for record in waiting] == [point.quality for point in twin[1:]]
    assert all(record["reward"] == 0.0 for record in waiting)
    grown = play(env, GROWTH, seed=5)
    for record, point in zip(grown, twin[1:], strict=True):
        if any(slot.alpha > 0 for slot in record["snapshot"].slots):
            break
        assert (record["quality"], record["loss"]) == (point.quality, point.loss_nats)
    else:
        pytest.fail("no seed was ever blended")


def test_the_poisoned_test_split_changes_nothing():
    """No code path from reward or observation reaches the test split."""
    test = CLUSTERED.test
    poisoned = Splits(CLUSTERED.train, CLUSTERED.evaluation, Split(test.x * float("nan"), test.y * 0))
    clean = play(GrowEnv(CLUSTERS), GROWTH, seed=5)
    assert same_records(clean, play(GrowEnv(replace(CLUSTERS, load=lambda _: poisoned)), GROWTH, seed=5))


def test_an_illegal_action_is_refused_with_reasons_and_is_a_step_of_waiting(env):
    env.reset(seed=4)
    observation, reward, _, _, info = env.step(env.codec.encode(Action(Op.FOSSILIZE, "layer0")))
    assert info["executed"] is WAIT
    assert info["refused"] == ("FOSSILIZE is not legal in DORMANT",)
    refused = env.episode.body.state_dict()
    env.reset(seed=4)
    other, waited, *_ = env.step(np.zeros(8, dtype=np.int64))
    assert waited == reward
    assert all(np.array_equal(observation[key], other[key]) for key in other)
    for name, value in env.episode.body.state_dict().items():
        assert not isinstance(value, torch.Tensor) or torch.equal(value, refused[name])


@pytest.mark.parametrize("nonsense", [np.full(8, 99), np.zeros(3, dtype=np.int64), np.full(8, -1), np.zeros(8)])
def test_an_action_outside_the_space_is_refused_and_waits(env, nonsense):
    env.reset(seed=4)
    *_, info = env.step(nonsense)
    assert info["refused"] == ("not in the action space",)
    assert info["executed"] is WAIT


def test_random_play_never_raises_and_every_observation_is_in_its_space(env):
    for seed in range(3):
        records = play(env, random_player(seed), seed)
        assert all(env.observation_space.contains(record["observation"]) for record in records)
        assert records[-1]["truncated"] or records[-1]["panic"]
        assert all(np.isfinite(record["reward"]) for record in records)


def test_an_episode_is_truncated_at_the_horizon_and_terminated_only_by_the_governor(env):
    records = play(env, idle, seed=0)
    assert [record["truncated"] for record in records] == [False] * (CLUSTERS.horizon - 1) + [True]
    env.reset(seed=0)
    next(env.episode.body.host.parameters()).register_hook(lambda gradient: gradient * float("nan"))
    *_, terminated, truncated, info = env.step(np.zeros(8, dtype=np.int64))
    assert terminated
    assert not truncated
    assert "not finite" in info["panic"] or "nan" in info["panic"]
    assert info["reward_terms"]["termination"] < 0


def test_a_wrong_reward_mode_or_data_directory_is_a_clear_error(tmp_path):
    with pytest.raises(UnknownMode, match="no reward mode 'twinn'; did you mean 'twin'"):
        GrowEnv(CLUSTERS, reward_mode="twinn")
    with pytest.raises(MissingData, match="there is no directory"):
        GrowEnv("cifar10", data_dir=str(tmp_path / "nowhere"))


def test_a_learner_of_another_discount_is_refused_at_construction():
    """R4-C1: the environment says for which discount its rewards are shaped."""

    def make() -> gymnasium.Env:
        return FlattenObservation(GrowEnv(CLUSTERS, reward_config=RewardConfig(outcomes=4, discount=0.97)))

    with pytest.raises(DiscountMismatch, match=r"discount = 0\.99; .* shapes .* for a discount of 0\.97, so give"):
        PPO(make, environments=1, steps=4, config=PPOConfig(discount=0.99))
    agent = PPO(make, environments=1, steps=4, config=PPOConfig(discount=0.97))
    agent.learn(until=4)
    assert agent.steps == 4


def test_episodes_and_learner_of_a_run_have_its_one_discount():
    """R4-C1: both come from one setting."""
    config = TrainConfig(ppo=PPOConfig(discount=0.97))
    env = config.game().build_env(CLUSTERS)
    assert env.discount == env.reward_config.discount == new_learner(config).config.discount == 0.97


def test_step_before_reset_is_a_clear_error():
    with pytest.raises(gymnasium.error.ResetNeeded, match="reset"):
        GrowEnv(CLUSTERS).step(np.zeros(8, dtype=np.int64))


SCHEDULES = [
    AlphaSchedule(target=1.0),
    AlphaSchedule(0.0, 1.0, 5, elapsed=2),
    AlphaSchedule(1.0, 0.5, 5, elapsed=2),
    AlphaSchedule(1.0, 0.0, 5, elapsed=2),
    AlphaSchedule(0.0, 0.7, 3, elapsed=3),
    AlphaSchedule(0.0, 0.7, 3, elapsed=0),
]
PLAN = Plan("mlp", Style.LINEAR_ADD, Tempo.FAST, AlphaTarget.FULL)


def possible_states() -> list[SlotState]:
    """Every stage, several ages, every alpha mode, measured and not, as far as such states can be."""
    states = []
    measures = itertools.product((None, 0.1, float("nan"), 0.0), (None, 0.3, -0.1), ((), ("spike",)))
    for stage, age, (norm, contribution, anomalies) in itertools.product(Stage, (0, 1, 2, 30), list(measures)):
        rule = RULES[stage]
        for schedule in SCHEDULES if rule.holds_seed else [AlphaSchedule()]:
            try:
                states.append(
                    SlotState(
                        stage,
                        age,
                        PLAN if rule.holds_seed else None,
                        schedule,
                        gradient_norm=norm,
                        contribution=contribution,
                        anomalies=anomalies,
                    )
                )
            except IllegalTransition:  # a state that cannot be
                continue
    return states


def test_masks_and_execution_agree_over_stages_ages_and_alpha_modes():
    """One snapshot decides both."""
    episode = Episode(CLUSTERS, CLUSTERED, 0, World())
    body, slot = episode.body, episode.body.slot("layer0")
    generator = torch.Generator().manual_seed(0)
    offers = episode.snapshot.slots[0].blueprints
    seen = set()
    for state in possible_states():
        for op in Op:
            slot.become(state, generator)
            mask = masks_of(body.snapshots(), offers, body.thresholds)
            before = slot.state
            executed = bool(body.execute(Action(op, "layer0", blueprint="mlp", alpha_curve=AlphaCurve.COSINE)))
            assert executed == bool(mask["op_slot"][op, 0]), (op, state)
            assert executed or slot.state == before
            seen.add((state.stage, op, executed))
    assert len({stage for stage, *_ in seen}) == len(Stage)
    assert {(op, executed) for _, op, executed in seen} >= {(op, True) for op in Op}


def test_masks_of_heads_follow_from_the_op_by_slot_mask(env):
    for seed in range(2):
        for record in play(env, random_player(seed + 10), seed):
            masks = {key.removeprefix("mask_"): value for key, value in record["observation"].items() if "mask_" in key}
            assert set(masks) == {*Head, "op_slot", "slot_blueprint"}
            assert np.array_equal(masks["op"], masks["op_slot"].max(axis=1))
            assert masks["op"][Op.WAIT]
            assert all(mask.any() for mask in masks.values())
            acting = masks["op_slot"][Op.WAIT + 1 :].max(axis=0)
            assert np.array_equal(masks["slot"], acting if acting.any() else np.ones_like(acting))
            free = masks["slot_blueprint"] * masks["op_slot"][Op.GERMINATE][:, None]
            germinable = free.max(axis=0)
            assert np.array_equal(masks["blueprint"], germinable if germinable.any() else np.ones_like(germinable))


def test_each_slot_takes_its_own_blueprints_and_no_others():
    wide = Episode(CLUSTERS, CLUSTERED, 0, World()).snapshot.slots[0]
    narrow = replace(wide, slot="narrow", blueprints=("norm", "mlp_small"))
    mask = masks_of((wide, narrow), CODEC.blueprints, Thresholds())["slot_blueprint"]
    assert mask[0].all()
    assert [name for name, fits in zip(CODEC.blueprints, mask[1], strict=True) if fits] == ["norm", "mlp_small"]


def indices() -> st.SearchStrategy[list[int]]:
    sizes = [6, 3, 4, *(len(CHOICES[head]) for head in Head if head in CHOICES and head is not Head.OP)]
    return st.tuples(*(st.integers(0, size - 1) for size in sizes))


@given(indices())
def test_codec_round_trips_every_action(chosen):
    action = CODEC.decode(chosen)
    assert CODEC.decode(CODEC.encode(action)) == action


def test_a_copied_task_with_another_batch_size_trains_with_it():
    """R4-M17: batch size is a task setting."""
    steps = {}
    for batch in (16, 64):
        episode = Episode(replace(CLUSTERS, batch_size=batch), CLUSTERED, 0, World())
        counted = copy.copy(episode.trainer.optimizer.step)
        calls = []
        episode.trainer.optimizer.step = lambda *a, counted=counted, calls=calls: (calls.append(1), counted(*a))
        episode.step(WAIT)
        steps[batch] = len(calls)
    assert steps == {16: 4, 64: 1}
