"""Settings of a run: complete on disk, strict when read."""

from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esper.contracts import EsperError
from esper.environment import find_task
from esper.rl import RLError
from esper.runs import PRESETS, InvalidConfig, Player, RunDirectory, RunState, TrainConfig, find_preset, load_config
from esper.runs.config import REMOVED
from esper.telemetry import Level, TelemetryConfig
from tests.runs.worlds import small_config, trained


def written(tmp_path, text):
    path = tmp_path / "config.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_survives_the_file_in_every_setting(tmp_path, name):
    config = find_preset(name)
    again = load_config(written(tmp_path, config.to_toml()))
    assert again == config


@given(
    st.integers(1, 10**6),
    st.floats(0, 1),
    st.sampled_from(Level),
    st.sampled_from([0.5, float("inf")]),
    st.text(max_size=20),
)
@settings(max_examples=40, deadline=None)
def test_any_settings_survive_the_file(tmp_path_factory, rounds, rent, level, target_kl, address):
    telemetry = TelemetryConfig(level=level, sinks=("tensorboard",))
    config = TrainConfig(rounds=rounds, rent=rent, telemetry=telemetry, ray_address=address)
    config = replace(config, ppo=replace(config.ppo, target_kl=target_kl, head_entropy={"op": 2.0}))
    assert load_config(written(tmp_path_factory.mktemp("config"), config.to_toml())) == config


def test_the_file_names_every_setting(tmp_path):
    text = TrainConfig(rent=0.1).to_toml()
    for name in asdict(TrainConfig()):
        assert name in text


def test_a_file_may_leave_settings_to_the_preset(tmp_path):
    config = load_config(written(tmp_path, "rounds = 5\n[ppo]\nclip = 0.1\n"), find_preset("quick"))
    quick = find_preset("quick")
    assert config == replace(quick, rounds=5, ppo=replace(quick.ppo, clip=0.1))


BAD = [
    ("ronds = 3", r"there is no key 'ronds'; did you mean 'rounds'\?"),
    ("[ppo]\nclipp = 0.1", r"there is no key 'ppo.clipp'; did you mean 'clip'\?"),
    ("rounds = 'many'", "'rounds' must be an integer, and is 'many'"),
    ("rounds = true", "'rounds' must be an integer, and is True"),
    ("task = 'digits'", "'task' must be a list of strings, and is 'digits'"),
    ("[telemetry]\nlevel = 'brif'", r"'telemetry.level' is 'brif'; did you mean 'brief'\?"),
    ("[telemetry]\nlevel = 3", "'telemetry.level' is 3; known: off, brief, normal, detailed"),
    ("[telemetry]\nmegabytes = -1.0", "telemetry.megabytes = -1.0; give a value from 0"),
    ("backend = 'spark'", "'backend' is 'spark'; known: serial, process, ray"),
    ("ppo = 3", "'ppo' must be a table, and is 3"),
    ("[ppo]\nlearning_rate = 0.0", "ppo.learning_rate = 0.0; give a value from"),
    ("[ppo]\nhead_entropy = {op = -1.0}", "head_entropy of 'op' = -1.0"),
    ("rounds = 0", "rounds = 0; give a value from 1"),
    ("reward = 'twins'", "twin"),
    ("task = []", "task names nothing"),
    ("[network]\nmemory = 0", "memory = 0"),
    ("rounds = ", "is not TOML"),
]


def test_a_wrong_file_is_refused_with_the_way_out(tmp_path):
    for text, message in BAD:
        with pytest.raises(EsperError, match=message):
            load_config(written(tmp_path, text))


@pytest.mark.parametrize("name", REMOVED)
def test_a_file_with_a_removed_setting_is_refused_and_good_once_the_line_is_deleted(tmp_path, name):
    text = small_config(tmp_path).to_toml()
    older = f"{name} = 0.95\n{text}"
    with pytest.raises(InvalidConfig, match=rf"config.toml: {name} = 0.95 is of an older version .*; delete the line"):
        load_config(written(tmp_path, older))
    kept = "".join(line for line in older.splitlines(keepends=True) if not line.startswith(name))
    assert load_config(written(tmp_path, kept)) == load_config(written(tmp_path, text))


def test_integers_are_good_where_numbers_are_asked_for(tmp_path):
    assert load_config(written(tmp_path, "rent = 0\n")).rent == 0


def test_a_missing_file_is_said():
    with pytest.raises(InvalidConfig, match="no such file"):
        load_config(Path("/nowhere/config.toml"))


LATER = [
    ({"task": ("digits-pointwis",)}, "did you mean 'digits-pointwise'"),
    ({"device": "cuda:99"}, "cannot be used here"),
    ({"task": ("cifar10",), "data_dir": "/nowhere"}, "."),
]


@pytest.mark.parametrize(("change", "message"), LATER)
def test_what_would_fail_later_is_found_before_the_first_epoch(change, message):
    with pytest.raises(EsperError, match=message):
        replace(TrainConfig(), **change).check()


def test_a_factor_for_a_head_that_does_not_exist_is_found_before_the_first_epoch():
    config = TrainConfig()
    with pytest.raises(RLError, match="head_entropy names 'blueprnt'"):
        replace(config, ppo=replace(config.ppo, head_entropy={"blueprnt": 1.0})).check()


def test_presets_name_real_tasks():
    for config in PRESETS.values():
        assert [find_task(name).name for name in config.task] == list(config.task)


@pytest.mark.parametrize("rent", [0.0, 0.08, 0.5, 1.0])
def test_every_rent_that_is_allowed_can_be_played(tmp_path, rent):
    config = small_config(tmp_path, rent=rent)
    config.check()
    config.game().build_env(config.task[0]).reset(seed=0)


def test_the_episodes_of_a_round_can_follow_the_workers_and_are_then_the_same_everywhere(tmp_path):
    config = TrainConfig(episodes=0, workers=64)
    assert config.settled().episodes == 64
    assert replace(config, workers=2).settled().episodes == 16
    assert replace(config, backend="serial", workers=0).settled().episodes == 16
    assert RunDirectory.create(tmp_path / "run", config).config().episodes == 64
    with pytest.raises(InvalidConfig, match="say with workers how many ray shall have"):
        replace(config, backend="ray", workers=0).settled()


def test_lower_precision_and_compiling_reach_the_hosts_of_a_run(tmp_path):
    """What a seed learns in lower precision is told in tests/environment."""
    config = small_config(tmp_path, precision="bfloat16", compile=True)
    env = Player(config.game()).env(config.task[0])
    assert (env.world.compute.precision, env.world.compute.compile) == ("bfloat16", True)
    with pytest.raises(EsperError, match="precision is 'float8'; give one of float32, bfloat16"):
        replace(config, precision="float8").check()
    low, _ = trained(tmp_path / "low", replace(config, compile=False, rounds=1))
    assert low.state() is RunState.FINISHED
