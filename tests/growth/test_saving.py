"""A grown network on disk: what is saved comes back, and what does not fit is refused before anything is changed."""

import copy
import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import esper
from esper.contracts import EsperError, Kind, Stage, Style, Topology
from esper.growth import DoesNotFit, Fossil, NotSavable, UnknownBlueprint, blueprint, last_zero, plant
from esper.growth.architecture import MAX_FOSSILS, DamagedNetwork, UnknownSchema
from esper.growth.blueprints import registry
from esper.growth.directory import ARCHITECTURE, CARD, MAX_BYTES, WEIGHTS, NotReadable, NotWritable, TargetExists
from esper.growth.structure import NoTensor
from tests.growth.cases import CASES, Case, grow, logits, loss_of, optimiser_of, same

CONV = CASES[0]
GATED = Fossil("block1", Topology.CNN, 6, "conv_light", Style.GATED, 0.7000000000000001)


def planted(host: nn.Module, *fossils: Fossil) -> nn.Module:
    """With fossils that show in the output."""
    network = plant(host, fossils)
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.3)
    return network.eval()


def grown() -> nn.Module:
    return planted(CONV.host(), GATED)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    esper.save(grown(), tmp_path / "grown")
    return tmp_path / "grown"


def everything(network: nn.Module) -> Any:
    """What a load could change."""
    kinds = [(name, type(part), part.training) for name, part in network.named_modules()]
    return copy.deepcopy((network.state_dict(), kinds, torch.get_rng_state()))


# What comes back


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_body_of_any_host_comes_back_in_a_fresh_host_to_the_last_bit(case: Case, tmp_path: Path):
    body = case.body()
    optimizer = optimiser_of(body)
    for slot, style in zip(case.at[-2:], (Style.GATED, Style.LINEAR_ADD), strict=True):
        grow(case, body, optimizer, slot, Stage.FOSSILIZED, style)
    esper.save(body, tmp_path / "grown")
    loaded = esper.load(tmp_path / "grown", case.build())
    plain = body.harvest().eval()
    assert same(loaded.state_dict(), plain.state_dict())
    assert torch.equal(logits(loaded(case.inputs())), logits(plain(case.inputs())))


def test_a_harvest_that_was_trained_on_comes_back_and_goes_on_alike(tmp_path: Path):
    body = CONV.body()
    grow(CONV, body, optimiser_of(body), "block1", Stage.FOSSILIZED)
    plain = body.harvest().train()

    def train(network: nn.Module) -> None:
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        loss_of(CONV)(network(CONV.inputs())).backward()
        optimizer.step()
        network.zero_grad()

    train(plain)
    esper.save(plain, tmp_path / "grown")
    loaded = esper.load(tmp_path / "grown", CONV.build()).train()
    train(plain)
    train(loaded)
    assert same(loaded.state_dict(), plain.state_dict())


def test_load_returns_the_host_itself_in_evaluation_mode_with_its_parameters_and_draws_no_random_numbers(saved: Path):
    host = CONV.build()
    weights, state = list(host.parameters()), torch.get_rng_state()
    loaded = esper.load(saved, host)
    assert loaded is host
    assert not any(part.training for part in loaded.modules())
    assert {id(each) for each in weights} < {id(each) for each in loaded.parameters()}
    assert torch.equal(torch.get_rng_state(), state)


def test_a_loaded_network_can_be_saved_again_and_is_the_same_file(saved: Path, tmp_path: Path):
    esper.save(esper.load(saved, CONV.build()), tmp_path / "again")
    for name in (WEIGHTS, ARCHITECTURE):
        assert (tmp_path / "again" / name).read_bytes() == (saved / name).read_bytes()


def test_fossils_inside_and_around_each_other_come_back_in_their_order(tmp_path: Path):
    """As a harvest has them that was grafted and grew again."""
    norms = [Fossil(slot, Topology.CNN, 6, "norm", Style.LINEAR_MULTIPLY, 0.5) for slot in ("block1", "block1.0")]
    network = planted(CONV.host(), GATED, *norms)
    esper.save(network, tmp_path / "grown")
    loaded = esper.load(tmp_path / "grown", CONV.build())
    assert list(loaded.state_dict()) == list(network.state_dict())
    assert torch.equal(loaded(CONV.inputs()), network(CONV.inputs()))


