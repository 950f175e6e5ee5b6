"""What a network costs is counted in every mode alike."""

import torch
from torch import nn
from torch.backends import mha

from esper.growth import GPTHost, GPTShape, count_flops


def test_operations_of_a_fast_path_are_counted() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True).eval()
    x = torch.zeros(1, 8, 16)
    counted = count_flops(layer, x)
    with torch.no_grad():
        assert count_flops(layer, x) == counted > 2 * 8 * 16 * 4 * 16
    assert mha.get_fastpath_enabled()


def test_operations_of_a_language_model_are_counted_on_every_device() -> None:
    words, tokens, width, heads = 65, 16, 24, 3
    host, x = GPTHost(words, GPTShape(2, width, heads, tokens)), torch.zeros(1, tokens, dtype=torch.long)
    norm, residual, scores = 7 * tokens * width, tokens * width, heads * tokens * tokens
    attention = norm + 2 * tokens * width * 4 * width + 2 * 2 * tokens * tokens * width
    attention += scores + scores + 2 * residual  # softmax, the causal mask, queries and keys scaled
    mlp = norm + 2 * 2 * tokens * width * 4 * width + 4 * residual
    expected = residual + 2 * (attention + mlp + 2 * residual) + norm + 2 * tokens * width * words
    assert count_flops(host, x) == expected
    with torch.no_grad():
        assert count_flops(host.eval(), x) == expected
    assert count_flops(host.to("meta"), x.to("meta")) == expected
