"""Learning from the last few rollouts instead of the newest alone.

Experience is dear where a step is an epoch of training, and one rollout says little of choices that are seldom made.
Older rows were made by older policies, so they are judged again by the present one: values are estimated anew, the clip
range lies around the present probabilities, and a choice counts by how much likelier it has become since it was made.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from esper.rl.acting import replay
from esper.rl.memory import MemoryState
from esper.rl.network import Network
from esper.rl.sequences import ROW_TENSORS, Sequences, join

MOST_WORTH = 2.0
"""The most that an old choice may count: rare choices that have become likely would drown all others."""


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
    worth: Tensor
    """(B, T, heads): how much each choice counts; 1 in the newest rollout."""
    groups: tuple[int, ...]


@torch.no_grad()
def recalled(network: Network, newest: Rollout, past: Sequence[Rollout], exploration: float) -> Experience:
    """The newest rollout together with earlier ones, which are judged again."""
    if not past:
        return Experience(newest.sequences, torch.ones_like(newest.sequences.log_probs), newest.groups)
    old = join([rollout.sequences for rollout in past])
    now = replay(network, old, exploration)
    log_probs = now.log_probs.masked_fill(~old.free, 0.0)
    again = old._replace(log_probs=log_probs, values=now.values.masked_fill(~old.valid, 0.0))
    together = join([newest.sequences, again])
    worth = torch.ones_like(together.log_probs)
    worth[newest.sequences.rows :, : old.log_probs.shape[1]] = (log_probs - old.log_probs).exp().clamp(max=MOST_WORTH)
    return Experience(together, worth, sum((rollout.groups for rollout in past), newest.groups))
