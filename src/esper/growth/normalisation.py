"""The batch norm of our hosts and convolutional seeds."""

from torch import Tensor, nn
from torch.nn import functional

MOMENTUM = 0.3
"""Newborn seeds and short epochs: running statistics must follow within a few batches, not within dozens."""


class ChannelNorm(nn.BatchNorm2d):
    """Batch norm that also trains on a single value per channel (one sample, one pixel), by running statistics."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, momentum=MOMENTUM)

    def forward(self, input: Tensor) -> Tensor:
        if self.training and input.numel() == self.num_features:
            return functional.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, training=False, eps=self.eps
            )
        return super().forward(input)
