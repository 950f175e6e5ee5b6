"""How far a position sees, on hosts of which it is known."""

import pytest
import torch
from torch import Tensor, nn

import esper
from esper.growth import ConvHost, ConvShape, DenseHost
from esper.growth.reach import Reach, reaches
from tests.growth.cases import CASES, full_state, same


def host(build) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return build()


BLOCKS = ("block0", "block1", "block2")
KNOWN = [
    (ConvShape((8, 8, 8), kernel=1), (1, 1, 1)),
    (ConvShape((8, 8, 8), kernel=1, norm="group"), (1, 1, 1)),
    (ConvShape((8, 8, 8), kernel=1, pool_after=(0, 1)), (4, 16, 16)),
    (ConvShape((8, 8, 8)), (9, 25, 49)),
    (ConvShape((8, 8, 8), norm="group"), (9, 25, 49)),
]


@pytest.mark.parametrize(("shape", "expected"), KNOWN, ids=str)
def test_a_feature_sees_what_its_kernels_and_poolings_let_it_see(shape, expected):
    found = reaches(host(lambda: ConvHost(3, 4, shape)), BLOCKS, torch.zeros(2, 3, 16, 16))
    for name, positions in zip(BLOCKS, expected, strict=True):
        assert 0.7 * positions <= found[name].positions <= positions, name
        assert found[name].share == found[name].positions / 256


def test_it_is_known_of_slots_by_name_whatever_their_order_and_however_deep():
    net = host(lambda: nn.Sequential(nn.Conv2d(1, 8, 5), nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(8, 4, 3))))
    body = esper.graft(net, at=["1", "0"], example=torch.zeros(2, 1, 12, 12))
    first, second = body.snapshots()
    assert (first.slot, second.slot) == ("1", "0")
    assert 35 <= first.reach <= 49
    assert 20 <= second.reach <= 25
    assert second.reach_share == second.reach / 144
    assert (first.resolution, second.resolution) == (36, 64)


def test_an_image_that_comes_by_keyword_is_one_too():
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.head = nn.Conv2d(1, 4, 1), nn.Linear(4, 3)

        def forward(self, pixels: Tensor, scale: float) -> Tensor:
            return self.head(scale * self.stem(pixels).mean(dim=(2, 3)))

    found = reaches(host(Named), ["stem"], {"pixels": torch.zeros(2, 1, 6, 6), "scale": 2.0})
    assert found == {"stem": Reach(1, 1 / 36)}


class Picky(nn.Module):
    """Takes nothing but its own kind of data."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(1, 4, 1), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        if len(x) != 2:
            raise ValueError("two, and only two")
        return self.head(self.stem(x).mean(dim=(2, 3)))


@pytest.mark.parametrize(
    ("build", "at", "example"),
    [
        (lambda: DenseHost(7, 3, (8,)), "layer0", torch.zeros(2, 7)),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 4)), "1", torch.zeros(2, 1, 4, 4)),
        (lambda: nn.Sequential(nn.Embedding(5, 6), nn.Flatten(), nn.Linear(24, 4)), "2", torch.zeros(2, 4).long()),
        (Picky, "stem", torch.zeros(2, 1, 4, 4)),
    ],
    ids=["dense", "flat features", "tokens", "picky"],
)
def test_what_cannot_be_measured_is_not(build, at, example):
    body = esper.graft(host(build), at=[at], example=example)
    (slot,) = body.snapshots()
    assert (slot.reach, slot.reach_share) == (None, None)


def test_a_dead_host_sees_nothing_and_says_so():
    net = nn.Sequential(nn.Conv2d(1, 4, 1), nn.Threshold(1e9, 0.0))
    assert reaches(net, ["1"], torch.zeros(2, 1, 4, 4)) == {}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_measuring_leaves_the_host_as_it_was(case):
    body = case.body()
    body.host.train()
    plain = body.ungraft()
    before = full_state(body)
    reaches(plain, case.at, case.inputs(2))
    assert same(full_state(body), before)
    assert all(parameter.grad is None for parameter in plain.parameters())
