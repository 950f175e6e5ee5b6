"""The steps of a rollout whose choices an update made most likelier or unlikelier."""

from typing import NamedTuple

import torch

from esper.rl.acting import replay
from esper.rl.network import Network
from esper.rl.sequences import Sequences


class StepRatio(NamedTuple):
    """One head's choice in one step, and how much likelier the present policy makes it than the one that chose it."""

    row: int
    step: int
    head: str
    choice: int
    ratio: float


@torch.no_grad()
def extreme_ratios(network: Network, sequences: Sequences, exploration: float, count: int) -> list[StepRatio]:
    """The `count` ratios furthest from 1 on the logarithmic scale, the furthest first; one that is not a number is."""
    free = sequences.free & sequences.valid.unsqueeze(-1)
    new = replay(network, sequences, exploration)
    moved = (new.log_probs - sequences.log_probs).nan_to_num(nan=torch.inf).masked_fill(~free, 0.0).flatten()
    places = moved.abs().topk(min(count, int(free.sum()))).indices
    rows, steps, heads = (place.tolist() for place in torch.unravel_index(places, free.shape))
    names = [network.heads[head] for head in heads]
    choices, ratios = sequences.choices.flatten()[places].tolist(), moved[places].exp().tolist()
    return [StepRatio(*found) for found in zip(rows, steps, names, choices, ratios, strict=True)]