def test_a_network_that_grew_twice_comes_back(tmp_path: Path):
    network = grown()
    for slot in ("block1", "block1.host.host.0", "block2"):
        body = esper.graft(network, at=[slot], example=CONV.inputs(2))
        grow(CONV, body, optimiser_of(body), slot, Stage.FOSSILIZED)
        network = body.harvest().eval()
    esper.save(network, tmp_path / "grown")
    assert torch.equal(esper.load(tmp_path / "grown", CONV.build())(CONV.inputs()), network(CONV.inputs()))


def test_a_harvest_that_became_a_part_of_a_larger_network_comes_back(tmp_path: Path):
    larger = nn.Sequential(grown(), nn.Linear(5, 2)).eval()
    esper.save(larger, tmp_path / "grown")
    loaded = esper.load(tmp_path / "grown", nn.Sequential(CONV.build(), nn.Linear(5, 2)))
    assert torch.equal(loaded(CONV.inputs()), larger(CONV.inputs()))


def test_a_compiled_network_is_saved_as_what_it_compiles(tmp_path: Path):
    network = grown()
    esper.save(torch.compile(network, backend="eager"), tmp_path / "grown")
    assert torch.equal(esper.load(tmp_path / "grown", CONV.build())(CONV.inputs()), network(CONV.inputs()))


def test_a_network_in_which_nothing_grew_comes_back(tmp_path: Path):
    host = CONV.host().eval()
    esper.save(CONV.body(), tmp_path / "grown")
    assert torch.equal(esper.load(tmp_path / "grown", CONV.build())(CONV.inputs()), host(CONV.inputs()))
    assert "in which no modules grew" in (tmp_path / "grown" / CARD).read_text()


def test_precision_of_every_tensor_is_kept(tmp_path: Path):
    network = grown().bfloat16()
    network.block1.seed.delta[1].float()
    esper.save(network, tmp_path / "grown")
    loaded = esper.load(tmp_path / "grown", CONV.build().bfloat16())
    assert same(loaded.state_dict(), network.state_dict())


class Tied(nn.Module):
    """A model of language in small: what reads a word also writes it."""

    def __init__(self, tied: bool = True) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 4)
        self.body = nn.Linear(4, 4)
        self.head = nn.Linear(4, 11, bias=False)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.body(self.embed(words)))


def test_tied_weights_are_saved_once_and_stay_tied(tmp_path: Path):
    network = planted(Tied(), *(Fossil(slot, Topology.DENSE, 4, "mlp", Style.GATED, 1.0) for slot in ("embed", "body")))
    esper.save(network, tmp_path / "grown")
    assert len(load_file(tmp_path / "grown" / WEIGHTS)) == len(network.state_dict()) - 1
    loaded = esper.load(tmp_path / "grown", Tied())
    assert loaded.head.weight is loaded.embed.host.weight
    words = torch.arange(11)
    assert torch.equal(loaded(words), network(words))
    with pytest.raises(DoesNotFit, match=r"'head.weight' is float32 \[11, 4\], not tied to embed.weight"):
        esper.load(tmp_path / "grown", Tied(tied=False))


def test_a_blueprint_of_ones_own_comes_back_where_it_is_registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    class Shifted(nn.Module):
        """With a weight that it uses twice, and a buffer that no state has."""

        def __init__(self, channels: int) -> None:
            super().__init__()
            self.first = self.second = nn.Linear(channels, channels, bias=False)
            self.last = last_zero(nn.Linear(channels, channels))
            self.register_buffer("shift", torch.arange(channels).float(), persistent=False)

        def forward(self, h: Tensor) -> Tensor:
            return self.last(self.second(self.first(h + self.shift)))

    blueprint("shifted", topology="dense", kind=Kind.MIX_CHANNELS)(Shifted)
    case = next(case for case in CASES if case.name == "dense")
    network = planted(case.host(), Fossil("layer0", Topology.DENSE, 8, "shifted", Style.LINEAR_ADD, 1.0))
    esper.save(network, tmp_path / "grown")
    assert torch.equal(esper.load(tmp_path / "grown", case.build())(case.inputs()), network(case.inputs()))
    monkeypatch.delitem(registry._REGISTRY[Topology.DENSE], "shifted")
    with pytest.raises(UnknownBlueprint, match=r"no blueprint 'shifted'.* 'layer0' has one: import what registers it"):
        esper.load(tmp_path / "grown", case.build())


