"""The families: the same number is the same task everywhere, no family has another's, and every task can be played."""

import gc
import hashlib
import pickle
import weakref
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from esper.contracts import Action, Op
from esper.environment import (
    DATA_KINDS,
    FAMILIES,
    DataSpec,
    GrowEnv,
    InvalidTaskFile,
    InvalidTaskSeed,
    MissingData,
    Split,
    Splits,
    UnknownTask,
    find_task,
    load_task,
    task_in_episode,
    twin_curve,
)
from esper.environment.families import Choice, Draws, Ranges
from esper.environment.families.family import MOST_SEEDS
from esper.environment.families.kinds import HELD_OUT
from esper.growth import ConvHost, ConvShape, DenseHost
from esper.rewards import RewardConfig
from tests.environment.test_data import datasets, picture, write
from tests.environment.worlds import grower, idle, play

__all__ = ["datasets"]
EMBEDDED = ("small", "small-dev", "small-exam", "wide", "far-exam")
SAMPLE = [
    pytest.param(f"family:{family}/{seed}", marks=pytest.mark.slow if seed >= 3 else ())
    for family in EMBEDDED
    for seed in range(8)
]
SEEDS = st.integers(0, MOST_SEEDS - 1)
OF_SMALL = ("small", "small-dev", "small-exam")

PINNED = {
    "family:small/0": "90e8608a1c7caeb6",
    "family:small/1": "d038f392c339b113",
    "family:small/2": "2b15f0c73524f301",
    "family:small/3": "b6f92c63b5b24ca5",
    "family:small/17": "835a9cf8fb0fb36e",
    "family:small-dev/0": "cb0ad9e8a0e73001",
    "family:small-exam/0": "accbb13c97304fc6",
    "family:small-exam/999999999999999999": "4f08d537f9498394",
    "family:wide/0": "042acb023fb488b4",
    "family:wide/3": "32a892f884a6c838",
    "family:far-exam/0": "601e57b319d2149f",
    "family:far-exam/1": "8e8920390562b03b",
    "family:far-exam/4": "c29b5adb6fdf88e0",
}
"""Specification and first rows. A digest that changes makes another world of every survey and exam that was held."""


def spec_of(name: str) -> DataSpec:
    spec = find_task(name).load.__self__
    assert isinstance(spec, DataSpec)
    return spec


def description(name: str) -> str:
    """What was drawn, as text."""
    task, spec = find_task(name), spec_of(name)
    numbers = (task.slots, task.classes, task.horizon, task.batch_size, task.learning_rate, task.optimizer, task.rent)
    return f"{task.name} {task.summary} {numbers} {spec.look} {spec.train_rows} {spec.label_noise}"


def digest(name: str) -> str:
    splits = find_task(name).load(None)
    found = hashlib.sha256(description(name).encode())
    for split in (splits.train, splits.evaluation, splits.test):
        found.update(split.x[:8].numpy().tobytes() + split.y[:8].numpy().tobytes())
    return found.hexdigest()[:16]


# The same everywhere


@pytest.mark.parametrize("name", PINNED)
def test_a_task_is_the_one_that_it_was(name):
    assert digest(name) == PINNED[name]


def test_drawing_neither_reads_nor_moves_the_global_random_numbers():
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()
    first = digest("family:small/1")
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(np.random.get_state()[1], numpy_before)
    torch.manual_seed(5)
    np.random.seed(5)
    assert digest("family:small/1") == first


def test_no_logarithmic_range_has_a_value_that_hangs_on_the_last_digit_of_a_power():
    """Where the exact value lies in the middle of two that have two digits, machines could differ."""
    tables = [kind.ranges for kind in DATA_KINDS.values()]
    tables += [vars(family.ranges) for family in FAMILIES.values()]
    for among in (each for table in tables for each in table.values()):
        if hasattr(among, "low") and isinstance(among.low, float):
            for step in range(64):
                exact = among.low * (among.high / among.low) ** (step / 63)
                assert float(f"{exact * (1 + 1e-9):.2g}") == float(f"{exact * (1 - 1e-9):.2g}") == among.pick(step)


OF_CLASSES = sorted(name for name, family in FAMILIES.items() if isinstance(family.ranges, Ranges))


@given(st.sampled_from(OF_CLASSES), SEEDS)
def test_any_number_is_a_task_within_its_ranges_that_can_be_sent_elsewhere(family, seed):
    task = find_task(f"family:{family}/{seed}")
    assert task.name == f"family:{family}/{seed}"
    assert pickle.loads(pickle.dumps(task)).summary == task.summary
    ranges = FAMILIES[family].ranges
    assert ranges.horizon.low <= task.horizon <= ranges.horizon.high
    assert ranges.rent.low <= task.rent <= ranges.rent.high
    rates = ranges.adam_rate if task.optimizer == "adam" else ranges.sgd_rate
    assert rates.low <= task.learning_rate == task.seed_learning_rate <= rates.high
    assert task.batch_size in ranges.batch_size.values
    kinds = ranges.images if task.traits["host"] == "conv" else ranges.vectors
    assert task.traits["data"] in kinds.values
    assert task.traits["optimizer"] == task.optimizer


