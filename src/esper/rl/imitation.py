"""Imitation: a network learns to decide as recorded policies did, from whole episodes.

What is minimised is the negative logarithm of the probability of what was done, over the heads that were used and had a
choice. The network sees each episode from its start, so that it can imitate what depends on the past. It learns until
episodes that it does not learn from become no likelier.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from esper.rl.acting import Replayed, likeliest, replay
from esper.rl.categorical import FILL
from esper.rl.config import require_ranges
from esper.rl.episodes import Contents, Episodes, begun
from esper.rl.errors import IllegalChoice
from esper.rl.network import Network
from esper.rl.sequences import Sequences


@dataclass(frozen=True)
class ImitationConfig:
    """Settings of imitation."""

    seed: int = 0
    """Of the order of the episodes."""
    passes: int = 60
    """Over the training episodes, at most."""
    patience: int = 8
    """Passes without a likelier held-out decision, after which it ends. The best weights are kept."""
    batch: int = 16
    """Episodes in a step of the optimiser."""
    learning_rate: float = 1e-3
    """Falls to a hundredth over all passes, on a straight line."""
    weight_decay: float = 0.01
    max_gradient_norm: float = 1.0
    rarity: float = 0.0
    """How much more a decision counts, the rarer what its first head chose: 0 counts all alike, 1 all choices alike."""

    def __post_init__(self) -> None:
        require_ranges(self, RANGES)


RANGES = {
    "seed": (0, 2**31),
    "passes": (1, 1_000_000),
    "patience": (1, 1_000_000),
    "batch": (1, 100_000),
    "learning_rate": (1e-8, 1.0),
    "weight_decay": (0.0, 10.0),
    "max_gradient_norm": (1e-6, 1e6),
    "rarity": (0.0, 1.0),
}


@dataclass(frozen=True)
class Likeness:
    """How well a policy repeats recorded decisions. None where nothing was decided, or choices are real numbers."""

    episodes: int
    decisions: int
    """Steps in which some head had a choice."""
    surprise: float
    """Mean over them of minus the log-probability of what was done, in nats."""
    repeated: float | None
    """Share of decisions of which every head's choice is the likeliest one."""
    heads: dict[str, float | None]
    """The same for each head, over the steps where it had a choice."""


@dataclass(frozen=True)
class ImitationPass:
    """One pass over the training episodes."""

    number: int
    surprise: float
    """On the training episodes, along the way."""
    held_out: Likeness
    best: bool
    """Whether held-out decisions are likelier than ever before."""


class Imitation:
    """A network, and what makes it alike."""

    def __init__(self, network: Network, config: ImitationConfig | None = None) -> None:
        self.network, self.config = network, config or ImitationConfig()
        self.generator = torch.Generator().manual_seed(self.config.seed)
        self.optimizer = torch.optim.AdamW(
            network.parameters(), self.config.learning_rate, weight_decay=self.config.weight_decay
        )

    def learn(
        self, training: Episodes, held_out: Episodes, watch: Callable[[ImitationPass], object] | None = None
    ) -> Likeness:
        """Pass by pass, each shown to `watch`. The network ends with the best weights, whose likeness this is."""
        config, best, weights, waited = self.config, None, {}, 0
        rarities = self._rarities(training)
        for number in range(config.passes):
            for group in self.optimizer.param_groups:
                group["lr"] = config.learning_rate * (1 - 0.99 * number / config.passes)
            surprise = self._pass(training, rarities)
            found = likeness(self.network, held_out, config.batch)
            waited = 0 if best is None or found.surprise < best.surprise else waited + 1
            if waited == 0:
                best, weights = found, copy.deepcopy(self.network.state_dict())
            if watch is not None:
                watch(ImitationPass(number + 1, surprise, found, best=waited == 0))
            if waited >= config.patience:
                break
        self.network.load_state_dict(weights)
        assert best is not None
        return best

    def _rarities(self, training: Episodes) -> Tensor:
        """What a decision counts by what its first head chose; 1 in the mean over all decisions."""
        chosen = Contents.of(training, len(self.network.heads), 1.0, self.config.batch).chosen
        counts = torch.where(chosen > 0, chosen.clamp(min=1) ** -self.config.rarity, 0.0)
        mean = (counts * chosen).sum() / chosen.sum()
        return counts / mean if self.config.rarity and bool(chosen.any()) else torch.zeros(0)

    def _pass(self, training: Episodes, rarities: Tensor) -> float:
        total, decisions = 0.0, 0
        for rows in training.batches(self.config.batch, self.generator):
            again = replay(self.network, begun(rows, self.network))
            require_legal(self.network, again, rows)
            loss = surprise(again, rows.valid, weights_of(rows, rarities))
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.network.parameters(), self.config.max_gradient_norm)
            self.optimizer.step()
            count = int((again.free & rows.valid.unsqueeze(-1)).any(dim=-1).sum())
            total, decisions = total + loss.item() * count, decisions + count
        return total / max(decisions, 1)


def surprise(again: Replayed, valid: Tensor, weights: Tensor | float = 1.0) -> Tensor:
    """Minus the log-probability of what was done, per step with a choice; `weights` as heads, or 1 for all of them."""
    free = again.free & valid.unsqueeze(-1)
    return -(again.log_probs * free * weights).sum() / free.any(dim=-1).sum().clamp(min=1)


def weights_of(rows: Sequences, rarities: Tensor) -> Tensor | float:
    """(B, T, 1): what each decision counts. Where the first head had no choice, 1."""
    if not len(rarities):
        return 1.0
    return torch.where(rows.free[..., 0], rarities[rows.choices[..., 0]], 1.0).unsqueeze(-1)


def require_legal(network: Network, again: Replayed, rows: Sequences) -> None:
    """Refuse decisions that the masks beside them do not allow."""
    wrong = (again.log_probs < FILL / 2) & rows.valid.unsqueeze(-1)
    if not network.continuous and bool(wrong.any()):
        row, step, head = wrong.nonzero()[0].tolist()
        choice = int(rows.choices[row, step, head])
        raise IllegalChoice(
            f"row {row}, step {step}: head '{network.heads[head]}' chose {choice}, which its mask does not allow; "
            "the recording is damaged, or of other masks"
        )


@torch.no_grad()
def likeness(network: Network, episodes: Episodes, batch: int = 16) -> Likeness:
    """How well the network repeats what was done in these episodes."""
    heads = len(network.heads)
    count, total, decided, alike = 0, 0.0, 0, 0
    used, same = torch.zeros(heads), torch.zeros(heads)
    for rows in episodes.batches(batch, torch.Generator().manual_seed(0)):
        rows = begun(rows, network)
        again = replay(network, rows)
        require_legal(network, again, rows)
        free = again.free & rows.valid.unsqueeze(-1)
        deciding = free.any(dim=-1)
        count, decided = count + rows.rows, decided + int(deciding.sum())
        total -= (again.log_probs * free).sum().item()
        if not network.continuous:
            agreed = likeliest(network, rows)
            alike += int(((agreed | ~free).all(dim=-1) & deciding).sum())
            used, same = used + free.sum(dim=(0, 1)), same + (agreed & free).sum(dim=(0, 1))
    shares = zip(network.heads, used.tolist(), same.tolist(), strict=True)
    return Likeness(
        episodes=count,
        decisions=decided,
        surprise=total / decided if decided else math.nan,
        repeated=alike / decided if decided and not network.continuous else None,
        heads={name: right / of if of else None for name, of, right in shares},
    )