def test_the_card_tells_what_grew_and_its_code_runs(saved: Path, monkeypatch: pytest.MonkeyPatch):
    text = (saved / CARD).read_text()
    before, after = (sum(p.numel() for p in network.parameters()) for network in (CONV.host(), grown()))
    assert f"A `ConvHost` of {before} parameters, in which 1 module grew" in text
    assert f"It has {after:,} parameters now" in text
    assert "`conv_light` behind `block1`, on 6 cnn channels, blended in by gate at strength 0.7" in text
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(code.splitlines()) == 3
    monkeypatch.chdir(saved.parent)
    names: dict[str, Any] = {"ConvHost": lambda _: CONV.build()}
    exec(code, names)
    assert torch.equal(names["network"](CONV.inputs()), esper.load(saved, CONV.build())(CONV.inputs()))


def test_the_architecture_tells_versions_fossils_and_the_host(saved: Path):
    told = json.loads((saved / ARCHITECTURE).read_text())
    assert told["esper"] == esper.__version__
    assert told["torch"] == torch.__version__
    assert told["fossils"] == [
        {
            "slot": "block1",
            "topology": "cnn",
            "channels": 6,
            "blueprint": "conv_light",
            "style": "gated",
            "alpha": 0.7000000000000001,
        }
    ]
    assert told["host"].keys() == CONV.host().state_dict().keys()
    assert told["host"]["block0.0.weight"] == "float32 [4, 3, 3, 3]"


# What is refused


def told(**changes: Any) -> Callable[[Path], None]:
    """Change `architecture.json`."""

    def change(directory: Path) -> None:
        table = json.loads((directory / ARCHITECTURE).read_text())
        table.update(changes)
        (directory / ARCHITECTURE).write_text(json.dumps(table))

    return change


def fossil(**changes: Any) -> Callable[[Path], None]:
    plain = {"slot": "block1", "topology": "cnn", "channels": 6, "blueprint": "conv_light", "style": "gated"}
    return told(fossils=[{**plain, "alpha": 1.0, **changes}])


def weights(change: Callable[[dict[str, Tensor]], Any], believed: bool = True) -> Callable[[Path], None]:
    """Change `weights.safetensors`, with the right sum if it is to be believed."""

    def write(directory: Path) -> None:
        tensors = {name: each.clone() for name, each in load_file(directory / WEIGHTS).items()}
        change(tensors)
        save_file(tensors, directory / WEIGHTS)
        if believed:
            believe(directory)

    return write


def believe(directory: Path) -> None:
    told(sha256=hashlib.sha256((directory / WEIGHTS).read_bytes()).hexdigest())(directory)


def content(name: str, text: bytes, believed: bool = False) -> Callable[[Path], None]:
    def write(directory: Path) -> None:
        (directory / name).write_bytes(text)
        if believed:
            believe(directory)

    return write


def cut(name: str) -> Callable[[Path], None]:
    def write(directory: Path) -> None:
        (directory / name).write_bytes((directory / name).read_bytes()[:-7])

    return write


def linked(name: str) -> Callable[[Path], None]:
    def write(directory: Path) -> None:
        (directory / name).rename(directory.parent / name)
        (directory / name).symlink_to(directory.parent / name)

    return write


def vast(name: str) -> Callable[[Path], None]:
    """A file with a hole in it takes no room."""
    return lambda directory: os.truncate(directory / name, MAX_BYTES[name] + 1)


def piped(directory: Path) -> None:
    (directory / WEIGHTS).unlink()
    os.mkfifo(directory / WEIGHTS)


def wider(tensors: dict[str, Tensor]) -> None:
    tensors["head.2.bias"] = torch.zeros(9)


def whole_numbers(tensors: dict[str, Tensor]) -> None:
    tensors["block1.seed.gate.weight"] = tensors["block1.seed.gate.weight"].long()