# Held apart


@given(st.sampled_from(OF_SMALL), st.sampled_from(OF_SMALL), SEEDS, SEEDS)
def test_no_draw_of_one_family_is_a_draw_of_another(one, other, seed, other_seed):
    same = spec_of(f"family:{one}/{seed}").draws == spec_of(f"family:{other}/{other_seed}").draws
    assert same == (one == other and seed == other_seed)


def test_other_draws_are_other_data():
    names = [f"family:{family}/{seed}" for family in EMBEDDED for seed in range(30)]
    firsts = [find_task(name).load(None).train.x.flatten()[:256].numpy().tobytes() for name in names]
    assert len(set(firsts)) == len(names)


@pytest.mark.parametrize("family", ["small", "wide"])
def test_far_families_have_no_kind_of_data_and_no_activation_that_is_trained_on(family):
    known, far = FAMILIES[family].ranges, FAMILIES["far-exam"].ranges
    for name in ("images", "vectors", "activation", "pooling"):
        assert not set(getattr(known, name).values) & set(getattr(far, name).values), name
    drawn = [find_task(f"family:far-exam/{seed}").build_host().modules() for seed in range(40)]
    assert not any(isinstance(part, nn.ReLU) for modules in drawn for part in modules)


def test_all_that_can_be_drawn_is_drawn():
    for family in ("small", "wide", "far-exam"):
        ranges, tasks = FAMILIES[family].ranges, [find_task(f"family:{family}/{seed}") for seed in range(400)]
        seen = {name: {task.traits.get(name) for task in tasks} for name in ("data", "host", "optimizer", "norm")}
        assert seen["data"] == {*ranges.images.values, *ranges.vectors.values}
        assert seen["host"] == {"conv", "dense"}
        assert seen["optimizer"] == {"adam", "sgd"}
        assert seen["norm"] == {*ranges.norm.values, None}
        assert {len(task.slots) for task in tasks if task.traits["host"] == "conv"} == set(range(2, 7))
        assert {len(task.slots) for task in tasks if task.traits["host"] == "dense"} == set(range(1, 5))


# Data


def some_spec(kind: str, label_noise: float = 0.0, number: int = 0) -> DataSpec:
    draws = Draws("test", number)
    look = tuple((name, draws.pick(name, among)) for name, among in DATA_KINDS[kind].ranges.items())
    return DataSpec(kind, look, 192, label_noise, draws)


KINDS_HERE = [name for name, kind in DATA_KINDS.items() if "no download" in kind.origin]


@pytest.mark.parametrize("kind", KINDS_HERE)
@pytest.mark.parametrize("number", range(3))
def test_a_set_has_three_splits_that_share_no_row(kind, number):
    spec = some_spec(kind, number=number)
    splits = spec.load()
    parts = (splits.train, splits.evaluation, splits.test)
    rows = [{row.numpy().tobytes() for row in part.x} for part in parts]
    assert not rows[0] & rows[1] | rows[0] & rows[2] | rows[1] & rows[2]
    for part in parts:
        assert part.x.dtype == torch.float32
        assert part.x.shape[1:] == spec.shape
        assert part.x.isfinite().all()
        assert part.x.abs().max() < 16
        assert sorted(part.y.unique().tolist()) == list(range(spec.classes))
    assert len(splits.train.x) == 192
    held_out = (len(splits.evaluation.x), len(splits.test.x))
    assert held_out == (HELD_OUT, HELD_OUT) if DATA_KINDS[kind].origin.startswith("generated") else min(held_out) > 300


@pytest.mark.parametrize("kind", ["rings", "digits"])
def test_wrong_labels_are_to_be_trained_on_only(kind):
    clean, noisy = some_spec(kind).load(), some_spec(kind, label_noise=0.2).load()
    assert torch.equal(clean.train.x, noisy.train.x)
    assert 0.1 < (clean.train.y != noisy.train.y).float().mean() < 0.3
    assert torch.equal(clean.evaluation.y, noisy.evaluation.y)
    assert torch.equal(clean.test.y, noisy.test.y)


