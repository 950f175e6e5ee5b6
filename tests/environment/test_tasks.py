"""Every task can be grafted and names its settings; what a user writes wrongly is refused before any work."""

import os
import pickle
import sys
import textwrap
from dataclasses import MISSING, fields, replace
from math import inf, nan
from pathlib import Path

import pytest
import torch
from torch import nn

import esper
from esper.contracts import Action, EsperError, Op
from esper.environment import (
    DEFAULT_TASK,
    SOURCES,
    DuplicateTask,
    InvalidTask,
    InvalidTaskFile,
    Task,
    UnknownTask,
    all_tasks,
    digits,
    find_task,
    load_task,
    spirals,
    task,
    task_on,
)
from esper.environment import task_file as task_file_module
from esper.environment.data import first_rows
from esper.environment.tasks import _few, with_samples
from esper.growth import ConvShape

BLOCKS = ("block0", "block1", "block2")
TASKS = {
    "digits-pointwise": ("digits", 230, BLOCKS),
    "digits": ("digits", 1_030, BLOCKS),
    "spirals": ("spirals", 81, ("layer0", "layer1")),
    "fashion": ("fashion_mnist", 3_778, BLOCKS),
    "fashion-pointwise": ("fashion_mnist", 230, BLOCKS),
    "cifar10": ("cifar10", 6_418, BLOCKS),
    "cifar10-impaired": ("cifar10", 77, BLOCKS),
    "cifar10-deep": (
        "cifar10",
        9_346,
        tuple(slot for block in range(5) for slot in (f"block{block}.1", f"block{block}")),
    ),
}
TEXTUAL = ("shakespeare-char", "tinystories")
"""Name → data, parameters of the host, slots."""


@pytest.fixture
def registry(monkeypatch):
    """A copy, so that what a test registers is gone after it."""
    copy = {each.name: each for each in all_tasks()}
    monkeypatch.setattr(sys.modules[Task.__module__], "_REGISTRY", copy)
    return copy


def test_the_tasks_are_those_of_the_table():
    assert [each.name for each in all_tasks()] == [*TASKS, *TEXTUAL]
    assert find_task(DEFAULT_TASK).name == "digits-pointwise"


@pytest.mark.parametrize("name", TASKS)
def test_task_has_the_documented_host_slots_and_data(name):
    data, parameters, slots = TASKS[name]
    found, source = find_task(name), SOURCES[data]
    before = torch.get_rng_state()
    assert found.host_parameters() == parameters
    assert torch.equal(torch.get_rng_state(), before)
    assert (found.slots, found.classes, found.source) == (slots, source.classes, source.origin)
    assert found.horizon == 25
    assert found.summary


@pytest.mark.parametrize("name", TASKS)
def test_every_slot_of_a_task_takes_every_blueprint_that_fits(name):
    found, source = find_task(name), SOURCES[TASKS[name][0]]
    x = torch.randn(2, *source.shape)
    body = esper.graft(found.build_host(), at=found.slots, example=x, blueprints=found.blueprints)
    assert body.execution_order == found.slots
    offered = body.snapshots()[0].blueprints
    for index, slot in enumerate(found.slots):
        assert body.execute(Action(Op.GERMINATE, slot, blueprint=offered[index % len(offered)]))
    assert body(x).shape == (2, source.classes)


@pytest.mark.parametrize("name", TASKS)
def test_a_task_can_be_sent_to_another_process(name):
    assert pickle.loads(pickle.dumps(find_task(name))).name == name


def test_tasks_on_the_same_data_share_it():
    assert find_task("digits").load(None) is find_task("digits-pointwise").load(None) is digits()


def test_the_default_host_sees_no_space():
    """Shuffling the pixels of an image changes nothing, which is why it needs seeds."""
    x, host = torch.randn(2, 1, 8, 8), find_task(DEFAULT_TASK).build_host()
    shuffled = x.flatten(2)[:, :, torch.randperm(64)].view_as(x)
    assert torch.allclose(host(x), host(shuffled), atol=1e-5)