HOSTILE = {
    "no directory": (lambda at: at.rename(at.with_name("gone")), NotReadable, r"json does not exist; give a directory"),
    "no weights": (lambda at: (at / WEIGHTS).unlink(), NotReadable, "safetensors does not exist; give a directory"),
    "a pipe": (piped, NotReadable, "safetensors is no file; give a directory"),
    "architecture linked": (linked(ARCHITECTURE), NotReadable, "json is a link; give a directory"),
    "weights linked": (linked(WEIGHTS), NotReadable, "safetensors is a link; .* with its files in it"),
    "vast architecture": (vast(ARCHITECTURE), NotReadable, r"json has 8,000,001 bytes; at most 8,000,000 are read"),
    "vast weights": (vast(WEIGHTS), NotReadable, "safetensors has 68,719,476,737 bytes; at most"),
    "architecture cut": (cut(ARCHITECTURE), DamagedNetwork, "is not JSON .*; save the network again"),
    "weights cut": (cut(WEIGHTS), DamagedNetwork, r"has the SHA-256 \w+, not \w+; save the network again, or fetch"),
    "weights changed": (weights(lambda t: t["head.2.bias"].add_(1), believed=False), DamagedNetwork, "has the SHA-256"),
    "another sum": (told(sha256="0" * 10**5), DamagedNetwork, r"not 0{64}; save"),
    "no text": (content(ARCHITECTURE, b"\xff\xfe"), DamagedNetwork, "is not JSON"),
    "deep": (content(ARCHITECTURE, b"[" * 10**6), DamagedNetwork, "is not JSON"),
    "a list": (content(ARCHITECTURE, b"[]"), UnknownSchema, "has the schema None, and this version of esper reads 1"),
    "another schema": (told(schema=2), UnknownSchema, "has the schema 2, .* use the version of esper that made it"),
    "a true schema": (told(schema=True), UnknownSchema, "has the schema True"),
    "unknown key": (told(fossil=[]), DamagedNetwork, "no key 'fossil'; did you mean 'fossils'"),
    "no fossils": (told(fossils=None), DamagedNetwork, "'fossils' must be a list of tables, and is None"),
    "many fossils": (
        told(fossils=[{**vars(GATED), "style": "gated"}] * (MAX_FOSSILS + 1)),
        DamagedNetwork,
        "there are 1,001 fossils; at most 1,000",
    ),
    "unknown blueprint": (fossil(blueprint="conv_hevy"), UnknownBlueprint, "did you mean 'conv_heavy'.*import what"),
    "another blueprint": (fossil(blueprint="norm"), DamagedNetwork, "is not of the network that architecture.json"),
    "unknown topology": (fossil(topology="cube"), DamagedNetwork, "'fossils 1.topology' is 'cube'; known: cnn"),
    "unknown style": (fossil(style="gate"), DamagedNetwork, "'fossils 1.style' is 'gate'; did you mean 'gated'"),
    "no channels": (fossil(channels=0), DamagedNetwork, "channels = 0; give a value from 1 to 65,536"),
    "vast channels": (fossil(channels=10**12), DamagedNetwork, "channels = 1000000000000; give a value from 1"),
    "wide channels": (fossil(channels=65_536), DamagedNetwork, r"'block1.seed.delta.0.weight' is float32 \[6, 6,"),
    "alpha above 1": (fossil(alpha=1.01), DamagedNetwork, "alpha = 1.01; give a value above 0 and up to 1"),
    "alpha of 0": (fossil(alpha=0.0), DamagedNetwork, "alpha = 0.0; give a value above 0"),
    "alpha in words": (fossil(alpha="full"), DamagedNetwork, "alpha' must be a number, and is 'full'"),
    "unknown slot": (fossil(slot="blok1"), DoesNotFit, "fossil behind 'blok1', .* did you mean 'block1'.* as it was"),
    "slot of the host": (fossil(slot=""), DamagedNetwork, "a name has 0 characters; 1 to 500 are allowed"),
    "long slot": (fossil(slot="x" * 10**5), DamagedNetwork, "a name has 100,000 characters; 1 to 500 are allowed"),
    "slot in a seed": (fossil(slot="block1.seed"), DoesNotFit, "fossil behind 'block1.seed'"),
    "no weights in it": (content(WEIGHTS, b"", believed=True), DamagedNetwork, "cannot be read as safetensors"),
    "a pickle": (content(WEIGHTS, b"\x80\x04\x95" * 99, believed=True), DamagedNetwork, "cannot be read as"),
    "a name less": (weights(lambda t: t.pop("head.2.bias")), DamagedNetwork, "'head.2.bias' is missing"),
    "a name more": (weights(lambda t: t.update(more=torch.zeros(1))), DamagedNetwork, "'more' is not expected"),
    "another shape": (weights(wider), DamagedNetwork, r"'head.2.bias' is float32 \[9\], not float32 \[5\]"),
    "whole numbers": (weights(whole_numbers), DamagedNetwork, r"'block1.seed.gate.weight' is int64 \[6\], not float32"),
    "a false tie": (told(tied={"head.2.bias": "head.2.weight"}), DamagedNetwork, "'head.2.weight' is tied to"),
    "a tie to nothing": (told(tied={"head.2.bias": "x"}), DamagedNetwork, "has tensors tied to others that"),
    "another host": (told(host={"stem": "float32 [1]"}), DoesNotFit, "grew in another host: 'stem' is missing"),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_files_are_refused_and_the_host_is_as_it_was(what: str, saved: Path):
    spoil, error, words = HOSTILE[what]
    spoil(saved)
    host = CONV.host()
    before = everything(host)
    with pytest.raises(error, match=words):
        esper.load(saved, host)
    assert same(everything(host), before)


@pytest.fixture(scope="module")
def saved_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For those who copy it before they change it."""
    esper.save(grown(), directory := tmp_path_factory.mktemp("once") / "grown")
    return directory


@settings(max_examples=150)
@given(name=st.sampled_from([ARCHITECTURE, WEIGHTS]), place=st.floats(0, 1, exclude_max=True), byte=st.integers(0, 255))
def test_any_byte_that_is_changed_gives_a_network_or_an_error_and_no_change(
    saved_once, tmp_path_factory, name, place, byte
):
    """A byte of the weights is believed, so that it comes to be read."""
    directory = Path(shutil.copytree(saved_once, tmp_path_factory.mktemp("one") / "grown"))
    raw = bytearray((directory / name).read_bytes())
    raw[int(place * len(raw))] = byte
    (directory / name).write_bytes(raw)
    if name == WEIGHTS:
        believe(directory)
    host = CONV.host()
    before = everything(host)
    try:
        esper.load(directory, host)
    except EsperError:
        assert same(everything(host), before)


@pytest.mark.parametrize(
    ("host", "words"),
    [
        (lambda: CONV.body().host, "has slots or fossils; give one that was built afresh"),
        (grown, "has slots or fossils"),
        (
            lambda: CONV.build().double(),
            r"'block0.0.weight' is float64 \[4, 3, 3, 3\], not float32 .* as it was before",
        ),
        (lambda: nn.Linear(2, 2), r"'block0.0.weight' is missing, .* and \d+ more; build the host as it was"),
    ],
    ids=["slots", "fossils", "precision", "another"],
)
def test_a_host_that_is_not_the_fresh_one_is_refused_and_stays_as_it_was(host, words: str, saved: Path):
    host = host()
    before = everything(host)
    with pytest.raises(DoesNotFit, match=words):
        esper.load(saved, host)
    assert same(everything(host), before)


def test_a_fossil_in_a_module_that_has_several_names_is_refused(tmp_path: Path):
    """No graft makes one, so only a hostile file has it."""

    def shared() -> nn.Module:
        block = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        return nn.Sequential(block, block)

    esper.save(shared(), tmp_path / "grown")
    seed = {"slot": "0.0", "topology": "dense", "channels": 4, "blueprint": "mlp", "style": "gated", "alpha": 1.0}
    told(fossils=[seed])(tmp_path / "grown")
    host = shared()
    before = everything(host)
    with pytest.raises(DamagedNetwork, match="has a fossil behind a submodule that has several names"):
        esper.load(tmp_path / "grown", host)
    assert same(everything(host), before)


@pytest.mark.parametrize("host", [nn.LazyLinear(3), nn.Linear(3, 3, device="meta")], ids=["lazy", "meta"])
def test_a_host_without_values_is_refused_by_load_and_save(host: nn.Module, saved: Path, tmp_path: Path):
    for act in (lambda: esper.load(saved, host), lambda: esper.save(host, tmp_path / "other")):
        with pytest.raises(NoTensor, match="'weight' has no values yet; build the network on a real device and run it"):
            act()
    assert not (tmp_path / "other").exists()


class Noted(nn.Linear):
    def get_extra_state(self) -> dict[str, int]:
        return {"calls": 3}


def rebuilt_seed() -> nn.Module:
    network = grown()
    network.block1.seed.delta[2] = nn.Conv2d(6, 6, 3)
    return network


def tied_seed() -> nn.Module:
    network = grown()
    network.block2.register_parameter("bias", network.block1.seed.gate.bias)
    return network


def seed_in_a_seed() -> nn.Module:
    return plant(grown(), [Fossil("block1.seed.delta", Topology.CNN, 6, "norm", Style.LINEAR_ADD, 1.0)])


@pytest.mark.parametrize(
    ("network", "error", "words"),
    [
        (lambda: CONV.body().host, NotSavable, r"has slots; give its body, or what body.harvest\(\) returns"),
        (lambda: Noted(2, 2), NoTensor, "'_extra_state' is a dict; only networks whose state is tensors"),
        (rebuilt_seed, NotSavable, r"seed in 'block1' is not what 'conv_light' builds: 'delta.2.weight' is float32"),
        (tied_seed, NotSavable, "'block2.bias' is tied to 'block1.seed.gate.bias' across the border of a seed"),
        (seed_in_a_seed, NotSavable, "seed in 'block1' is not what 'conv_light' builds: 'delta.0.weight' is missing"),
        (lambda: grown().block1, NotSavable, "a single place with its fossil; give the network that it is a part of"),
        (lambda: nn.ParameterList([torch.eye(2).to_sparse()]), NotSavable, "safetensors cannot hold .* dense tensors"),
    ],
    ids=["slots", "extra-state", "rebuilt-seed", "tied-seed", "seed-in-a-seed", "whole", "sparse"],
)
def test_a_network_that_could_not_be_loaded_is_not_saved(network, error, words: str, tmp_path: Path):
    with pytest.raises(error, match=words):
        esper.save(network(), tmp_path / "grown")
    assert list(tmp_path.iterdir()) == []


# Where it is written


def files(directory: Path) -> dict[str, bytes]:
    return {str(each.relative_to(directory)): each.read_bytes() for each in directory.rglob("*") if each.is_file()}


def test_a_saved_network_is_replaced_only_when_asked(saved: Path):
    before = files(saved)
    other = planted(CONV.host())
    with pytest.raises(TargetExists, match="is a saved network; give another path, or overwrite=True to replace it"):
        esper.save(other, saved)
    assert files(saved) == before
    esper.save(other, saved, overwrite=True)
    assert torch.equal(esper.load(saved, CONV.build())(CONV.inputs()), other(CONV.inputs()))
    assert [each.name for each in saved.parent.iterdir()] == ["grown"]


def a_file(target: Path) -> None:
    target.write_text("mine")


def an_empty_directory(target: Path) -> None:
    target.mkdir()


def a_network_with_notes(target: Path) -> None:
    esper.save(grown(), target)
    (target / "notes.txt").write_text("mine")


@pytest.mark.parametrize("there", [a_file, an_empty_directory, a_network_with_notes])
def test_what_is_not_a_saved_network_alone_is_never_replaced(there: Callable[[Path], None], tmp_path: Path):
    there(tmp_path / "mine")
    before = files(tmp_path)
    with pytest.raises(TargetExists, match="exists and is not a saved network alone; give a path where nothing is"):
        esper.save(grown(), tmp_path / "mine", overwrite=True)
    assert files(tmp_path) == before


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("fails", ["fsync", "rename"])
def test_a_write_that_fails_leaves_what_was_there(
    overwrite: bool, fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if overwrite:
        esper.save(grown(), tmp_path / "grown")
    before = files(tmp_path)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    rename = Path.rename
    with monkeypatch.context() as patch:
        if fails == "fsync":
            patch.setattr(os, "fsync", full)
        else:
            patch.setattr(Path, "rename", lambda self, to: full() if self.suffix == ".part" else rename(self, to))
        with pytest.raises(NotWritable, match="grown cannot be written: No space left on device; make room"):
            esper.save(planted(CONV.host()), tmp_path / "grown", overwrite=overwrite)
    assert files(tmp_path) == before
    assert [each.name for each in tmp_path.iterdir()] == (["grown"] if overwrite else [])


def test_a_path_below_a_file_cannot_be_written(tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(NotWritable, match="cannot be written: Not a directory"):
        esper.save(grown(), tmp_path / "file" / "grown")


def test_directories_on_the_way_are_made(tmp_path: Path):
    esper.save(grown(), str(tmp_path / "a" / "b"))
    assert {each.name for each in (tmp_path / "a" / "b").iterdir()} == {ARCHITECTURE, WEIGHTS, CARD}
