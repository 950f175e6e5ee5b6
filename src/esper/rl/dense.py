"""A linear layer that is fast where there is much to multiply.

On CPUs torch multiplies matrices by MKL and convolves by oneDNN. Where MKL holds back on processors of another maker, a
convolution of width 1, which is the same product, takes half the time.
"""

import torch
from torch import Tensor, nn

MUCH = 2**23
"""Products of two numbers in one call from which on a convolution is worth its preparations."""
IMAGES = 16
"""From so many on torch convolves by oneDNN, also with a single thread."""
NARROWEST = 8
"""Images of fewer pixels are no faster."""


class Dense(nn.Linear):
    """`nn.Linear`, to rounding."""

    def forward(self, inputs: Tensor) -> Tensor:
        rows = inputs.numel() // self.in_features
        pixels = _pixels(rows) if inputs.device.type == "cpu" and rows * self.weight.numel() >= MUCH else 0
        if pixels < NARROWEST:
            return super().forward(inputs)
        images = inputs.reshape(-1, pixels, 1, self.in_features).permute(0, 3, 1, 2)
        features = torch.conv2d(images, self.weight[:, :, None, None], self.bias)
        return features.permute(0, 2, 3, 1).reshape(*inputs.shape[:-1], self.out_features)


def _pixels(rows: int) -> int:
    """Of as many images as there must be, or a few more, so that all rows have a place."""
    return next((pixels for pixels in range(rows // IMAGES, NARROWEST - 1, -1) if rows % pixels == 0), 0)
