"""Choices that last: exploration which sees what comes of never doing something; and play that follows a course.

Who draws anew in every step, and does something with probability 0.2, has done it after twenty steps almost surely. So
such a policy never sees what leaving it would have brought, and cannot learn to. Here a lasting choice is decided by a
number that is kept from step to step: it is made with the policy's probability, and if it is not, that stands while the
policy stays as it is. In later steps such choices are therefore rarer than the policy says; the critic learns the
values of what really happens, and waiting is credited with what comes of waiting.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from esper.rl.categorical import sample


@dataclass
class Resolve:
    """Draws the choices of one head through one episode.

    `lasting` are the choices that are decided by numbers which are kept. They are drawn anew when one of these choices
    was made, and otherwise in each step with probability 1 - `persistence`.
    """

    lasting: tuple[int, ...]
    persistence: float
    numbers: tuple[float, ...] | None = None
    """Those that are kept; None if the next step draws them."""

    def draw(self, log_probs: Tensor, generator: torch.Generator) -> Tensor:
        """One choice from the log-probabilities of one row, (..., choices) with leading axes of size 1."""
        probabilities = log_probs.exp().flatten()
        left = 1.0
        for choice, number in zip(self.lasting, self._kept(generator), strict=True):
            probability = float(probabilities[choice])
            if number * left < probability:
                self.numbers = None
                return torch.full(log_probs.shape[:-1], choice)
            left -= probability
            probabilities[choice] = 0.0
        if left < 1e-6:  # rounding aside, nothing else was legal
            return sample(log_probs, generator)
        return torch.multinomial(probabilities, 1, generator=generator).reshape(log_probs.shape[:-1])

    def _kept(self, generator: torch.Generator) -> tuple[float, ...]:
        if self.numbers is None or float(torch.rand((), generator=generator)) >= self.persistence:
            self.numbers = tuple(torch.rand(len(self.lasting), generator=generator).tolist())
        return self.numbers


@dataclass
class Typical:
    """The likeliest course of an episode, where the likeliest choice of each step would only be the likeliest step.

    Who finishes something with probability 0.3 in every step has finished it after two steps more likely than not, yet
    in no step is finishing the likeliest choice. Here a choice is made when by now it would have been made with a
    probability above one half: lasting choices, which are decided once, in steps where the policy is that sure; the
    others when the chances of the steps since they were last made, or last became legal, have added up to it.
    """

    rest: int
    """The choice that leaves everything as it is: made when nothing else is due."""
    lasting: tuple[int, ...]
    undone: tuple[float, ...] = ()
    """For each choice, the chance that it would not have been made by now."""

    def draw(self, log_probs: Tensor) -> Tensor:
        """The choice for the log-probabilities of one row, (..., choices) with leading axes of size 1."""
        probabilities = log_probs.exp().flatten().tolist()
        before = self.undone or (1.0,) * len(probabilities)
        undone = [
            1.0 - p if p == 0.0 or choice in self.lasting else left * (1.0 - p)
            for choice, (p, left) in enumerate(zip(probabilities, before, strict=True))
        ]
        undone[self.rest] = 0.5 if probabilities[self.rest] else 1.0
        made = min(range(len(undone)), key=undone.__getitem__)
        undone[made] = 1.0
        self.undone = tuple(undone)
        return torch.full(log_probs.shape[:-1], made)
