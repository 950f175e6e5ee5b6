"""Learning from the last few rollouts instead of the newest alone.

Experience is dear where a step is an epoch of training, and one rollout says little of choices that are seldom made.
Older rows were made by older policies, so they are judged again by the present one (V-trace): values are estimated
anew, the clip range lies around the present probabilities, and a decision, with all its heads, counts by the ratio of
its present probability to the one it was made with, up to 1; so does what came of it for the decisions before it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from esper.rl.acting import replay
from esper.rl.memory import MemoryState
from esper.rl.network import Network
from esper.rl.sequences import ROW_TENSORS, Sequences, join


class Rollout(NamedTuple):
    """Rows, and the number of each row's group: advantages are compared within a group."""

    sequences: Sequences
    groups: tuple[int, ...]

    def copied(self) -> "Rollout":
        """The same in memory of its own: a buffer's rows are good until it begins again."""
        state = MemoryState(*(part.clone() for part in self.sequences.state))
        return Rollout(self.sequences.mapped(Tensor.clone, state), self.groups)

    def plain(self) -> dict[str, Any]:
        """As dictionaries, lists and tensors, for a file."""
        return self.sequences._asdict() | {"state": list(self.sequences.state), "groups": list(self.groups)}


def rollout_in(plain: Mapping[str, Any], network: Network) -> Rollout:
    """What `Rollout.plain` gave, with memory of its own on the network's device.

    Raises an error of some kind unless the network could have made the rows.
    """
    device = next(network.parameters()).device
    hidden, cell = (part.to(device) for part in plain["state"])
    parts = {name: plain[name] for name in (*ROW_TENSORS, "observation")}
    given = Sequences(**parts, state=MemoryState(hidden, cell))
    rollout = Rollout(given.mapped(lambda part: part.to(device), given.state), tuple(plain["groups"])).copied()
    rollout.sequences.check(len(network.heads))
    if len(rollout.groups) != rollout.sequences.rows or not all(type(group) is int for group in rollout.groups):
        raise ValueError(f"groups {rollout.groups} of {rollout.sequences.rows} rows")
    with torch.no_grad():
        replay(network, rollout.sequences)
    return rollout


class Experience(NamedTuple):
    """What one update learns from: rows as the present policy sees them, the newest first."""

    sequences: Sequences
    counts: Tensor
    """(B, T): how much each decision counts, from 0 to 1; 1 in the newest rollout."""
    groups: tuple[int, ...]


@torch.no_grad()
def recalled(network: Network, newest: Rollout, past: Sequence[Rollout], exploration: float) -> Experience:
    """The newest rollout together with earlier ones, which are judged again."""
    counts = torch.ones_like(newest.sequences.rewards)
    if not past:
        return Experience(newest.sequences, counts, newest.groups)
    old = join([rollout.sequences for rollout in past])
    now = replay(network, old, exploration)
    log_probs = now.log_probs.masked_fill(~old.free, 0.0)
    values = now.values.masked_fill(~old.valid, 0.0)
    # What follows a row was not kept: it is thought to have changed in value as the last state of the row has.
    bootstrap = old.bootstrap + (values - old.values) * (old.bootstrap != 0)
    again = old._replace(log_probs=log_probs, values=values, bootstrap=bootstrap)
    together = join([newest.sequences, again])
    counts = torch.ones_like(together.rewards)
    ratio = (log_probs - old.log_probs).masked_fill(~old.free, 0.0).sum(dim=-1).exp()
    counts[newest.sequences.rows :, : ratio.shape[1]] = ratio.clamp(max=1.0)
    return Experience(together, counts, sum((rollout.groups for rollout in past), newest.groups))