@pytest.mark.parametrize("name", ["digits-pointwise", "fashion-pointwise", "cifar10-impaired"])
def test_a_pointwise_host_has_1x1_convolutions_only(name):
    kernels = {part.kernel_size for part in find_task(name).build_host().modules() if isinstance(part, nn.Conv2d)}
    assert kernels == {(1, 1)}


def test_cifar_is_augmented_and_nothing_else():
    assert {each.name for each in all_tasks() if each.augment} == {"cifar10", "cifar10-impaired", "cifar10-deep"}


def test_batch_size_is_a_setting_of_the_task(tmp_path):
    """R4-M17: batch size is a task setting: every task states one, nothing fills it in, and what is given is kept."""
    (field,) = (each for each in fields(Task) if each.name == "batch_size")
    assert field.default is MISSING
    assert {each.name: each.batch_size for each in all_tasks()} == {
        name: 64 if data in {"digits", "spirals"} else 128 for name, (data, _, _) in TASKS.items()
    } | dict.fromkeys(TEXTUAL, 32)
    assert load_task(write(tmp_path, batch_size="7")).batch_size == 7
    with pytest.raises(InvalidTaskFile, match=r"lacks 'batch_size' \(an integer\)"):
        load_task(write(tmp_path, batch_size=None))


# A task made in Python

BAD_VALUES = [
    ("name", "", "cannot be named ''"),
    ("name", "../up", "cannot be named '../up'"),
    ("name", "a" * 65, "up to 64 letters"),
    ("name", "mine.toml", "without the ending .toml"),
    ("slots", (), "name at least one"),
    ("slots", ("block0", "block0"), "each once"),
    ("blueprints", (), "name at least one"),
    ("blueprints", ("norm", "norm"), "each once"),
    ("classes", 1, "from 2 to"),
    ("horizon", 0, "from 1 to 10,000"),
    ("horizon", 10_001, "from 1 to 10,000"),
    ("horizon", 25.0, "give an integer"),
    ("horizon", True, "give an integer"),
    ("batch_size", 0, "from 1 to 65,536"),
    ("batch_size", -64, "from 1 to 65,536"),
    ("batch_size", 70_000, "from 1 to 65,536"),
    ("learning_rate", 0.0, "give a number from"),
    ("learning_rate", nan, "give a number from"),
    ("learning_rate", inf, "give a number from"),
    ("learning_rate", "0.1", "give a number from"),
    ("seed_learning_rate", -0.1, "give a number from"),
    ("max_gradient_norm", 0.0, "give a number from"),
    ("max_gradient_norm", inf, "give a number from"),
    ("cooldown_share", -0.1, "cooldown_share -0.1; give a number from 0.0 to 1.0"),
    ("cooldown_share", 1.1, "give a number from 0.0 to 1.0"),
    ("cooldown_share", nan, "give a number from 0.0 to 1.0"),
    ("cooldown_share", True, "give a number from 0.0 to 1.0"),
    ("rent", -0.1, "rent -0.1; give a number from 0.0 to 1.0"),
    ("rent", nan, "give a number from 0.0 to 1.0"),
    ("optimizer", "lion", "optimizer 'lion'; give one of adam, adamw, sgd"),
]


@pytest.mark.parametrize(("field", "value", "message"), BAD_VALUES)
def test_a_setting_out_of_range_is_refused(field, value, message):
    with pytest.raises(InvalidTask, match=message):
        replace(find_task("digits"), **{field: value})


def test_a_task_on_a_part_of_its_data_is_the_same_task_otherwise():
    whole = find_task("spirals")
    part = with_samples(whole, 100)
    assert replace(part, load=whole.load) == whole
    splits = part.load(None)
    assert [len(each.x) for each in (splits.train, splits.evaluation, splits.test)] == [100, 25, 600]
    assert torch.equal(splits.train.x, spirals().train.x[:100])
    assert part.load(None) is splits is with_samples(whole, 100).load(None)
    assert pickle.loads(pickle.dumps(part)).load(None).train.y.tolist() == splits.train.y.tolist()


