"""Growth by plan: in the real world, from a file and back, and at random."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import esper.controller.schedule
from esper.contracts import ActionCodec, AlphaTarget, EsperError, Op, Style, Tempo
from esper.controller import BadSchedule, Schedule, ScheduledSeed, load_schedule, random_schedule
from esper.environment import GrowEnv
from tests.controller.playing import Turn, play
from tests.environment.worlds import POINTWISE

CODEC = ActionCodec(("block0", "block1", "block2"), ("norm", "conv_light", "conv_heavy"))
LIFE = [Op.GERMINATE, Op.ADVANCE, Op.ADVANCE, Op.FOSSILIZE]


@pytest.fixture(scope="module")
def env() -> GrowEnv:
    return GrowEnv(replace(POINTWISE, horizon=20))


def ops(turns: list[Turn], slot: str) -> dict[int, Op]:
    """What happened in the slot, by epoch."""
    return {epoch: turn.executed.op for epoch, turn in enumerate(turns) if turn.executed.slot == slot}


# In the world


def test_a_seed_goes_through_its_whole_life_and_then_the_schedule_waits(env):
    turns = play(env, Schedule((ScheduledSeed(0, "block1", "conv_heavy"),)), 0)
    assert list(ops(turns, "block1").values()) == LIFE
    assert sum(turn.executed.op is Op.WAIT for turn in turns) == 20 - len(LIFE)


def test_a_seed_germinates_in_its_epoch_as_it_was_planned(env):
    seed = ScheduledSeed(6, "block2", "conv_light", Style.GATED, Tempo.SLOW, AlphaTarget.MOST)
    turns = play(env, Schedule((seed,)), 0)
    epoch, op = next(iter(ops(turns, "block2").items()))
    action = turns[6].executed
    assert (epoch, op) == (6, Op.GERMINATE)
    assert (action.blueprint, action.style, action.tempo, action.alpha_target) == (
        "conv_light", Style.GATED, Tempo.SLOW, AlphaTarget.MOST,
    )  # fmt: skip


def test_of_two_seeds_that_can_go_on_the_first_in_the_list_does(env):
    first, second = ScheduledSeed(0, "block2", "conv_light"), ScheduledSeed(0, "block1", "conv_light")
    for plan, ahead in (((first, second), "block2"), ((second, first), "block1")):
        turns = play(env, Schedule(plan), 0)
        assert [turn.executed.slot for turn in turns[:2]] == [ahead, ahead], "germinates, then advances"
        assert len(ops(turns, "block1")) >= 4
        assert len(ops(turns, "block2")) >= 4


def test_a_seed_that_is_not_to_be_fossilised_is_held_to_the_end(env):
    turns = play(env, Schedule((ScheduledSeed(0, "block1", "conv_heavy", fossilize=False),)), 0)
    assert list(ops(turns, "block1").values()) == LIFE[:-1]
    assert env.episode.snapshot.slots[1].stage.name == "HOLDING"


def test_a_seed_planned_for_after_the_horizon_never_germinates(env):
    turns = play(env, Schedule((ScheduledSeed(20, "block1", "conv_light"),)), 0)
    assert not ops(turns, "block1")


@pytest.mark.parametrize(
    ("seed", "message"),
    [
        (ScheduledSeed(0, "blok1", "norm"), "seed 2: there is no slot 'blok1'; did you mean 'block1'?"),
        (ScheduledSeed(0, "block1", "conv_hevy"), "no blueprint 'conv_hevy'; did you mean 'conv_heavy'?"),
        (ScheduledSeed(0, "block1", "zzz"), "no blueprint 'zzz'; known: norm, conv_light, conv_heavy"),
    ],
)
def test_a_name_that_the_body_does_not_have_is_refused_at_the_start(seed, message):
    plan = Schedule((ScheduledSeed(0, "block0", "norm"), seed))
    with pytest.raises(BadSchedule, match=message.replace("?", r"\?")):
        plan.start(CODEC)


def test_a_blueprint_that_does_not_fit_its_slot_is_refused_before_the_first_epoch(env):
    observation, _ = env.reset(seed=0)
    place = env.codec.slots.index("block1"), env.codec.blueprints.index("conv_light")
    observation["mask_slot_blueprint"][place] = 0
    plan = Schedule((ScheduledSeed(9, "block1", "conv_light"),))
    with pytest.raises(
        BadSchedule, match="seed 1: blueprint 'conv_light' does not fit slot 'block1'; what fits there: norm,"
    ):
        plan.act(observation, plan.start(env.codec), torch.Generator())


# From a file and back

SEED = {"epoch": "3", "slot": '"block1"', "blueprint": '"conv_light"'}


def write(folder: Path, *seeds: dict[str, str | None]) -> Path:
    """A file with these seeds, each a good one with some lines changed, or left out where the change is None."""
    lines = []
    for seed in seeds:
        lines += ["[[seed]]", *(f"{key} = {value}" for key, value in {**SEED, **seed}.items() if value is not None)]
    path = folder / "plan.toml"
    path.write_text("\n".join(lines))
    return path


def test_a_file_needs_no_more_than_epoch_slot_and_blueprint(tmp_path):
    assert load_schedule(write(tmp_path, {})) == Schedule((ScheduledSeed(3, "block1", "conv_light"),))


def test_a_file_can_say_everything(tmp_path):
    said = {"style": '"sigmoid_add"', "tempo": '"medium"', "alpha_target": '"half"', "fossilize": "false"}
    seed = ScheduledSeed(3, "block1", "conv_light", Style.SIGMOID_ADD, Tempo.MEDIUM, AlphaTarget.HALF, False)
    assert load_schedule(write(tmp_path, said)).seeds == (seed,)


def test_the_file_in_the_docstring_loads(tmp_path):
    documentation = (esper.controller.schedule.__doc__ or "").split("\n\n", maxsplit=1)[1]
    path = tmp_path / "plan.toml"
    path.write_text(documentation)
    assert [seed.slot for seed in load_schedule(path).seeds] == ["block1", "block2"]


BAD_SEEDS = [
    ({"epohc": "1"}, "there is no key 'seed 2.epohc'; did you mean 'epoch'"),
    ({"epoch": None}, r"it lacks 'seed 2.epoch' \(an integer\)"),
    ({"epoch": "1.0"}, "'seed 2.epoch' must be an integer, and is 1.0"),
    ({"epoch": "true"}, "'seed 2.epoch' must be an integer, and is True"),
    ({"epoch": "9223372036854775808"}, "'seed 2.epoch' must be an integer, and is an integer of more than 64 bits"),
    ({"epoch": "-1"}, "seed 2: epoch -1; epochs count from 0, give 0 or more"),
    ({"slot": "1"}, "'seed 2.slot' must be a string, and is 1"),
    ({"blueprint": '["norm"]'}, "'seed 2.blueprint' must be a string, and is a list of 1"),
    ({"style": '"linear_ad"'}, "'seed 2.style' is 'linear_ad'; did you mean 'linear_add'"),
    ({"tempo": "3"}, "'seed 2.tempo' is 3; known: fast, medium, slow"),
    ({"tempo": '"quick"'}, "'seed 2.tempo' is 'quick'; known: fast, medium, slow"),
    ({"alpha_target": "1.0"}, "'seed 2.alpha_target' is 1.0; known: half, most, full"),
    ({"fossilize": '"yes"'}, "'seed 2.fossilize' must be true or false, and is 'yes'"),
]


def test_a_bad_seed_is_refused_with_its_file_and_number(tmp_path):
    for change, message in BAD_SEEDS:
        path = write(tmp_path, {"slot": '"block0"'}, change)
        with pytest.raises(BadSchedule, match=message) as caught:
            load_schedule(path)
        assert str(caught.value).startswith(f"{path}: ")


BAD_BYTES = [
    (b"", "the schedule has no seed; give at least one"),
    (b"seed = []", "the schedule has no seed"),
    (b"[seed]\nepoch = 1", "'seed' must be a list of tables, and is a table of 1"),
    (b"seed = [1]", "'seed 1' must be a table, and is 1"),
    (b"[[seeds]]\nepoch = 1", "there is no key 'seeds'; did you mean 'seed'"),
    (b"[[seed]", "the file is not TOML: "),
    (b"\xff\xfe\x00", "the file is not UTF-8 text"),
    (b"seed = " + b"[" * 100_000, "the file is nested too deeply"),
    (b"# " + b"x" * 1_000_000, "larger than 1,000,000 bytes"),
]


@pytest.mark.parametrize(("raw", "message"), BAD_BYTES, ids=[message for _, message in BAD_BYTES])
def test_a_file_that_is_no_schedule_at_all_is_refused(tmp_path, raw, message):
    path = tmp_path / "bad.toml"
    path.write_bytes(raw)
    with pytest.raises(BadSchedule, match=message) as caught:
        load_schedule(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_two_seeds_in_one_slot_are_refused(tmp_path):
    with pytest.raises(BadSchedule, match="seed 3: slot 'block1' is already that of seed 1; a slot takes one seed"):
        load_schedule(write(tmp_path, {}, {"slot": '"block2"'}, {"epoch": "9"}))


def test_a_file_that_is_not_there_or_no_file_is_refused(tmp_path):
    with pytest.raises(BadSchedule, match=r"none\.toml: there is no such file; give the path of a TOML file"):
        load_schedule(tmp_path / "none.toml")
    with pytest.raises(BadSchedule, match="there is no such file"):
        load_schedule(tmp_path)
    assert issubclass(BadSchedule, EsperError)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_a_file_that_may_not_be_read_is_refused(tmp_path):
    path = write(tmp_path, {})
    path.chmod(0)
    with pytest.raises(BadSchedule, match="the file cannot be read: Permission denied"):
        load_schedule(path)


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
seeds = st.builds(
    ScheduledSeed,
    epoch=st.integers(0, 2**40),
    slot=names,
    blueprint=names,
    style=st.sampled_from(Style),
    tempo=st.sampled_from(Tempo),
    alpha_target=st.sampled_from(AlphaTarget),
    fossilize=st.booleans(),
)


@given(st.lists(seeds, min_size=1, max_size=4, unique_by=lambda seed: seed.slot))
def test_a_schedule_survives_its_file(tmp_path_factory, planned):
    path = tmp_path_factory.mktemp("plans") / "plan.toml"
    schedule = Schedule(tuple(planned))
    path.write_bytes(schedule.to_toml().encode())
    assert load_schedule(path) == schedule


# At random


@pytest.mark.parametrize("horizon", [1, 25])
def test_random_schedules_fit_the_body_and_start_in_the_first_part_of_the_horizon(horizon):
    generator = torch.Generator().manual_seed(0)
    drawn = [random_schedule(CODEC, horizon, generator) for _ in range(300)]
    assert all(schedule.start(CODEC).epoch == 0 for schedule in drawn)
    assert {len(schedule.seeds) for schedule in drawn} == {1, 2, 3}
    planted = [seed for schedule in drawn for seed in schedule.seeds]
    assert {seed.epoch for seed in planted} == set(range(max(1, round(0.6 * horizon))))
    assert {seed.slot for seed in planted} == set(CODEC.slots)
    assert {seed.blueprint for seed in planted} == set(CODEC.blueprints)
    assert {seed.style for seed in planted} == set(Style)
    assert {seed.tempo for seed in planted} == set(Tempo)
    assert {seed.alpha_target for seed in planted} == set(AlphaTarget)
    assert all(seed.fossilize for seed in planted)


def test_the_same_generator_draws_the_same_schedule_and_nothing_else_is_drawn_from():
    before = torch.get_rng_state()
    drawn = [random_schedule(CODEC, 25, torch.Generator().manual_seed(seed)) for seed in (7, 7, 8)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert torch.equal(torch.get_rng_state(), before)


def test_random_schedules_plant_only_what_fits_the_slot():
    fits = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    generator = torch.Generator().manual_seed(0)
    planted = {seed for _ in range(50) for seed in random_schedule(CODEC, 25, generator, fits).seeds}
    assert {(seed.slot, seed.blueprint) for seed in planted} == set(zip(CODEC.slots, CODEC.blueprints, strict=True))
