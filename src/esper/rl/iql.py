"""Implicit Q-learning (IQL): what would have been best, from episodes of others, without trying anything else.

The network that will play has V for its critic. Two judges say Q of a decision, each from what a network of its own
remembers and a description of the decision. Slow copies of both are kept; the smaller of what these say is believed.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor, nn

from esper.rl.acting import replay
from esper.rl.config import require_ranges
from esper.rl.decision_judge import DecisionJudge
from esper.rl.episodes import Contents, Episodes, begun
from esper.rl.gae import bellman_errors
from esper.rl.imitation import require_legal, surprise
from esper.rl.network import Network
from esper.rl.normalise import Moments
from esper.rl.sequences import Sequences


@dataclass(frozen=True)
class IQLConfig:
    """Settings of implicit Q-learning."""

    seed: int = 0
    """Of the order of the episodes."""
    steps: int = 3000
    """Of the optimiser."""
    batch: int = 16
    """Episodes in a step."""
    discount: float = 0.99
    """Worth of the next step's return."""
    expectile: float = 0.8
    """Towards which V leans among the values of what was done: 0.5 is their mean, towards 1 their best."""
    inverse_temperature: float = 3.0
    """How much likelier a decision is made whose advantage is greater by one root mean square: e to this power."""
    most: float = 100.0
    """Times that a decision counts, at most."""
    polyak: float = 0.05
    """Share by which the judges that are believed follow those that learn, in every step."""
    learning_rate: float = 1e-3
    """Falls to a tenth over all steps, on a straight line."""
    weight_decay: float = 0.0
    value_weight: float = 0.5
    """Of the loss of V beside that of the policy, which has the same memory."""
    max_gradient_norm: float = 1.0
    """Of the network and of each judge."""

    def __post_init__(self) -> None:
        require_ranges(self, RANGES)


RANGES = {
    "seed": (0, 2**31),
    "steps": (1, 10_000_000),
    "batch": (1, 100_000),
    "discount": (0.0, 1.0),
    "expectile": (0.5, 0.999),
    "inverse_temperature": (0.0, 1e3),
    "most": (1.0, 1e6),
    "polyak": (1e-4, 1.0),
    "learning_rate": (1e-8, 1.0),
    "weight_decay": (0.0, 10.0),
    "value_weight": (1e-3, 1e3),
    "max_gradient_norm": (1e-6, 1e6),
}
SPREAD_MOMENTUM = 0.02
"""Of the newest batch in the root mean square of advantages."""


@dataclass(frozen=True)
class IQLStep:
    """A step of the optimiser, or the mean of several."""

    number: int
    policy_loss: float
    """Nats of what was done, each decision counted by its weight."""
    value_loss: float
    """Expectile loss, in squared deviations of the return."""
    q_loss: float
    """Half the squared error, in the same."""
    advantage: float
    """Root mean square of what the believed Q says above V, in units of return."""
    cut_off: float
    """Share of decisions whose weight was cut off."""


