"""Causal hosts are found by running them."""

import pytest
import torch
from torch import Tensor, nn

import esper
from esper.contracts import LAYOUTS, Topology
from esper.growth import GPTHost, GPTShape
from esper.growth.topologies import causal_tokens, topology_of

TOKENS = torch.randint(7, (2, 6), generator=torch.Generator().manual_seed(0))


class Reader(nn.Module):
    """Reads to and fro, or only on."""

    def __init__(self, both_ways: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head, self.both_ways = nn.Linear(8, 7), both_ways

    def forward(self, tokens: Tensor) -> Tensor:
        mask = None if self.both_ways else nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.head(self.encoder(self.embedding(tokens), mask=mask))


@pytest.mark.parametrize("tokens", [TOKENS, torch.zeros_like(TOKENS), TOKENS.int()])
def test_a_host_is_causal_if_later_tokens_change_nothing_before_them(tokens):
    assert causal_tokens(GPTHost(7, GPTShape(1, 8, 2, 6)), ["block0"], tokens) == 6
    assert causal_tokens(Reader(both_ways=False), ["encoder"], tokens) == 6
    assert causal_tokens(Reader(both_ways=True), ["encoder"], tokens) is None


@pytest.mark.parametrize(
    ("host", "example"),
    [
        (nn.Linear(6, 4), torch.randn(2, 6)),
        (nn.Conv2d(3, 4, 1), torch.randn(2, 3, 6, 6)),
        (nn.Embedding(7, 8), TOKENS[:, :1]),
    ],
    ids=["rows", "images", "a single token"],
)
def test_where_there_are_no_tokens_in_a_row_nothing_is_said(host, example):
    assert causal_tokens(nn.Sequential(host), ["0"], example) is None


def test_a_host_that_cannot_take_other_tokens_is_not_called_causal():
    class Picky(nn.Sequential):
        def forward(self, tokens: Tensor) -> Tensor:
            if not torch.equal(tokens, TOKENS):
                raise ValueError("only these")
            return super().forward(tokens)

    assert causal_tokens(Picky(nn.Embedding(7, 8)), ["0"], TOKENS) is None


def test_a_gardener_takes_the_tokens_of_a_host_that_looks_ahead_as_dense_features():
    for both_ways, topology in ((True, Topology.DENSE), (False, Topology.TRANSFORMER)):
        model = Reader(both_ways)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        gardener = esper.Gardener(model, optimizer, example=TOKENS, epochs=2, controller="constant")
        assert {slot.site.topology for slot in gardener.body.slots} == {topology}


def test_every_topology_has_a_layout_and_every_rank_of_features_a_topology():
    assert set(LAYOUTS) == set(Topology)
    for layout in LAYOUTS.values():
        for rank in layout.ranks:
            assert topology_of((2,) * rank, tokens=None) is not None
