"""Controllers that come with the package are used as they were shipped, or not at all."""

import hashlib
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from esper.contracts import ObservationFields, Op
from esper.controller import ControllerNetwork, MissingFeature, load_network, shipped
from esper.controller.learned import tensors
from esper.controller.shipped import SHIPPED, DamagedController, shipped_file
from esper.environment import FIELDS
from esper.rl import BadCheckpoint, Learner, PPOConfig, log_probabilities, save_checkpoint


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that ships one controller."""
    (tmp_path / "weights").mkdir()
    file = tmp_path / "weights" / "tamiyo-test.pt"
    file.write_bytes(b"weights")
    monkeypatch.setattr(shipped.resources, "files", lambda package: tmp_path)
    monkeypatch.setitem(SHIPPED, "tamiyo-test", hashlib.sha256(b"weights").hexdigest())
    return file


def test_a_shipped_controller_is_found(package):
    assert shipped_file("tamiyo-test") == package


def test_every_controller_that_is_named_is_there_with_its_sum():
    for name in SHIPPED:
        assert shipped_file(name).is_file()


@pytest.mark.parametrize("content", [b"", b"weight", b"weights ", b"Weights"])
def test_a_controller_that_is_not_what_it_was_is_refused(package, content):
    package.write_bytes(content)
    found = hashlib.sha256(content).hexdigest()
    with pytest.raises(DamagedController, match=f"has the SHA-256 {found}, not .*; install this package again"):
        shipped_file("tamiyo-test")


def test_a_controller_that_is_gone_is_refused(package):
    package.unlink()
    with pytest.raises(
        DamagedController, match=r"tamiyo-test\.pt cannot be read \(No such file or directory\); install"
    ):
        shipped_file("tamiyo-test")


SHAPES = {"host": (), "slots": (3,), "blueprints": (3, 7)}
MASKS = {"op": 6, "style": 4, "tempo": 3, "alpha_target": 3, "alpha_speed": 4, "alpha_curve": 5}


def old_observation(fields: ObservationFields) -> dict[str, np.ndarray]:
    """Made up, of these features, and without bits for blueprints, which there were not."""
    draw, sizes = np.random.default_rng(0), {name: len(names) for name, names in asdict(fields).items()}
    arrays = {name: draw.random((*SHAPES[name], size), dtype=np.float32) for name, size in sizes.items()}
    for name in ("host", "slots"):
        arrays[f"{name}_valid"] = draw.integers(0, 2, arrays[name].shape).astype(np.int8)
    masks = MASKS | {"op_slot": (6, 3), "slot_blueprint": (3, 7)}
    return arrays | {f"mask_{name}": np.ones(shape, np.int8) for name, shape in masks.items()}


def shown_now(old: dict[str, np.ndarray], fields: ObservationFields) -> dict[str, np.ndarray]:
    """The same numbers where observations have them now, and anything in between."""
    now = dict(old)
    for name, features in asdict(FIELDS).items():
        places = [features.index(each) for each in asdict(fields)[name]]
        for array in (name, f"{name}_valid"):
            now[array] = np.random.default_rng(1).integers(0, 2, (*SHAPES[name], len(features))).astype(np.float32)
            if array in old:
                now[array][..., places] = old[array]
    return now


def judged(network: ControllerNetwork, arrays: dict[str, np.ndarray]) -> list[torch.Tensor]:
    """The value, and the log-probabilities of ops, of slots to germinate in, and of blueprints in the second one."""
    seen = {name: value.unsqueeze(1) for name, value in tensors(arrays).items()}
    encoded = network.encode(seen, network.memory.start(1), torch.tensor([[True]]))
    choices = torch.tensor([Op.GERMINATE, 1, 0, 0, 0, 0, 0, 0]).reshape(1, 1, -1)
    levels = [log_probabilities(*network.logits(encoded, seen, level, choices))[0, 0, 0] for level in range(3)]
    return [encoded.values.flatten(), *levels]


def test_tamiyo_small_decides_as_ever_by_the_features_that_it_was_trained_on():
    """The numbers are those of the program that trained it."""
    network = load_network(shipped_file("tamiyo-small"), FIELDS)
    old = old_observation(network.fields)
    found = judged(network, shown_now(old, network.fields))
    expected = [
        [0.008791],
        [-1.83121, -4.36763, -5.35517, -4.98211, -0.79386, -1.0122],
        [-1.08465, -1.02835, -1.18946],
        [-1.56892, -1.61781, -0.98637, -3.98469, -2.80077, -2.70803, -2.59775],
    ]
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, torch.tensor(theirs), rtol=0, atol=2e-5)
    unchanged = judged(load_network(shipped_file("tamiyo-small"), network.fields), old)
    assert all(map(torch.equal, found, unchanged)), "other features change no bit"


def test_a_controller_that_reads_what_is_not_shown_is_refused():
    fewer = replace(FIELDS, slots=tuple(name for name in FIELDS.slots if name != "alpha"))
    with pytest.raises(MissingFeature, match="the observation has no number 'alpha'; "):
        load_network(shipped_file("tamiyo-small"), fewer)


@pytest.mark.parametrize(
    ("entry", "value"),
    [("host_features", "all"), ("host_features", []), ("slots_features", [1, 2]), ("slot", True)],
)
def test_a_checkpoint_with_a_damaged_schema_is_refused(entry, value, tmp_path):
    content = torch.load(shipped_file("tamiyo-small"), weights_only=True)
    content["schema"][entry] = value
    torch.save(content, tmp_path / "damaged.pt")
    with pytest.raises(BadCheckpoint, match="but not of a controller; give one that 'esper train' wrote"):
        load_network(tmp_path / "damaged.pt", FIELDS)


def test_bits_that_are_neither_read_nor_not_read_are_refused(tmp_path):
    content = torch.load(shipped_file("tamiyo-small"), weights_only=True)
    content["schema"]["offer_bits"] = "some"
    torch.save(content, tmp_path / "damaged.pt")
    with pytest.raises(BadCheckpoint, match="made by another kind of network"):
        load_network(tmp_path / "damaged.pt", FIELDS)


def test_a_controller_of_today_is_loaded_as_it_was_saved(tmp_path):
    network = ControllerNetwork(FIELDS)
    save_checkpoint(tmp_path / "new.pt", Learner(network, PPOConfig()), {})
    again = load_network(tmp_path / "new.pt", FIELDS)
    assert isinstance(again, ControllerNetwork)
    arrays = shown_now(old_observation(FIELDS), FIELDS)
    assert all(map(torch.equal, judged(network, arrays), judged(again, arrays)))
