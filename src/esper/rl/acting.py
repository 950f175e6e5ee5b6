"""Drawing decisions from a network, and judging the same decisions again: one definition of probability for both."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from esper.rl.categorical import chosen, entropy, log_probabilities, require_choice, sample
from esper.rl.memory import MemoryState
from esper.rl.network import Encoded, Network, Observation
from esper.rl.sequences import Sequences

Draw = Callable[[Tensor], Tensor]
MOOD = "mood"
"""The part of an observation, where there is one, that is added to the logits of the first head, (B, T, choices).

Drawn once for an episode, it explores what comes of doing something always, or never. It is data of the row, so it is
part of the probability of what was done, in acting and in learning alike.
"""


class Acted(NamedTuple):
    """A decision per row. `log_probs` and `free` are (B, heads); unused heads chose 0 with log-probability 0."""

    choices: Tensor
    """(B, heads): whole numbers, or real ones if the network is continuous."""
    log_probs: Tensor
    free: Tensor
    values: Tensor
    state: MemoryState
    distributions: tuple[Tensor, ...]
    """Log-probabilities of all choices, one tensor (B, heads, choices) per level; none of real numbers."""


class Replayed(NamedTuple):
    """The same decisions under other weights. Shapes (B, T, heads), values (B, T)."""

    log_probs: Tensor
    entropy: Tensor
    free: Tensor
    values: Tensor


@torch.inference_mode()
def act(
    network: Network,
    observation: Observation,
    state: MemoryState,
    starts: Tensor,
    generator: torch.Generator | None,
    exploration: float = 0.0,
    draw_first: Draw | None = None,
) -> Acted:
    """One decision for each of B rows; without a generator the likeliest one. Observations are (B, ...).

    `draw_first` draws the choices of the first level from their log-probabilities, in place of both rules.
    """
    observation = {name: value.unsqueeze(1) for name, value in observation.items()}
    encoded = network.encode(observation, state, starts.unsqueeze(1))
    if network.continuous:
        return _numbers_drawn(network, encoded, generator)
    choices = torch.zeros(*encoded.values.shape, len(network.heads), dtype=torch.long, device=encoded.values.device)
    log_probs, free = torch.zeros_like(choices, dtype=torch.float32), torch.zeros_like(choices, dtype=torch.bool)
    distributions = []
    for level, heads in enumerate(network.levels):
        logits, mask = _logits(network, encoded, observation, level, choices)
        require_choice(mask)
        distribution = log_probabilities(logits, mask, exploration)
        choice = draw_first(distribution) if draw_first and level == 0 else _drawn(distribution, generator)
        choices[..., heads], log_probs[..., heads] = choice, chosen(distribution, choice)
        free[..., heads] = mask.sum(dim=-1) > 1
        distributions.append(distribution.squeeze(1))
    values = encoded.values.squeeze(1)
    return Acted(choices.squeeze(1), log_probs.squeeze(1), free.squeeze(1), values, encoded.state, tuple(distributions))


def _numbers_drawn(network: Network, encoded: Encoded, generator: torch.Generator | None) -> Acted:
    law = network.gaussian(encoded)
    numbers = law.draw(generator)
    free = torch.ones_like(numbers, dtype=torch.bool)
    log_probs, values = law.log_probs(numbers).squeeze(1), encoded.values.squeeze(1)
    return Acted(numbers.squeeze(1), log_probs, free.squeeze(1), values, encoded.state, ())


def _logits(
    network: Network, encoded: Encoded, observation: Observation, level: int, choices: Tensor
) -> tuple[Tensor, Tensor]:
    """Logits and mask of a level, in the mood of the row."""
    logits, mask = network.logits(encoded, observation, level, choices)
    if level == 0 and MOOD in observation:
        logits = logits + observation[MOOD].unsqueeze(-2)
    return logits, mask


def _drawn(distribution: Tensor, generator: torch.Generator | None) -> Tensor:
    return distribution.argmax(dim=-1) if generator is None else sample(distribution, generator)


@torch.inference_mode()
def value_of(network: Network, observation: Observation, state: MemoryState, starts: Tensor) -> Tensor:
    """V of the state in which each row is now, (B): the bootstrap of an episode that was cut."""
    observation = {name: value.unsqueeze(1) for name, value in observation.items()}
    return network.encode(observation, state, starts.unsqueeze(1)).values.squeeze(1)


def replay(network: Network, sequences: Sequences, exploration: float = 0.0) -> Replayed:
    """Whole rows again, from their stored first states, with gradients."""
    encoded = network.encode(sequences.observation, sequences.state, sequences.starts)
    if network.continuous:
        law = network.gaussian(encoded)
        return Replayed(law.log_probs(sequences.choices), law.nats(), sequences.free, encoded.values)
    parts = [_judged(network, encoded, sequences, level, exploration) for level in range(len(network.levels))]
    log_probs, entropies, free = (torch.cat(column, dim=-1) for column in zip(*parts, strict=True))
    return Replayed(log_probs, entropies, free, encoded.values)


@torch.no_grad()
def likeliest(network: Network, sequences: Sequences) -> Tensor:
    """Which of the choices are the likeliest of their heads, given the heads before them; (B, T, heads)."""
    encoded = network.encode(sequences.observation, sequences.state, sequences.starts)
    agreed = torch.zeros_like(sequences.free)
    for level, heads in enumerate(network.levels):
        logits, mask = _logits(network, encoded, sequences.observation, level, sequences.choices)
        agreed[..., heads] = log_probabilities(logits, mask).argmax(dim=-1) == sequences.choices[..., heads]
    return agreed


def _judged(
    network: Network, encoded: Encoded, sequences: Sequences, level: int, exploration: float
) -> tuple[Tensor, Tensor, Tensor]:
    logits, mask = _logits(network, encoded, sequences.observation, level, sequences.choices)
    distribution = log_probabilities(logits, mask, exploration)
    made = sequences.choices[..., network.levels[level]]
    return chosen(distribution, made), entropy(distribution, mask), mask.sum(dim=-1) > 1
