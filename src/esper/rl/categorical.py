"""A choice among a few, some of which are not allowed: the one definition for acting and for learning.

Probabilities are (1 - epsilon) * softmax + epsilon / n over the n legal choices. The mixture explores without a hard
floor, so every legal choice keeps its gradient. All functions take leading axes of any shape and choices last.
"""

import math

import torch
from torch import Tensor

from esper.rl.errors import EmptyMask

FILL = -1e4
"""The logit and log-probability of what is not allowed: finite, and safe in half precision."""


def require_choice(mask: Tensor) -> None:
    """Refuse masks without a legal choice. Called where data enters, outside of anything that is compiled."""
    empty = ~mask.any(dim=-1)
    if bool(empty.any()):
        where = empty.nonzero()[0].tolist()
        raise EmptyMask(f"the mask at index {where} allows nothing; allow at least one choice, such as doing nothing")


def log_probabilities(logits: Tensor, mask: Tensor, epsilon: float = 0.0) -> Tensor:
    """Log-probabilities of all choices; those of illegal ones are `FILL`."""
    legal = mask.to(logits.dtype)
    illegal = (1 - legal) * FILL
    pure = _log_softmax(torch.addcmul(illegal, logits, legal))
    if epsilon > 0.0:
        uniform = -legal.sum(dim=-1, keepdim=True).clamp(min=1).log()
        pure = torch.logaddexp(pure + math.log1p(-epsilon), uniform + math.log(epsilon))
    return torch.addcmul(illegal, pure, legal)


def _log_softmax(logits: Tensor) -> Tensor:
    """With choices in front, many rows are done at once: on a CPU much faster for a few choices."""
    return torch.log_softmax(logits.movedim(-1, 0).contiguous(), dim=0).movedim(0, -1)


def entropy(log_probs: Tensor, mask: Tensor) -> Tensor:
    """From 0 to 1, whatever the number of legal choices; 0 where there is only one."""
    legal = mask.to(log_probs.dtype)
    count = legal.sum(dim=-1)
    # Zeroed before the exponential, which is slow where it underflows.
    legal_only = log_probs * legal
    nats = -(legal_only.exp() * legal_only).sum(dim=-1)
    return nats * (count > 1) / count.clamp(min=2).log()


def sample(log_probs: Tensor, generator: torch.Generator) -> Tensor:
    """One choice each, from the generator alone."""
    flat = log_probs.exp().reshape(-1, log_probs.shape[-1])
    return torch.multinomial(flat, 1, generator=generator).reshape(log_probs.shape[:-1])


def chosen(log_probs: Tensor, choice: Tensor) -> Tensor:
    """The log-probability of each choice made."""
    return log_probs.gather(-1, choice.unsqueeze(-1)).squeeze(-1)
