"""The linear layer that convolves where there is much to multiply, against torch's own."""

import pytest
import torch
from torch import nn

from esper.rl import dense
from esper.rl.dense import Dense

SHAPES = {
    "8 rows of 150": (8, 150),
    "150 rows of 8": (150, 8),
    "one axis": (1200,),
    "a number of rows that nothing divides": (1201,),
    "few": (40,),
    "none": (0,),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("bias", [True, False])
def test_features_and_all_gradients_are_those_of_a_linear_layer(shape, bias):
    own, theirs = Dense(128, 96, bias=bias), nn.Linear(128, 96, bias=bias)
    theirs.load_state_dict(own.state_dict())
    inputs, aim = torch.randn(*shape, 128, requires_grad=True), torch.randn(*shape, 96)
    outcomes = []
    for layer in (own, theirs):
        inputs.grad = None
        features = layer(inputs)
        (features * aim).sum().backward()
        outcomes.append([features.detach(), inputs.grad, *(parameter.grad for parameter in layer.parameters())])
    for found, wanted in zip(*outcomes, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def convolves(layer, inputs):
    return "ConvolutionBackward0" in operations(layer(inputs).grad_fn)


def operations(node):
    return {type(node).__name__} | {name for parent, _ in node.next_functions if parent for name in operations(parent)}


def test_only_what_is_much_and_can_be_divided_is_convolved():
    layer = Dense(128, 96)
    assert convolves(layer, torch.randn(150, 8, 128))
    assert convolves(layer, torch.randn(8, 150, 128).transpose(0, 1))
    assert not convolves(layer, torch.randn(dense.MUCH // layer.weight.numel(), 128))
    assert not convolves(layer, torch.randn(1201, 128))
    assert not convolves(layer, torch.randn(8, 128))