@pytest.mark.parametrize("kind", [name for name in KINDS_HERE if not DATA_KINDS[name].space])
def test_where_space_does_not_matter_any_order_of_the_pixels_is_as_likely(kind):
    """Neighbours are no more alike than others, within an image and its class."""
    train = replace(some_spec(kind), train_rows=4_000).load().train
    for label in train.y.unique():
        x = train.x[train.y == label].flatten(2)
        correlations = torch.corrcoef(x[:, 0].T)
        side = train.x.shape[-1]
        near, far = correlations[0, 1], correlations[0, side * side - 1]
        assert abs(near - far) < 0.15


@pytest.mark.usefixtures("datasets")
def test_a_set_of_the_hub_gives_some_rows_of_some_classes(datasets, tmp_path):
    parts = {
        split: {"image": [picture(row, size=28, grey=True) for row in span], "label": [row % 10 for row in span]}
        for split, span in {"train": range(100), "test": range(100, 150)}.items()
    }
    write(datasets, tmp_path / "fashion_mnist", parts)
    drawn = (find_task(f"family:fashion/{seed}") for seed in range(100))
    task = next(each for each in drawn if "14x14" in each.summary)
    splits = task.load(tmp_path)
    for part in (splits.train, splits.evaluation, splits.test):
        assert part.x.shape[1:] == (1, 14, 14)
        assert set(part.y.tolist()) <= set(range(task.classes))
        assert 0 < len(part.x) < 80
    assert torch.equal(task.load(tmp_path).train.x, splits.train.x)
    with pytest.raises(MissingData, match="there is no directory"):
        task.load(tmp_path / "nowhere")


# Hosts


def test_todays_hosts_have_the_weights_that_they_had():
    torch.manual_seed(3)
    host = ConvHost(1, 10, ConvShape((4, 8), kernel=1, pool_after=(0,)))
    torch.manual_seed(3)
    first, second, head = nn.Conv2d(1, 4, 1, bias=False), nn.Conv2d(4, 8, 1, bias=False), nn.Linear(8, 10)
    assert torch.equal(host.block0[0].weight, first.weight)
    assert torch.equal(host.block1[0].weight, second.weight)
    assert torch.equal(host.head[2].weight, head.weight)


def test_a_residual_block_adds_its_input_where_the_width_stays():
    host = ConvHost(1, 3, ConvShape((4, 4, 6), kernels=(3, 1, 5), residual=True, norm="none", activation="tanh"))
    kernels = [part.kernel_size for part in host.modules() if isinstance(part, nn.Conv2d)]
    assert kernels == [(3, 3), (1, 1), (5, 5)]
    h = torch.randn(2, 4, 8, 8)
    inner = host.block1[0]
    assert torch.equal(host.block1(h), h + inner[2](inner[1](inner[0](h))))
    assert host.block2(h).shape == (2, 6, 8, 8)


def test_a_residual_layer_adds_its_input_where_the_width_stays():
    host = DenseHost(5, 3, (4, 4), activation="gelu", residual=True)
    h = torch.randn(2, 4)
    assert torch.equal(host.layer1(h), h + nn.functional.gelu(host.layer1[0](h)))
    assert host.layer0(torch.randn(2, 5)).shape == (2, 4)


def test_channels_last_changes_how_features_lie_and_not_what_they_are():
    shape, x = ConvShape((8, 8), pool_after=(0,)), torch.randn(4, 3, 16, 16)
    torch.manual_seed(0)
    plain = ConvHost(3, 5, shape)
    torch.manual_seed(0)
    last = ConvHost(3, 5, replace(shape, channels_last=True))
    assert last.block0(x).is_contiguous(memory_format=torch.channels_last)
    assert torch.allclose(plain(x), last(x), atol=1e-5)


# Playing


@pytest.mark.parametrize("name", SAMPLE)
def test_a_drawn_task_can_be_built_grafted_trained_and_observed(name):
    task = replace(find_task(name), horizon=2)
    env = GrowEnv(task, "solo")
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    for slot in (task.slots[0], task.slots[-1]):
        offered = env.episode.snapshot.slots[-1].blueprints
        observation, reward, *_, info = env.step(env.codec.encode(Action(Op.GERMINATE, slot, blueprint=offered[-1])))
        assert env.observation_space.contains(observation)
        assert np.isfinite(reward)
        assert info["panic"] is None
    assert type(env.episode.trainer.optimizer) is (torch.optim.Adam if task.optimizer == "adam" else torch.optim.SGD)


def test_the_poisoned_test_split_of_a_drawn_task_changes_nothing():
    task = replace(find_task("family:small/5"), horizon=6)
    splits = task.load(None)
    poisoned = Splits(splits.train, splits.evaluation, Split(splits.test.x * float("nan"), splits.test.y * 0))
    player = grower((task.slots[0], "mlp"))
    clean, other = (play(GrowEnv(task, splits=each), player, seed=0) for each in (splits, poisoned))
    for left, right in zip(clean, other, strict=True):
        assert (left["reward"], left["snapshot"]) == (right["reward"], right["snapshot"])
        assert all(np.array_equal(left["observation"][key], right["observation"][key]) for key in left["observation"])


