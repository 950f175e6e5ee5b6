"""Files that are written whole, read without running anything, and checked before anything is changed."""

import io
import os
import pickle
import random
import zipfile
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

import pytest
import torch
from torch import Tensor

import esper.rl.checkpoint as module
from esper.rl import (
    BadCheckpoint,
    Checkpoint,
    Learner,
    OldCheckpoint,
    PPOConfig,
    RLError,
    VectorConfig,
    VectorNetwork,
    export_checkpoint,
    load_checkpoint,
    require_same_schema,
    restore,
    save_checkpoint,
    upgrade_checkpoint,
)
from tests.rl.cases import INPUTS, SIZES, STEADY, USES, assert_same, everything_of, rollout, small_network

CONFIG = replace(STEADY, minibatches=2)


def trained(seed: int = 0, config: PPOConfig = CONFIG) -> Learner:
    learner = Learner(small_network(seed), config, seed)
    learner.update(rollout(learner.network, seed=seed))
    return learner


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("checkpoint") / "learner.pt"
    save_checkpoint(path, trained(), {"note": "hello", "list": [1, 2.5, None, True, ("a",)], "tensor": torch.arange(3)})
    return path.read_bytes()


@pytest.fixture
def saved(tmp_path, written) -> Path:
    path = tmp_path / "learner.pt"
    path.write_bytes(written)
    return path


def changed(path: Path, change) -> Path:
    """The same file after `change` was made to its dictionary."""
    raw = torch.load(path, weights_only=True)
    torch.save(change(raw) or raw, path)
    return path


def test_restored_learner_goes_on_bit_for_bit(saved):
    """R0-P8, C-rl: weights, optimiser, scale, counters, random numbers, and so the next update."""
    straight, resumed = trained(), Learner(small_network(5), CONFIG, seed=77)
    restore(load_checkpoint(saved), resumed)
    assert_same(everything_of(resumed), everything_of(straight))
    one, other = (learner.update(rollout(learner.network, seed=3)) for learner in (straight, resumed))
    assert one == other
    assert_same(everything_of(resumed), everything_of(straight))


def test_save_and_load_are_a_symmetric_pair(saved, tmp_path):
    """R0-P8: what was read is what was given, field by field, and a second round changes nothing."""
    learner, first = trained(), load_checkpoint(saved)
    assert first.extra["note"] == "hello"
    assert first.extra["list"] == [1, 2.5, None, True, ("a",)]
    assert torch.equal(first.extra["tensor"], torch.arange(3))
    assert first.schema == learner.network.schema()
    assert first.config == vars(CONFIG)
    again = Learner(small_network(9), CONFIG)
    restore(first, again)
    save_checkpoint(tmp_path / "again.pt", again, first.extra)
    second = load_checkpoint(tmp_path / "again.pt")
    assert vars(first).keys() == vars(second).keys()
    for name in vars(first):
        assert same(getattr(first, name), getattr(second, name)), name
    assert set(vars(first)) == set(Checkpoint.__dataclass_fields__)