@pytest.mark.parametrize("samples", [1, 0, -5, 10_000_001])
def test_a_part_that_cannot_be_is_refused(samples):
    message = f"task 'spirals' has samples {samples}; give an integer from 2 to 10,000,000"
    with pytest.raises(InvalidTask, match=message):
        with_samples(find_task("spirals"), samples)


def test_only_the_clothes_seen_by_1x1_convolutions_are_few():
    """2,000 rows of the hub's set; loading it is not needed to see that."""
    assert {each.name: each.load.args[1] for each in all_tasks() if each.load.func is _few} == {
        "fashion-pointwise": 2_000
    }


def test_a_registered_task_is_found_and_listed(registry):
    @task("my-digits")
    def mine() -> Task:
        return task_on(SOURCES["digits"], ConvShape((2, 2)), "my-digits", "mine")

    assert find_task("my-digits").slots == ("block0", "block1")
    assert all_tasks()[-1] is find_task("my-digits")
    assert mine().name == "my-digits"


def test_a_name_is_registered_once_and_is_the_task_s_own(registry):
    with pytest.raises(DuplicateTask, match="a task 'digits' exists already"):
        task("digits")(lambda: find_task("digits"))
    with pytest.raises(InvalidTask, match="returned a task named 'digits'"):
        task("digits-2")(lambda: find_task("digits"))
    assert "digits-2" not in registry


def test_an_unknown_task_is_answered_with_the_nearest_name():
    with pytest.raises(UnknownTask, match="no task 'digits-pointwize'; did you mean 'digits-pointwise'"):
        find_task("digits-pointwize")
    with pytest.raises(UnknownTask, match="known: digits-pointwise, digits, spirals"):
        find_task("zzz")


# A task in a TOML file

GOOD = {
    "name": '"mine"',
    "data": '"digits"',
    "slots": '["block0", "block1.0"]',
    "horizon": "30",
    "batch_size": "32",
    "learning_rate": "0.02",
    "seed_learning_rate": "1e-3",
}
CONV = {"kind": '"conv"', "channels": "[4, 6]"}
DENSE = {"kind": '"dense"', "widths": "[5, 7]"}


def write(folder: Path, host: dict[str, str] | None = CONV, **changes: str | None) -> Path:
    """A good file with some lines changed, or left out where the change is None."""
    lines = [f"{key} = {value}" for key, value in {**GOOD, **changes}.items() if value is not None]
    if host is not None:
        lines += ["[host]", *(f"{key} = {value}" for key, value in host.items())]
    path = folder / "mine.toml"
    path.write_text("\n".join(lines))
    return path


def test_a_file_selects_data_host_slots_and_settings(tmp_path):
    host = {**CONV, "kernel": "1", "norm": '"none"', "pool_after": "[0]"}
    extras = {
        "summary": '"my own"',
        "blueprints": '["norm", "conv_light"]',
        "augment": "true",
        "max_gradient_norm": "2",
        "cooldown_share": "1",
        "samples": "200",
        "optimizer": '"sgd"',
        "rent": "0.2",
    }
    path = write(tmp_path, host, **extras)
    before = torch.get_rng_state()
    found = find_task(str(path))
    assert torch.equal(torch.get_rng_state(), before)
    assert found == replace(
        task_on(SOURCES["digits"], ConvShape((4, 6), kernel=1, norm="none", pool_after=(0,)), "mine", "my own"),
        load=found.load,
        build_host=found.build_host,
        slots=("block0", "block1.0"),
        blueprints=("norm", "conv_light"),
        horizon=30,
        batch_size=32,
        learning_rate=0.02,
        seed_learning_rate=0.001,
        augment=True,
        max_gradient_norm=2.0,
        cooldown_share=1.0,
        optimizer="sgd",
        rent=0.2,
    )
    assert found.load(None) is first_rows(digits(), 200)
    assert found.host_parameters() == (4 + 4) + (24 + 6) + 70
    assert found.build_host()[0][3](torch.zeros(1, 4, 8, 8)).shape == (1, 4, 4, 4)
    assert pickle.loads(pickle.dumps(found)) is not None