def test_a_family_plays_the_task_of_the_seed_of_every_episode():
    env = GrowEnv("family:small", "solo")
    for seed in (5, 12, 5):
        observation, _ = env.reset(seed=seed)
        assert env.task.name == f"family:small/{seed}" == task_in_episode("family:small", seed).name
        assert env.observation_space.contains(observation)
        assert list(env.action_space.nvec) == list(env.codec.sizes)
        assert env.reward_config == RewardConfig.at_rent(env.task.rent, env.task.classes)
    alone = play(GrowEnv("family:small/12", "solo"), idle, seed=12)
    drawn = play(env, idle, seed=12)
    assert [record["reward"] for record in alone] == [record["reward"] for record in drawn]


def test_a_family_is_an_environment_of_gymnasium():
    made = gymnasium.make("esper/Grow-v0", task="family:small", reward_mode="solo")
    for seed in (3, 5):
        observation, _ = made.reset(seed=seed)
        assert made.observation_space.contains(observation)
        assert made.unwrapped.task.name == f"family:small/{seed}"
    check_env(GrowEnv("family:small/5", "solo"), skip_render_check=True)


def test_rewards_that_are_given_rule_the_rent_of_every_task():
    env = GrowEnv("family:small", "solo", RewardConfig(outcomes=2, rent_weight=0.02, discount=0.9))
    for seed in (2, 3):
        env.reset(seed=seed)
        assert (env.task.rent, env.reward_config.rent_weight, env.discount) == (0.02, 0.02, 0.9)
        assert env.reward_config.outcomes == env.task.classes


def test_nothing_of_an_old_task_stays_in_memory():
    env = GrowEnv("family:small", "twin")
    env.reset(seed=5)
    old = weakref.ref(env.splits), weakref.ref(env.splits.train.x), weakref.ref(env.episode)
    env.step(np.zeros(8, dtype=np.int64))
    env.reset(seed=12)
    gc.collect()
    assert [each() for each in old] == [None, None, None]
    last = weakref.ref(env.splits)
    del env
    gc.collect()
    assert last() is None


def test_a_twin_is_trained_once_as_long_as_its_data_lives():
    env = GrowEnv("family:small/5", "twin")
    env.reset(seed=1)
    first = twin_curve(env.task, env.splits, 1, env.world)
    env.reset(seed=1)
    assert twin_curve(env.task, env.splits, 1, env.world) is first


# Names and files


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("family:smal/1", r"no family 'smal'; did you mean 'small'\?"),
        ("family:small", "'family:small' is a family of tasks; name one of them, as in family:small/17"),
        *(
            (f"family:small/{number}", f"family 'small' has no task '{number}'")
            for number in ("", "x", "-1", "01", "1.5", "1/2", "9" * 19)
        ),
    ],
)
def test_a_name_that_no_family_has_is_refused(name, message):
    with pytest.raises(UnknownTask, match=message):
        find_task(name)


def test_a_number_that_no_task_has_is_refused():
    with pytest.raises(InvalidTaskSeed, match="family:small has no task -1; give a number from 0 to"):
        FAMILIES["small"].draw(-1)


def test_a_file_can_name_a_task_of_a_family(tmp_path):
    path, drawn = tmp_path / "mine.toml", find_task("family:small/17")
    path.write_text('name = "mine"\nfamily = "small/17"\n')
    assert (load_task(path).name, load_task(path).summary, load_task(path).rent) == ("mine", drawn.summary, drawn.rent)
    path.write_text('name = "mine"\nfamily = "small/17"\nrent = 0.5\n')
    assert find_task(str(path)).rent == 0.5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "mine"\nfamily = "small"', "is a family of tasks; name one of them"),
        ('name = "mine"\nfamily = "small/x"', "has no task 'x'"),
        ('name = "mine"\nfamily = "small/1"\nhorizon = 3', "there is no key 'horizon'"),
        ('name = "mine"\nfamily = "small/1"\nrent = 2', "rent 2.0; give a number from 0.0 to 1.0"),
        ('name = "family:small/2"\nfamily = "small/1"', "only a family can name its task 'family:small/2'"),
        ('family = "small/1"', "lacks 'name'"),
    ],
)
def test_a_file_that_names_no_task_of_a_family_is_refused(tmp_path, text, message):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(InvalidTaskFile, match=message):
        load_task(path)


def test_choices_are_as_likely_as_their_share():
    picks = [Choice("a", "a", "b").pick(number) for number in range(300)]
    assert picks.count("a") == 200
