"""Greedy play where what counts is that something is done, sooner or later, and not in which step."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Typical:
    """Does each thing in the step by which half of all drawn plays would have done it.

    The likeliest choice of each step is not what a policy does: who finishes something with probability 0.3 in every
    step has finished it after two steps more likely than not, yet in no step is finishing the likeliest choice. Here

    - a choice is due when half of the plays that draw would have made it since it was last made, or became legal;
    - it rests as long as nothing is due, and half of the plays would have made no choice but resting since the last one
      that was not;
    - otherwise it makes, of all choices, the one that most plays would have made.

    So with one thing to do it is done at the median of the steps in which drawn plays do it, and left if most of them
    leave it.
    """

    rest: int
    """The choice that leaves everything as it is."""
    undone: tuple[float, ...] = ()
    """For each choice, the share of plays that would not have made it by now; for resting, the share that only
    rested."""

    def draw(self, log_probs: Tensor) -> Tensor:
        """The choice for the log-probabilities of one row, (..., choices) with leading axes of size 1."""
        probabilities = log_probs.exp().flatten().tolist()
        before = self.undone or (1.0,) * len(probabilities)
        undone = [left * (1.0 - p) if p else 1.0 for p, left in zip(probabilities, before, strict=True)]
        undone[self.rest] = resting = before[self.rest] * probabilities[self.rest]
        others = [choice for choice, p in enumerate(probabilities) if p and choice != self.rest]
        made = min(others, key=undone.__getitem__, default=self.rest)
        if made == self.rest or (resting >= 0.5 and undone[made] >= 0.5):
            made = self.rest
        else:
            undone[made] = undone[self.rest] = 1.0
        self.undone = tuple(undone)
        return torch.full(log_probs.shape[:-1], made)
