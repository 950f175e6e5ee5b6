"""What a policy would return, guessed from episodes of others by importance weights: a hint, never a result.

Each episode counts by how much likelier the policy makes all its decisions than they were when they were made. With
tens of decisions an episode nearly all the weight falls on a few episodes; `effective` says on how many.
"""

from typing import NamedTuple

import torch

from esper.rl.acting import replay
from esper.rl.episodes import Episodes, begun
from esper.rl.network import Network


class ImportanceEstimate(NamedTuple):
    """An estimate of the mean return, undiscounted."""

    weighted: float
    """Mean return of the episodes, each counted by its weight."""
    effective: float
    """How many episodes that are counted alike would be as uncertain: (sum of weights)^2 / (sum of their squares)."""
    recorded: float
    """Mean return of the episodes as they were recorded."""
    episodes: int


@torch.no_grad()
def importance_estimate(
    network: Network, episodes: Episodes, exploration: float = 0.0, batch: int = 16
) -> ImportanceEstimate:
    """Of drawn play. Where the recorded policy was certain its choices have log-probability 0."""
    ratios, returns = [], []
    for rows in episodes.batches(batch, torch.Generator().manual_seed(0)):
        rows = begun(rows, network)
        again = replay(network, rows, exploration)
        free = again.free & rows.valid.unsqueeze(-1)
        ratios.append(((again.log_probs - rows.log_probs).double() * free).sum(dim=(1, 2)))
        returns.append((rows.rewards * rows.valid).double().sum(dim=1))
    log_weights, totals = torch.cat(ratios), torch.cat(returns)
    weights = (log_weights - log_weights.max()).exp()
    effective = weights.sum().square() / weights.square().sum()
    weighted = (weights * totals).sum() / weights.sum()
    return ImportanceEstimate(weighted.item(), effective.item(), totals.mean().item(), len(totals))
