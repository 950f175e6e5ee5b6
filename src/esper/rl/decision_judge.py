"""A judge says what decisions are worth: Q of what a network remembers and of what was done."""

import torch
from torch import Tensor, nn

from esper.rl.dense import Dense
from esper.rl.episodes import begun
from esper.rl.network import Network, orthogonal
from esper.rl.sequences import Sequences


class DecisionJudge(nn.Module):
    """Two layers over what a network of its own describes, learned at the scale of returns.

    Of the network it needs all that stands before the heads; these, and its critic, learn nothing here.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, network: Network, hidden: int = 128) -> None:
        """Draws its first weights from the global generator, as networks do."""
        super().__init__()
        self.network = network
        self.worth = nn.Sequential(
            orthogonal(Dense(network.described, hidden), 2**0.5),
            nn.ReLU(),
            orthogonal(Dense(hidden, hidden), 2**0.5),
            nn.ReLU(),
            orthogonal(Dense(hidden, 1), 1.0),
        )
        self.register_buffer("mean", torch.tensor(0.0))
        self.register_buffer("deviation", torch.tensor(1.0))

    @torch.no_grad()
    def rescale(self, mean: float, deviation: float) -> None:
        """What returns are like, before anything was learned."""
        self.mean.fill_(mean)
        self.deviation.fill_(deviation)

    def forward(self, rows: Sequences) -> Tensor:
        """What the decisions are worth, (B, T), in units of return; of rows that begin with their episodes."""
        rows = begun(rows, self.network)
        encoded = self.network.encode(rows.observation, rows.state, rows.starts)
        scaled: Tensor = self.worth(self.network.describe(encoded, rows.choices)).squeeze(-1)
        return scaled * self.deviation + self.mean
