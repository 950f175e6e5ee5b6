"""What cannot be grafted is refused, with a message that helps and a model that was not touched."""

import copy

import pytest
import torch
from torch import Tensor, nn

import esper
from esper.contracts import Action, EsperError, Op
from esper.growth import (
    AlreadyGrafted,
    ConvHost,
    ConvShape,
    DenseHost,
    NotFeatures,
    SharedModule,
    UnknownBlueprint,
    UnknownModule,
    UnknownSlot,
)
from tests.growth.cases import same

IMAGE = torch.zeros(2, 3, 8, 8)


class Pair(nn.Module):
    """Puts out a tuple of words, and integers, and has parts that run twice, never, or under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 1)
        self.twice = nn.BatchNorm2d(4)
        self.never = nn.Linear(4, 4)
        self.alias = self.stem
        self.split = Split()
        self.blocks = nn.ModuleList([nn.ReLU()])
        self.count = Count()

    def forward(self, x: Tensor) -> Tensor:
        _, h = self.split(self.twice(self.twice(self.stem(x))))
        self.count(h)
        return self.blocks[0](h)


class Split(nn.Module):
    def forward(self, h: Tensor) -> tuple[str, Tensor]:
        return "features", h


class Count(nn.Module):
    def forward(self, h: Tensor) -> Tensor:
        return h.argmax(1)


class Boom(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        self.stem(x)
        raise RuntimeError("boom")


REFUSALS = [
    (["twise"], UnknownModule, "no submodule 'twise'; did you mean 'twice'"),
    ([], UnknownModule, "give a list of submodule names"),
    ("stem", UnknownModule, "give a list of submodule names"),
    ([""], UnknownModule, "no submodule ''"),
    (["never"], UnknownModule, "'never' does not run"),
    (["blocks"], UnknownModule, "'blocks' does not run"),
    (["stem"], SharedModule, r"one module under the names \['stem', 'alias'\]"),
    (["twice"], SharedModule, "'twice' runs 2 times"),
    (["blocks.0", "blocks.0"], SharedModule, "named 2 times"),
    (["split"], NotFeatures, "puts out a str, not a tensor"),
    (["count"], NotFeatures, r"torch.int64 of shape \(2, 8, 8\)"),
]


def parts(model: nn.Module) -> list[object]:
    return [
        *(module.training for module in model.modules()),
        *(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()),
    ]


@pytest.mark.parametrize(("at", "error", "message"), REFUSALS)
def test_what_cannot_be_a_slot_is_refused_and_the_model_untouched(at, error, message):
    model = Pair().train()
    model.stem.eval()
    before, state, random_state = parts(model), copy.deepcopy(model.state_dict()), torch.get_rng_state()
    with pytest.raises(error, match=message):
        esper.graft(model, at=at, example=IMAGE)
    assert parts(model) == before
    assert same(model.state_dict(), state)
    assert torch.equal(torch.get_rng_state(), random_state)


def test_a_good_name_among_bad_ones_is_not_grafted_either():
    model = Pair()
    before = parts(model)
    with pytest.raises(NotFeatures, match="puts out a str"):
        esper.graft(model, at=["blocks.0", "split"], example=IMAGE)
    assert parts(model) == before


def test_a_host_that_fails_on_the_example_is_left_untouched():
    model = Boom()
    before = parts(model)
    with pytest.raises(RuntimeError, match="boom"):
        esper.graft(model, at=["stem"], example=IMAGE)
    assert parts(model) == before


def test_a_host_is_grafted_once():
    host = ConvHost(3, 5, ConvShape())
    esper.graft(host, at=["block0"], example=IMAGE)
    with pytest.raises(AlreadyGrafted, match="slots already"):
        esper.graft(host, at=["block1"], example=IMAGE)


def test_topology_and_blueprints_are_checked():
    host = nn.Sequential(nn.Conv1d(5, 5, 1), nn.Linear(4, 6))  # so that all tokens see all others
    tokens = torch.zeros(2, 5, 4)
    with pytest.raises(NotFeatures, match="topology='dense'"):
        esper.graft(host, at=["1"], example=tokens)
    with pytest.raises(NotFeatures, match="no topology 'dens'; did you mean 'dense'"):
        esper.graft(host, at=["1"], example=tokens, topology="dens")
    with pytest.raises(NotFeatures, match="does not suit topology 'cnn'"):
        esper.graft(host, at=["1"], example=tokens, topology="cnn")
    with pytest.raises(NotFeatures, match="which has dense features; give at least one of norm"):
        esper.graft(host, at=["1"], example=tokens, topology="dense", blueprints=["conv_light"])
    body = esper.graft(host, at=["1"], example=tokens, topology="dense", blueprints=["mlp"])
    assert body.execute(Action(Op.GERMINATE, "1", blueprint="mlp"))


def test_every_refusal_is_an_esper_error():
    for error in (UnknownModule, SharedModule, NotFeatures, AlreadyGrafted, UnknownBlueprint, UnknownSlot):
        assert issubclass(error, EsperError)


def test_slot_order_is_the_callers_and_execution_order_is_reported():
    """Pitfall P-order: an index means the place in the caller's list."""
    host = DenseHost(7, 5, (8, 8, 8))
    body = esper.graft(host, at=["layer2", "layer0", "layer1"], example=torch.zeros(2, 7))
    assert [snapshot.slot for snapshot in body.snapshots()] == ["layer2", "layer0", "layer1"]
    assert body.execution_order == ("layer0", "layer1", "layer2")
    assert [snapshot.position for snapshot in body.snapshots()] == [2, 0, 1]
    with pytest.raises(UnknownSlot, match="no slot 'layer9'; did you mean"):
        body.slot("layer9")


