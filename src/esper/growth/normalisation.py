"""The batch norm of our hosts and convolutional seeds."""

from torch import Tensor, nn
from torch.nn import functional

MOMENTUM = 0.5
"""A channel has thousands of values in a batch, so each batch is a good estimate; what hurts is an old one."""
RAGGED_SHARE = 0.25
"""A batch with less than this share of the largest one so far, as the last of an epoch may be, is no good estimate."""


class ChannelNorm(nn.BatchNorm2d):
    """Batch norm whose running statistics a ragged last batch does not ruin.

    It also trains on a single value per channel (one sample, one pixel), by running statistics.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(channels, momentum=MOMENTUM)
        self.largest_batch = 0

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        if input.numel() == self.num_features:
            return functional.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, training=False, eps=self.eps
            )
        rows = input.shape[0]
        if rows < RAGGED_SHARE * self.largest_batch:
            return functional.batch_norm(input, None, None, self.weight, self.bias, training=True, eps=self.eps)
        self.largest_batch = max(rows, self.largest_batch)
        return super().forward(input)