def same(one, other) -> bool:
    if isinstance(one, Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def test_an_exported_checkpoint_has_the_same_weights_and_a_fresh_optimiser(saved, tmp_path):
    export_checkpoint(saved, tmp_path / "small.pt")
    whole, small = load_checkpoint(saved), load_checkpoint(tmp_path / "small.pt")
    assert same(whole.weights, small.weights)
    assert same(whole.schema, small.schema)
    learner = trained(seed=1)
    restore(small, learner)
    assert_same(dict(learner.network.state_dict()), whole.weights)
    assert not learner.optimizer.state


def test_restored_learner_shares_no_memory_with_the_checkpoint(saved):
    """R2-MED1, R4-M6: so what was read can be freed, or changed, at once."""
    checkpoint, learner = load_checkpoint(saved), Learner(small_network(5), CONFIG)
    restore(checkpoint, learner)
    before = everything_of(learner)
    for tensor in [
        checkpoint.generator,
        *checkpoint.weights.values(),
        *(part for each in checkpoint.optimiser["state"].values() for part in each.values()),
    ]:
        tensor.fill_(0)
    assert_same(everything_of(learner), before)


def test_learner_keeps_its_own_configuration(saved):
    """R0-P8: only what was learned comes from the file."""
    learner = Learner(small_network(), replace(CONFIG, weight_decay=0.5, learning_rate=0.5))
    restore(load_checkpoint(saved), learner)
    assert [group["weight_decay"] for group in learner.optimizer.param_groups] == [0.0, 0.5]
    assert learner.config.learning_rate == 0.5


class Payload:
    """Writes a file when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return os.system, (f"touch {self.target}",)


@pytest.mark.parametrize("kind", ["raw pickle", "torch file", "member", "legacy torch file"])
def test_malicious_pickle_is_refused_and_does_not_run(tmp_path, saved, kind):
    """R0-P7: as a plain pickle, as a file of PyTorch, and hidden in a real checkpoint."""
    ran, path = tmp_path / "ran", tmp_path / "evil.pt"
    if kind == "raw pickle":
        path.write_bytes(pickle.dumps(Payload(ran)))
    elif kind == "torch file":
        torch.save(Payload(ran), path)
    elif kind == "legacy torch file":
        torch.save(Payload(ran), path, _use_new_zipfile_serialization=False)
    else:
        raw = torch.load(saved, weights_only=True)
        torch.save({**raw, "extra": {"seats": [Payload(ran)]}}, path)
    for read in (load_checkpoint, upgrade_checkpoint):
        with pytest.raises(BadCheckpoint, match=r"evil\.pt cannot be read as a checkpoint"):
            read(path)
    assert not ran.exists()
    if kind == "torch file":
        # The payload is alive: a careless reader runs it.
        torch.load(path, weights_only=False)
        assert ran.exists()


def test_truncated_file_is_refused_at_every_length(saved, tmp_path):
    """R0-P7."""
    whole, path = saved.read_bytes(), tmp_path / "part.pt"
    for share in (0.0, 0.01, 0.3, 0.7, 0.99):
        path.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(BadCheckpoint, match=r"part\.pt cannot be read as a checkpoint"):
            load_checkpoint(path)


def test_damaged_files_are_refused_in_one_way_whatever_the_damage(saved, tmp_path):
    """R0-P7: bytes at random, and archives that are whole around a pickle that is not."""
    path, chance = tmp_path / "damaged.pt", random.Random(0)
    path.write_bytes(chance.randbytes(1000))
    with pytest.raises(BadCheckpoint, match=r"damaged\.pt cannot be read as a checkpoint"):
        load_checkpoint(path)
    with zipfile.ZipFile(saved) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    (pickled,) = (name for name in members if name.endswith("data.pkl"))
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, b"." if name == pickled else content)
    with pytest.raises(BadCheckpoint, match=r"damaged\.pt cannot be read as a checkpoint"):
        load_checkpoint(path)
    refused = 0
    for _ in range(60):
        bytes_ = bytearray(members[pickled])
        for _ in range(chance.randint(1, 3)):
            bytes_[chance.randrange(len(bytes_))] = chance.randrange(256)
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in members.items():
                archive.writestr(name, bytes(bytes_) if name == pickled else content)
        try:
            load_checkpoint(path)
        except BadCheckpoint:
            refused += 1
    assert refused > 40


def test_archive_that_unpacks_to_too_much_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    """R0-P7: a zip bomb."""
    assert module.MAX_BYTES == 1 << 30
    monkeypatch.setattr(module, "MAX_BYTES", 1 << 20)
    path = tmp_path / "bomb.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(2 << 20))
    assert path.stat().st_size < 1 << 13
    with pytest.raises(BadCheckpoint, match=r"unpacks to 2,097,152 bytes; a checkpoint has at most 1,048,576"):
        load_checkpoint(path)


def test_missing_file_and_directory_are_said_so(tmp_path):
    with pytest.raises(BadCheckpoint, match=r"there is no file .*nothing\.pt; give the path of a checkpoint"):
        load_checkpoint(tmp_path / "nothing.pt")
    with pytest.raises(BadCheckpoint, match="cannot be read as a checkpoint"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize(
    "content", [[1, 2], {"weights": {}}, {"format": "other", "version": 1}, {"format": "esper-learner", "version": "1"}]
)
def test_other_files_of_pytorch_are_told_apart(tmp_path, content):
    """R1-M4, R2-concern3."""
    torch.save(content, tmp_path / "other.pt")
    with pytest.raises(BadCheckpoint, match=r"other\.pt is a file of PyTorch, but no checkpoint of a learner"):
        load_checkpoint(tmp_path / "other.pt")


def test_version_that_is_too_new_is_refused(saved):
    """R1-M4, R2-concern3."""
    changed(saved, lambda raw: raw | {"version": 99})
    for read in (load_checkpoint, upgrade_checkpoint):
        with pytest.raises(BadCheckpoint, match="has format version 99; this program knows 1, 2; use the program that"):
            read(saved)


@pytest.fixture
def next_version(monkeypatch):
    """A program whose files have a counter by another name, and that can upgrade files of the version before."""

    def upgrade(raw):
        counters = dict(raw["counters"])
        return {**raw, "counters": {"updates": counters.pop("rounds"), **counters}}

    monkeypatch.setattr(module, "VERSION", module.VERSION + 1)
    monkeypatch.setitem(module.UPGRADES, module.VERSION - 1, upgrade)


def to_version_before(raw):
    counters = dict(raw["counters"])
    return {**raw, "version": module.VERSION - 1, "counters": {"rounds": counters.pop("updates"), **counters}}


@pytest.mark.usefixtures("next_version")
def test_older_version_is_refused_with_the_command_that_upgrades_it(saved):
    """R1-M4, R2-concern3."""
    changed(saved, to_version_before)
    with pytest.raises(
        OldCheckpoint, match=rf"version 2 and this program reads 3; run 'esper checkpoint upgrade {saved}'"
    ):
        load_checkpoint(saved)


@pytest.mark.usefixtures("next_version")
def test_upgraded_file_is_read_like_a_new_one(saved):
    """R1-M4, R2-concern3."""
    changed(saved, to_version_before)
    assert upgrade_checkpoint(saved) == 2
    checkpoint, learner = load_checkpoint(saved), Learner(small_network(5), CONFIG)
    restore(checkpoint, learner)
    assert_same(everything_of(learner), everything_of(trained()))
    stamp = saved.stat().st_mtime_ns
    assert upgrade_checkpoint(saved) == 3
    assert saved.stat().st_mtime_ns == stamp


@pytest.mark.usefixtures("next_version")
def test_upgrade_that_does_not_give_a_checkpoint_leaves_the_file(saved, monkeypatch):
    changed(saved, to_version_before)
    before = saved.read_bytes()
    monkeypatch.setitem(module.UPGRADES, 2, lambda raw: raw)
    with pytest.raises(BadCheckpoint, match=r"has counters .*; expected the fields updates, optimiser_steps"):
        upgrade_checkpoint(saved)
    assert saved.read_bytes() == before


def test_a_file_of_the_first_version_is_upgraded_to_one_without_rollouts(saved):
    changed(saved, lambda raw: {name: value for name, value in raw.items() if name != "past"} | {"version": 1})
    with pytest.raises(OldCheckpoint, match="version 1 and this program reads 2"):
        load_checkpoint(saved)
    assert upgrade_checkpoint(saved) == 1
    assert load_checkpoint(saved).past == []


@pytest.fixture
def reusing(tmp_path) -> tuple[Path, Learner]:
    """A learner that has two rollouts for later, and its file."""
    learner = Learner(small_network(), replace(CONFIG, reuse=3))
    for seed in range(3):
        learner.update(rollout(learner.network, seed=seed))
    save_checkpoint(tmp_path / "learner.pt", learner, {})
    return tmp_path / "learner.pt", learner


def test_rollouts_for_later_are_kept_so_that_learning_goes_on_bit_for_bit(reusing):
    path, straight = reusing
    resumed = Learner(small_network(5), straight.config, seed=77)
    restore(load_checkpoint(path), resumed)
    assert len(resumed.past) == 2
    one, other = (learner.update(rollout(learner.network, seed=3)) for learner in (straight, resumed))
    assert one == other
    assert_same(everything_of(resumed), everything_of(straight))


def test_a_learner_takes_no_more_rollouts_than_it_will_use(reusing):
    path, _ = reusing
    for reuse in (1, 2, 3, 4):
        learner = Learner(small_network(), replace(CONFIG, reuse=reuse))
        restore(load_checkpoint(path), learner)
        assert len(learner.past) == min(reuse - 1, 2)


def test_export_leaves_rollouts_out(reusing, tmp_path):
    path, _ = reusing
    export_checkpoint(path, tmp_path / "small.pt")
    assert load_checkpoint(tmp_path / "small.pt").past == []
    assert load_checkpoint(path).past != []


@pytest.mark.parametrize(
    "damage",
    [
        lambda past: past.pop("rewards"),
        lambda past: past.update(rewards=5),
        lambda past: past.update(rewards=past["rewards"][:, :2]),
        lambda past: past.update(values=past["values"] * torch.nan),
        lambda past: past.update(choices=past["choices"] + 1000),
        lambda past: past.update(choices=past["choices"][..., :1]),
        lambda past: past.update(state=[]),
        lambda past: past.update(state=[part[..., :3] for part in past["state"]]),
        lambda past: past.update(observation={}),
        lambda past: past.update(observation={**past["observation"], "vector": torch.zeros(1)}),
        lambda past: past.update(groups=[0]),
        lambda past: past.update(groups=["one", "two", "three"]),
    ],
)
def test_rollouts_that_the_network_cannot_have_made_are_refused_and_nothing_changes(reusing, damage):
    path, straight = reusing
    learner = Learner(small_network(5), straight.config)
    before = everything_of(learner)

    def damaged(raw):
        damage(raw["past"][1])
        return raw

    changed(path, damaged)
    with pytest.raises(BadCheckpoint, match=r"the rollouts in the checkpoint are not those .* \(.+\); use"):
        restore(load_checkpoint(path), learner)
    assert_same(everything_of(learner), before)


@pytest.mark.parametrize("name", [*Checkpoint.__dataclass_fields__])
def test_missing_or_mistyped_part_is_named(saved, name):
    changed(saved, lambda raw: raw | {name: 5})
    with pytest.raises(BadCheckpoint, match=f"has no proper '{name}'; it is damaged"):
        load_checkpoint(saved)


def nan_in(tensor: Tensor) -> Tensor:
    return tensor.flatten().index_fill(0, torch.tensor(0), torch.nan).reshape(tensor.shape)


def with_part(name: str, change):
    return lambda raw: raw | {name: {**raw[name], **change(raw[name])}}


DAMAGES = {
    "misshapen weight": (
        with_part("weights", lambda weights: {"actor.bias": torch.zeros(3)}),
        r"weight 'actor.bias' is \(3,\) torch.float32 in the checkpoint and \(12,\) torch.float32 in the network",
    ),
    "weight of another type": (
        with_part("weights", lambda weights: {"actor.bias": weights["actor.bias"].double()}),
        r"weight 'actor.bias' is \(12,\) torch.float64 in the checkpoint",
    ),
    "missing weight": (
        lambda raw: raw | {"weights": {k: v for k, v in raw["weights"].items() if k != "actor.bias"}},
        r"lacks weights \['actor.bias'\] and has unknown weights \[\]",
    ),
    "unknown weight": (
        with_part("weights", lambda weights: {"intruder": torch.zeros(1)}),
        r"lacks weights \[\] and has unknown weights \['intruder'\]",
    ),
    "weight that is not a number": (
        with_part("weights", lambda weights: {"critic.output.weight": nan_in(weights["critic.output.weight"])}),
        "weight 'critic.output.weight' has numbers that are not finite; use an earlier checkpoint",
    ),
    "weight that is no tensor": (
        with_part("weights", lambda weights: {"actor.bias": [1.0]}),
        "has 'weights' that are not tensors by name",
    ),
    "optimiser of another network": (
        with_part("optimiser", lambda optimiser: {"param_groups": optimiser["param_groups"][:1]}),
        "the optimiser in the checkpoint is not that of this network",
    ),
    "optimiser without state": (
        with_part("optimiser", lambda optimiser: {"state": None}),
        "the optimiser in the checkpoint is not that of this network",
    ),
    "misshapen average": (
        with_part("optimiser", lambda o: {"state": {**o["state"], 0: {**o["state"][0], "exp_avg": torch.zeros(2)}}}),
        "the optimiser in the checkpoint is not that of this network",
    ),
    "average that is not a number": (
        with_part(
            "optimiser",
            lambda o: {"state": {**o["state"], 0: {**o["state"][0], "exp_avg": nan_in(o["state"][0]["exp_avg"])}}},
        ),
        "the optimiser in the checkpoint is not that of this network",
    ),
    "average of an unknown parameter": (
        with_part("optimiser", lambda o: {"state": {**o["state"], 99: o["state"][0]}}),
        "the optimiser in the checkpoint is not that of this network",
    ),
    "scale that is not a number": (
        with_part("moments", lambda moments: {"mean": float("nan")}),
        "has moments .*, which cannot be; use an earlier checkpoint",
    ),
    "negative variance": (
        with_part("moments", lambda moments: {"variance": -1.0}),
        "has moments .*, which cannot be",
    ),
    "scale of another make": (
        with_part("moments", lambda moments: {"median": 1.0}),
        "has moments .*; expected the fields mean, variance, count",
    ),
    "counter of another type": (
        with_part("counters", lambda counters: {"updates": 1.5}),
        "has counters .*; expected the fields updates, optimiser_steps, environment_steps",
    ),
    "negative counter": (
        with_part("counters", lambda counters: {"updates": -1}),
        "has counters .*, which cannot be",
    ),
    "random numbers of another kind": (
        lambda raw: raw | {"generator": torch.zeros(7, dtype=torch.uint8)},
        "the checkpoint's random numbers are damaged",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_does_not_fit_is_named_before_anything_changed(saved, damage):
    """R0-P7, R0-P8."""
    change, said = DAMAGES[damage]
    changed(saved, change)
    learner = trained(3)
    before = everything_of(learner)
    with pytest.raises(BadCheckpoint, match=said):
        restore(load_checkpoint(saved), learner)
    assert_same(everything_of(learner), before)


@pytest.mark.parametrize(
    ("network", "said"),
    [
        (lambda: VectorNetwork(5, SIZES, USES, VectorConfig(6, 5, 4)), "inputs: the checkpoint has 3, the network 5"),
        (lambda: small_network(memory=7), "memory: the checkpoint has 5, the network 7"),
        (lambda: small_network(uses=torch.ones_like(USES)), "uses: only the checkpoint has .*False, False"),
        (
            lambda: VectorNetwork(INPUTS, {"op": 3, "slot": 2, "tempo": 4}, USES, VectorConfig(6, 5, 4)),
            "heads: the checkpoint has {'op': 3, 'slot': 2, 'style': 4}, the network {'op': 3, 'slot': 2, 'tempo': 4}",
        ),
    ],
)
def test_checkpoint_of_another_network_is_refused_with_what_differs(saved, network, said):
    """R1-M4."""
    learner = Learner(network(), CONFIG)
    before = everything_of(learner)
    with pytest.raises(BadCheckpoint, match=f"made by another kind of network .*{said}"):
        restore(load_checkpoint(saved), learner)
    assert_same(everything_of(learner), before)


def test_difference_of_long_lists_is_told_by_what_only_one_has():
    one, other = [f"feature{i}" for i in range(100)], [f"feature{i}" for i in range(1, 101)]
    with pytest.raises(
        BadCheckpoint, match=r"only the checkpoint has \['feature0'\], only the network has \['feature100'\]"
    ):
        require_same_schema({"features": one}, {"features": other})
    with pytest.raises(BadCheckpoint, match=r"features: the checkpoint has \['a', 'b'\], the network \['b', 'a'\]"):
        require_same_schema({"features": ["a", "b"]}, {"features": ["b", "a"]})


def test_failed_write_leaves_the_old_file_and_nothing_else(saved, monkeypatch):
    """R0-P8: as when the disk is full in the middle."""
    before = saved.read_bytes()

    def full_disk(content, file):
        file.write(b"half of")
        raise OSError("No space left on device")

    monkeypatch.setattr(torch, "save", full_disk)
    with pytest.raises(OSError, match="No space left on device"):
        save_checkpoint(saved, trained(1), {})
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


def test_writing_replaces_the_old_file_and_leaves_nothing_else(saved):
    save_checkpoint(saved, trained(1), {"number": 2})
    assert load_checkpoint(saved).extra == {"number": 2}
    assert list(saved.parent.iterdir()) == [saved]


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"where": Path()}, r"extra\['where'\] is a PosixPath; a checkpoint holds numbers, strings"),
        ({"list": [1, io.BytesIO()]}, r"extra\['list'\]\[1\] is a BytesIO"),
        ({"inner": {Colour.RED: 1}}, r"a key of extra\['inner'\] is a Colour"),
        ({"inner": (torch.tensor(1.0).numpy(),)}, r"extra\['inner'\]\[0\] is a ndarray"),
    ],
)
def test_what_could_not_be_read_again_is_not_written(saved, extra, said):
    """R0-P8: found out when saving, not when the checkpoint is needed."""
    before = saved.read_bytes()
    with pytest.raises(RLError, match=said):
        save_checkpoint(saved, trained(), extra)
    assert saved.read_bytes() == before


def test_configuration_with_names_of_another_type_is_not_written(tmp_path):
    """R0-P8."""
    learner = Learner(VectorNetwork(INPUTS, {"red": 2}), PPOConfig(head_entropy={Colour.RED: 2.0}))
    with pytest.raises(RLError, match=r"a key of config\['head_entropy'\] is a Colour"):
        save_checkpoint(tmp_path / "learner.pt", learner, {})