def test_keyword_and_tuple_examples_are_taken():
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Linear(3, 4), nn.Linear(3, 4)

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return self.left(a) * self.right(b)

    x = torch.ones(2, 3)
    assert esper.graft(Two(), at=["left"], example=(x, x)).blended() == frozenset()
    body = esper.graft(Two(), at=["right"], example={"a": x, "b": x})
    assert set(body.coalition_outputs([()], a=x, b=x)) == {frozenset()}


def test_newborn_seeds_draw_from_their_own_generator_only():
    def newborn(noise: int) -> dict[str, Tensor]:
        torch.manual_seed(noise)
        generator = torch.Generator().manual_seed(5)
        body = esper.graft(DenseHost(7, 5, (8,)), at=["layer0"], example=torch.zeros(2, 7), generator=generator)
        before = torch.get_rng_state()
        body.execute(Action(Op.GERMINATE, "layer0", blueprint="mlp"))
        assert torch.equal(torch.get_rng_state(), before)
        return {name: value.clone() for name, value in body.slots[0].seed.state_dict().items()}

    assert same(newborn(1), newborn(2))


class TwoKinds(nn.Module):
    """Convolutional features, then dense ones."""

    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Conv2d(1, 4, 3)
        self.flat = nn.Linear(4, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.flat(self.image(x).mean((2, 3))))


def test_blueprints_can_be_narrowed_for_hosts_of_several_kinds_of_features():
    example = torch.zeros(2, 1, 8, 8)
    body = esper.graft(TwoKinds(), at=["image", "flat"], example=example, blueprints=["conv_light", "mlp"])
    assert [slot.blueprints for slot in body.snapshots()] == [("conv_light",), ("mlp",)]
    body = esper.graft(TwoKinds(), at=["image", "flat"], example=example, blueprints={"image": ["norm"]})
    assert body.snapshots()[0].blueprints == ("norm",)
    assert "mlp" in body.snapshots()[1].blueprints


def test_blueprints_that_leave_a_slot_without_any_are_refused_by_its_name():
    example = torch.zeros(2, 1, 8, 8)
    for names in ([], ["mlp"], {"image": []}):
        with pytest.raises(NotFeatures, match=r"for 'image', which has cnn features; give at least one of norm"):
            esper.graft(TwoKinds(), at=["image", "flat"], example=example, blueprints=names)


class Signal(nn.Module):
    """A series through a convolution, a recurrent network and attention."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(3, 6, 3, padding=1)
        self.lstm = nn.LSTM(6, 8, batch_first=True)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.heads = nn.ModuleList([nn.Linear(8, 4)])

    def forward(self, x: Tensor) -> Tensor:
        h, _ = self.lstm(self.conv(x).transpose(1, 2))
        h = self.norm(h + self.attention(h, h, h)[0])
        return self.heads[-1](h.mean(1))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("conv", r"shape \(2, 6, 9\).* if the last axis, of 9, holds the channels.* if the middle one does, as behind"),
        ("lstm", r"shape \(2, 9, 8\), and the host was not found to be causal; if the last axis, of 8, holds"),
        ("attention", r"shape \(2, 9, 8\), and the host was not found to be causal"),
    ],
)
def test_a_place_without_features_is_told_what_would_do(name, message):
    model, example = Signal(), torch.randn(2, 3, 9)
    before = parts(model)
    with pytest.raises(NotFeatures, match=message):
        esper.graft(model, at=[name], example=example)
    assert parts(model) == before
    assert esper.graft(model, at=["lstm", "attention", "heads.0"], example=example, topology="dense").execution_order


def test_a_projection_whose_weights_attention_reads_does_not_run():
    with pytest.raises(UnknownModule, match=r"'attention\.out_proj' does not run .* or others only read its weights"):
        esper.graft(Signal(), at=["attention.out_proj"], example=torch.randn(2, 3, 9))


def test_where_nothing_puts_out_features_the_message_says_so():
    with pytest.raises(NotFeatures, match="name one that puts out such: there is none"):
        esper.graft(nn.Sequential(Count()), at=["0"], example=torch.zeros(2, 3, 4))


def test_nested_tensors_are_no_features():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    padding = torch.tensor([[False, False, True], [False, True, True]])
    example = {"src": torch.randn(2, 3, 8), "src_key_padding_mask": padding}
    with pytest.raises(NotFeatures, match=r"nested tensor .* with enable_nested_tensor=False"):
        esper.graft(nn.TransformerEncoder(layer, 1), at=["layers.0"], example=example, topology="dense")
    host = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
    assert esper.graft(host, at=["layers.0"], example=example, topology="dense").blended() == frozenset()


def test_a_first_layer_that_works_in_place_leaves_the_callers_data_alone():
    host = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 2))
    body = esper.graft(host, at=["1"], example=torch.zeros(2, 4))
    x = torch.randn(5, 4)
    before = x.clone()
    body.coalition_outputs([()], x)
    assert torch.equal(x, before)