def test_a_file_that_says_no_more_has_all_data_and_the_usual_cooldown(tmp_path):
    found = load_task(write(tmp_path))
    assert found.load(None) is digits()
    assert found.cooldown_share == 0.4


def test_a_file_shapes_blocks_and_layers(tmp_path):
    words = {
        "kernels": "[1, 5]",
        "residual": "true",
        "activation": '"gelu"',
        "pooling": '"average"',
        "pool_after": "[0]",
    }
    host = load_task(write(tmp_path, {**CONV, **words, "channels": "[4, 4]", "channels_last": "true"})).build_host()
    assert [type(part).__name__ for part in host.block0] == ["Conv2d", "ChannelNorm", "GELU", "AvgPool2d"]
    assert [type(part).__name__ for part in host.block1[0]] == ["Conv2d", "ChannelNorm", "GELU"]
    assert host.block1[0][0].weight.is_contiguous(memory_format=torch.channels_last)
    dense = {**DENSE, "widths": "[5, 5]", "activation": '"tanh"', "residual": "true"}
    host = load_task(write(tmp_path, dense, **{**SPIRALS, "slots": '["layer1"]'})).build_host()
    assert type(host.layer1).__name__ == "Residual"
    assert type(host.layer0[1]) is nn.Tanh


def test_a_file_with_a_dense_host_is_read(tmp_path):
    found = load_task(write(tmp_path, DENSE, data='"spirals"', slots='["layer1"]', learning_rate="1"))
    assert found.host_parameters() == 3 * 5 + 6 * 7 + 8 * 3
    assert found.learning_rate == 1.0
    assert type(found.learning_rate) is float


def test_the_example_in_the_documentation_is_a_good_file(tmp_path):
    text = (task_file_module.__doc__ or "").split("\n\n", 1)[1].rsplit("\n\n", 1)[0]
    path = tmp_path / "example.toml"
    path.write_text(textwrap.dedent(text))
    assert load_task(path).name == "digits-wide"


def test_a_file_for_a_hub_set_is_checked_without_the_data(tmp_path):
    assert load_task(write(tmp_path, data='"cifar10"')).source == SOURCES["cifar10"].origin


