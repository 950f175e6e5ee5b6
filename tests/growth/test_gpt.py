"""The compact GPT."""

import pytest
import torch

from esper.growth import ContextTooLong, GPTHost, GPTShape, InvalidShape, count_parameters


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"layers": 0}, "layers = 0; give a whole number from 1"),
        ({"context": 10**9}, "context = 1000000000; give a whole number from 1 to 65536"),
        ({"width": 48, "heads": 5}, "width = 48 cannot be shared among heads = 5"),
    ],
)
def test_sizes_that_no_network_can_have_are_refused(sizes, message):
    with pytest.raises(InvalidShape, match=message):
        GPTShape(**sizes)


def test_a_character_model_of_two_layers_has_some_60_000_parameters():
    host = GPTHost(65, GPTShape())
    assert 55_000 < count_parameters(host.parameters()) < 65_000
    assert host.head.weight is host.embedding.tokens.weight


def test_newborn_guesses_are_nearly_even_and_every_parameter_learns():
    host, tokens = GPTHost(65, GPTShape()), torch.randint(65, (8, 64))
    loss = torch.nn.functional.cross_entropy(host(tokens).flatten(0, 1), tokens.roll(-1, 1).flatten())
    assert abs(loss.item() - torch.tensor(65.0).log().item()) < 0.1
    loss.backward()
    assert all(each.grad is not None and each.grad.any() for each in host.parameters())


def test_more_tokens_than_positions_are_refused():
    host = GPTHost(5, GPTShape(1, 4, 1, context=3))
    assert host(torch.zeros(2, 3, dtype=torch.long)).shape == (2, 3, 5)
    with pytest.raises(ContextTooLong, match="there are 4 tokens in a row, and this model has 3 positions"):
        host(torch.zeros(2, 4, dtype=torch.long))
