"""What a network costs is counted in every mode alike."""

import torch
from torch import nn
from torch.backends import mha

from esper.growth import count_flops


def test_operations_of_a_fast_path_are_counted() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True).eval()
    x = torch.zeros(1, 8, 16)
    counted = count_flops(layer, x)
    with torch.no_grad():
        assert count_flops(layer, x) == counted > 2 * 8 * 16 * 4 * 16
    assert mha.get_fastpath_enabled()


def test_operations_of_a_recurrent_layer_are_counted() -> None:
    layer, x = nn.LSTM(12, 16, batch_first=True).eval(), torch.zeros(1, 8, 12)
    with torch.no_grad():
        assert count_flops(layer, x) >= 8 * 2 * (12 + 16) * 4 * 16
    assert torch._C._get_mkldnn_enabled()