SPIRALS = {"data": '"spirals"', "slots": '["layer0"]'}
BAD_FILES = [
    # keys
    ({"bach_size": "3"}, CONV, "there is no key 'bach_size'; did you mean 'batch_size'"),
    ({"code": '"import os"'}, CONV, "there is no key 'code'; known: name, host"),
    ({}, {**CONV, "kernal": "3"}, "there is no key 'host.kernal'; did you mean 'kernel'"),
    ({}, {**CONV, "widths": "[3]"}, "there is no key 'host.widths'"),
    ({"name": None, "slots": None}, CONV, r"it lacks 'name' \(a string\), 'slots' \(a list of strings\)"),
    ({}, None, r"lacks 'host' \(a table\)"),
    ({}, {"kind": '"conv"'}, r"lacks 'host.channels' \(a list of integers\)"),
    ({}, {"channels": "[3]"}, "'host.kind' must be one of conv, dense, gpt, and is None"),
    # types
    ({"name": "3"}, CONV, "'name' must be a string, and is 3"),
    ({"data": "1979-05-27"}, CONV, "'data' must be a string, and is datetime.date"),
    ({"slots": '"block0"'}, CONV, "'slots' must be a list of strings, and is 'block0'"),
    ({"slots": "[0, 1]"}, CONV, "'slots' must be a list of strings, and is a list of 2"),
    ({"slots": '["block0", ["block1"]]'}, CONV, "'slots' must be a list of strings"),
    ({"horizon": "25.0"}, CONV, "'horizon' must be an integer, and is 25.0"),
    ({"horizon": "true"}, CONV, "'horizon' must be an integer, and is True"),
    ({"horizon": f"0x{'f' * 5000}"}, CONV, "'horizon' must be an integer, and is an integer of more than 64 bits"),
    ({"learning_rate": '"0.1"'}, CONV, "'learning_rate' must be a number, and is '0.1'"),
    ({"learning_rate": "true"}, CONV, "'learning_rate' must be a number, and is True"),
    ({"augment": "1"}, CONV, "'augment' must be true or false, and is 1"),
    ({"host ": '"conv"'}, None, "'host' must be a table, and is 'conv'"),
    ({"summary": "{}"}, CONV, "'summary' must be a string, and is a table of 0"),
    ({"batch_size": f"'{'x' * 500}'"}, CONV, r"and is 'x{59}\.\.\.$"),
    ({}, {**CONV, "channels": "[4, 8.0]"}, "'host.channels' must be a list of integers"),
    ({}, {**CONV, "pool_after": "[true]"}, "'host.pool_after' must be a list of integers"),
    # ranges
    ({"name": '"no spaces"'}, CONV, "a task cannot be named 'no spaces'"),
    ({"horizon": "0"}, CONV, "has horizon 0; give an integer from 1 to 10,000"),
    ({"batch_size": "0"}, CONV, "has batch_size 0"),
    ({"learning_rate": "nan"}, CONV, "has learning_rate nan"),
    ({"seed_learning_rate": "inf"}, CONV, "has seed_learning_rate inf"),
    ({"max_gradient_norm": "-1"}, CONV, "has max_gradient_norm -1.0"),
    ({"cooldown_share": "1.5"}, CONV, "has cooldown_share 1.5; give a number from 0.0 to 1.0"),
    ({"cooldown_share": '"late"'}, CONV, "'cooldown_share' must be a number, and is 'late'"),
    ({"samples": "1"}, CONV, "has samples 1; give an integer from 2 to 10,000,000"),
    ({"samples": "2.0"}, CONV, "'samples' must be an integer, and is 2.0"),
    ({"samples": "true"}, CONV, "'samples' must be an integer, and is True"),
    ({"slots": "[]"}, CONV, r"has slots \[\]"),
    ({"blueprints": "[]"}, CONV, r"has blueprints \[\]"),
    ({}, {**CONV, "channels": "[]"}, "'host.channels' must be 1 to 64 numbers"),
    ({}, {**CONV, "channels": "[0]"}, "each from 1 to 1,024"),
    ({}, {**CONV, "channels": "[5000]"}, "each from 1 to 1,024"),
    ({}, {**CONV, "channels": f"{[1] * 65}"}, "'host.channels' must be 1 to 64 numbers"),
    (
        {},
        {**CONV, "channels": f"{[1024] * 20}", "kernel": "15"},
        r"host has 4,\d+,\d+,\d+ parameters; at most 50,000,000",
    ),
    ({}, {**CONV, "kernel": "2"}, "'host.kernel' is 2; give an odd number from 1 to 15"),
    ({}, {**CONV, "kernel": "-1"}, "'host.kernel' is -1"),
    ({}, {**CONV, "kernels": "[3, 4]"}, "'host.kernels' is 4; give an odd number from 1 to 15"),
    ({}, {**CONV, "kernels": "[3]"}, "'host.kernels' names 1 kernels for 2 blocks; name one for each"),
    ({}, {**CONV, "activation": '"rellu"'}, "'host.activation' is 'rellu'; did you mean 'relu'"),
    ({}, {**CONV, "pooling": '"mean"'}, "'host.pooling' is 'mean'; known: max, average"),
    ({}, {**CONV, "residual": "1"}, "'host.residual' must be true or false, and is 1"),
    (SPIRALS, {**DENSE, "activation": '"gellu"'}, "'host.activation' is 'gellu'; did you mean 'gelu'"),
    ({"optimizer": '"adm"'}, CONV, "'optimizer' is 'adm'; did you mean 'adam'"),
    ({"rent": "1.5"}, CONV, "has rent 1.5; give a number from 0.0 to 1.0"),
    ({}, {**CONV, "norm": '"grup"'}, "'host.norm' is 'grup'; did you mean 'group'"),
    ({}, {**CONV, "pool_after": "[2]"}, "'host.pool_after' names blocks by index, each once, from 0 to 1"),
    ({}, {**CONV, "pool_after": "[0, 0]"}, "each once"),
    (SPIRALS, {**DENSE, "widths": "[]"}, "'host.widths' must be 1 to 64 numbers"),
    # what does not fit together
    ({"data": '"digit"'}, CONV, "there is no data named 'digit'; did you mean 'digits'"),
    ({"data": '"/etc/passwd"'}, CONV, "there is no data named '/etc/passwd'; known: digits"),
    ({"slots": '["block9"]'}, CONV, "no submodule 'block9'; did you mean 'block"),
    (
        {"slots": '["head"]', "blueprints": '["conv_light"]'},
        CONV,
        "which has dense features; give at least one of norm",
    ),
    ({"blueprints": '["conv_hevy"]'}, CONV, "no blueprint 'conv_hevy' for cnn hosts; did you mean 'conv_heavy'"),
    ({}, {"kind": '"transformer"'}, "'host.kind' must be one of conv, dense, gpt, and is 'transformer'"),
    ({}, DENSE, r"samples of shape \(1, 8, 8\); give it a host of kind 'conv'"),
    (SPIRALS, CONV, r"samples of shape \(2,\); give it a host of kind 'dense'"),
    ({**SPIRALS, "augment": "true"}, DENSE, "'spirals' has no images to augment"),
    (
        {},
        {**CONV, "channels": "[1, 1, 1, 1]", "pool_after": "[0, 1, 2, 3]"},
        r"4 poolings leave nothing of shape \(1, 8, 8\); at most 3",
    ),
]