class IQL:
    """The network that will play, two judges, and two that are believed."""

    def __init__(
        self, network: Network, judges: tuple[DecisionJudge, DecisionJudge], config: IQLConfig | None = None
    ) -> None:
        """`judges` are newborn, each over a network of its own, of the same kind as the one that will play."""
        self.network, self.judges, self.config = network, judges, config or IQLConfig()
        self.believed = tuple(copy.deepcopy(judge).requires_grad_(False) for judge in judges)
        self.generator = torch.Generator().manual_seed(self.config.seed)
        self.moments, self.spread = Moments(), 0.0
        parameters = [each for part in (network, *judges) for each in part.parameters()]
        self.optimizer = torch.optim.AdamW(
            parameters, self.config.learning_rate, weight_decay=self.config.weight_decay, fused=True
        )

    def learn(self, episodes: Episodes, watch: Callable[[IQLStep], object] | None = None, every: int = 100) -> IQLStep:
        """All steps; `watch` is shown the mean of each `every` of them, and this is the last such mean."""
        config = self.config
        contents = Contents.of(episodes, len(self.network.heads), config.discount, config.batch)
        self.moments = contents.returns
        self.network.critic.rescale(self.moments.mean, self.moments.deviation, keep=False)
        for judge in (*self.judges, *self.believed):
            judge.rescale(self.moments.mean, self.moments.deviation)
        told: list[IQLStep] = []
        batches = self._endless(episodes)
        for number in range(config.steps):
            for group in self.optimizer.param_groups:
                group["lr"] = config.learning_rate * (1 - 0.9 * number / config.steps)
            told = told[-every + 1 :] if every > 1 else []
            told.append(self.step(next(batches), number + 1))
            if watch is not None and ((number + 1) % every == 0 or number + 1 == config.steps):
                watch(_mean(told))
        return _mean(told)

    def _endless(self, episodes: Episodes) -> Iterator[Sequences]:
        while True:
            yield from episodes.batches(self.config.batch, self.generator)

    def step(self, rows: Sequences, number: int = 1) -> IQLStep:
        """One step of all networks."""
        config, deviation = self.config, self.moments.deviation
        new = replay(self.network, begun(rows, self.network))
        require_legal(self.network, new, rows)
        with torch.no_grad():
            said = torch.minimum(*(judge(rows) for judge in self.believed))
            targets = bellman_errors(rows.rewards, new.values, rows.bootstrap, rows.ends, rows.valid, config.discount)
            targets = targets + new.values
        advantage = said - new.values
        valid, deciding = rows.valid, (new.free & rows.valid.unsqueeze(-1)).any(dim=-1)
        value_loss = _mean_over(expectile_loss(advantage / deviation, config.expectile), valid)
        weights, cut = self._weights(advantage.detach(), deciding)
        policy_loss = surprise(new, valid, weights.unsqueeze(-1))
        known = valid & ~(rows.ends & (rows.bootstrap != 0))
        q_loss = torch.stack(
            [_mean_over(0.5 * ((judge(rows) - targets) / deviation).square(), known) for judge in self.judges]
        ).sum()
        self.optimizer.zero_grad()
        (policy_loss + config.value_weight * value_loss + q_loss).backward()
        for network in (self.network, *self.judges):
            nn.utils.clip_grad_norm_(network.parameters(), config.max_gradient_norm)
        self.optimizer.step()
        self._follow()
        policy, value, q, cut_off = torch.stack([policy_loss, value_loss, q_loss / 2, cut]).tolist()
        return IQLStep(number, policy, value, q, self.spread, cut_off)

    def _weights(self, advantage: Tensor, deciding: Tensor) -> tuple[Tensor, Tensor]:
        """What each decision counts, 1 in the mean; and the share of those that were cut off."""
        config = self.config
        now = _mean_over(advantage.square(), deciding).sqrt().item()
        self.spread = now if self.spread == 0.0 else self.spread + SPREAD_MOMENTUM * (now - self.spread)
        weights = (config.inverse_temperature * advantage / max(self.spread, 1e-8)).exp()
        cut = _mean_over((weights > config.most).float(), deciding)
        weights = weights.clamp(max=config.most)
        return weights / _mean_over(weights, deciding).clamp(min=1e-8), cut

    @torch.no_grad()
    def _follow(self) -> None:
        for believed, judge in zip(self.believed, self.judges, strict=True):
            torch._foreach_lerp_(list(believed.parameters()), list(judge.parameters()), self.config.polyak)


def expectile_loss(error: Tensor, expectile: float) -> Tensor:
    """Squares of what Q is above V count `expectile`, those of what it is below count 1 - `expectile`."""
    return torch.where(error > 0, expectile, 1 - expectile) * error.square()


def _mean_over(values: Tensor, among: Tensor) -> Tensor:
    return (values * among).sum() / among.sum().clamp(min=1)


def _mean(steps: list[IQLStep]) -> IQLStep:
    """The mean of all figures, and the number of the last step."""
    means = {name: sum(getattr(each, name) for each in steps) / len(steps) for name in asdict(steps[0])}
    return replace(IQLStep(**means), number=steps[-1].number)
