"""The batch norm of our hosts and convolutional seeds."""

from torch import Tensor, nn
from torch.nn import functional

MOMENTUM = 0.5
"""A channel has thousands of values in a batch, so each batch is a good estimate; what hurts is an old one."""


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