@pytest.mark.parametrize(("changes", "host", "message"), BAD_FILES)
def test_a_bad_file_is_refused_with_its_path_and_its_mistake(tmp_path, changes, host, message):
    path = write(tmp_path, host, **changes)
    with pytest.raises(InvalidTaskFile, match=message) as caught:
        load_task(path)
    assert str(caught.value).startswith(f"{path}: ")


BAD_BYTES = [
    (b"name = ", "the file is not TOML: "),
    (b"horizon = 1\nhorizon = 2", "the file is not TOML: "),
    (b"horizon = " + b"9" * 5_000, "the file is not TOML: "),
    (b"\xff\xfe\x00", "the file is not UTF-8 text"),
    (b"slots = " + b"[" * 100_000, "the file is nested too deeply"),
    (b"# " + b"x" * 1_000_000, "larger than 1,000,000 bytes"),
    (b"", "it lacks 'name'"),
]


@pytest.mark.parametrize(("raw", "message"), BAD_BYTES, ids=[message for _, message in BAD_BYTES])
def test_a_file_that_is_no_task_at_all_is_refused(tmp_path, raw, message):
    path = tmp_path / "bad.toml"
    path.write_bytes(raw)
    with pytest.raises(InvalidTaskFile, match=message):
        find_task(str(path))


def test_a_file_that_is_not_there_or_no_file_is_refused(tmp_path):
    with pytest.raises(InvalidTaskFile, match=r"none\.toml: there is no such file"):
        find_task(str(tmp_path / "none.toml"))
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(InvalidTaskFile, match="there is no such file"):
        find_task(str(tmp_path / "folder.toml"))
    with pytest.raises(InvalidTaskFile, match="cannot be read"):
        find_task("x" * 5_000 + ".toml")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_a_file_that_may_not_be_read_is_refused(tmp_path):
    path = write(tmp_path)
    path.chmod(0)
    with pytest.raises(InvalidTaskFile, match="the file cannot be read: Permission denied"):
        load_task(path)


def test_every_mistake_is_an_esper_error():
    for error in (InvalidTask, InvalidTaskFile, UnknownTask, DuplicateTask):
        assert issubclass(error, EsperError)


def test_the_task_in_the_docs_loads(tmp_path: Path):
    text = (Path(__file__).parents[2] / "docs" / "environment.md").read_text()
    path = tmp_path / "my-digits.toml"
    path.write_text(text.split("```toml\n")[1].split("```")[0])
    assert find_task(str(path)).slots == ("block0", "block1")
