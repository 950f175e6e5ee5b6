"""Proximal policy optimisation over factored heads, with memory and masks as data.

One pure loss, and an update that reads from top to bottom. Several passes over one rollout are sound for a recurrent
policy because each pass replays whole rows from the states stored with them, so that under unchanged weights every
ratio is 1 (to rounding). Rows are never cut into shuffled steps.
"""

import copy
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from esper.rl.acting import Replayed, replay
from esper.rl.config import PPOConfig
from esper.rl.gae import advantages, gains
from esper.rl.loss import Loss, Targets, ppo_loss
from esper.rl.metrics import UpdateMetrics, measure
from esper.rl.network import Network
from esper.rl.normalise import Moments
from esper.rl.reuse import Experience, Rollout, recalled
from esper.rl.sequences import Sequences

Replay = Callable[[Network, Sequences, float], Replayed]
Probe = Callable[[Network], None]


@dataclass
class Counters:
    """What has been done so far."""

    updates: int = 0
    """Calls of `update` that learned something."""
    optimiser_steps: int = 0
    environment_steps: int = 0
    """Valid steps in all the experience that was learned from."""


class Learner:
    """A network, its optimiser and its scale of returns; `update` makes it better by one rollout.

    With `compile` the replay is compiled, and the network itself stays as it is: weights, checkpoints and acting never
    meet a wrapped module.
    """

    def __init__(self, network: Network, config: PPOConfig, seed: int = 0, compile: bool = False) -> None:
        config.require_heads(network.heads)
        self.network, self.config = network, config
        self.counters, self.moments = Counters(), Moments()
        self.past: tuple[Rollout, ...] = ()
        """Earlier rollouts that the next update learns from too, the newest first."""
        self.anchor: Network | None = None
        """The network as it was before the first update, if the configuration keeps it near that."""
        self.generator = torch.Generator().manual_seed(seed)
        self.optimizer = torch.optim.AdamW(
            _groups(network, config.weight_decay), lr=config.learning_rate, eps=1e-5, fused=True
        )
        self._replay: Replay = _compiled() if compile else replay

    def update(
        self,
        sequences: Sequences,
        progress: float = 0.0,
        groups: Sequence[int] | None = None,
        probe: Probe | None = None,
    ) -> UpdateMetrics:
        """Learn from a rollout and the ones before it; `progress` from 0 to 1 anneals learning rate and entropy.

        `groups` has a number for every row: advantages are compared among rows of the same number only. `probe` is
        shown the network after every backward pass, with its gradients before clipping. Metrics of returns and values
        are of the newest rollout alone.
        Each step asks the device one question, whether it may be taken: it may not when every head that had a choice
        has moved by more than the target already, or when the gradient is not finite. All metrics leave the device
        together at the end.
        """
        sequences.check(len(self.network.heads))
        config, parameters = self.config, list(self.network.parameters())
        newest = Rollout(sequences, tuple(groups or [0] * sequences.rows))
        if self.anchor is None and config.anchor_weight > 0.0:
            self.anchor = copy.deepcopy(self.network).requires_grad_(False)
        experience = recalled(self.network, newest, self.past, config.exploration)
        targets = self._targets(experience)
        weights = sequences.rewards.new_tensor(config.entropy_weights(self.network.heads, progress))
        anchor_weight = config.anchor_weight_at(progress)
        for group in self.optimizer.param_groups:
            group["lr"] = config.learning_rate_at(progress)
        losses, norms, stopped, steps, skipped = [], [], False, 0, 0
        for batch, aims in self._minibatches(experience.sequences, targets):
            new = self._replay(self.network, batch, config.exploration)
            loss = ppo_loss(new, batch, aims, weights, self.network.critic.deviation, config, anchor_weight)
            self.optimizer.zero_grad()
            loss.total.backward()
            if self.counters.updates < config.critic_updates:
                self._keep_policy()
            if probe is not None:
                probe(self.network)
            heads = head_norms(self.network)
            norm = nn.utils.clip_grad_norm_(parameters, config.max_gradient_norm)
            losses.append(Loss(*(value.detach() for value in loss)))
            norms.append(torch.cat([norm.reshape(1), heads]))
            still, size = torch.stack([(loss.free.any() & ~loss.moving.any()).to(norm.dtype), norm]).tolist()
            if still:
                stopped = True
                break
            if math.isfinite(size):
                self.optimizer.step()
                steps += 1
            else:
                skipped += 1
        taken = stopped, steps, skipped
        fresh = slice(sequences.rows), slice(sequences.rewards.shape[1])
        own = targets.part(fresh)
        metrics = measure(self.network.heads, sequences, own, losses, norms, taken, config.discount)
        self.past = (newest.copied(), *self.past)[: config.reuse - 1]
        self.counters.updates += 1
        self.counters.optimiser_steps += metrics.optimiser_steps
        self.counters.environment_steps += metrics.steps
        return metrics

    def _targets(self, experience: Experience) -> Targets:
        """Gains and returns; the scale of returns takes in the rows, and learned predictions do not move."""
        sequences, counts = experience.sequences, experience.counts
        raw = advantages(*sequences.course(), self.config.discount, self.config.smoothing, counts)
        returns = sequences.values + raw * counts
        learned = self.moments.count > 0
        self.moments = self.moments.updated(returns[sequences.valid], self.config.return_momentum)
        self.network.critic.rescale(self.moments.mean, self.moments.deviation, keep=learned)
        # The first scale moves all predictions, so what was said moves along: value clipping starts from there.
        said = sequences.values if learned else self.moments.mean + self.moments.deviation * sequences.values
        deciding = (sequences.free & sequences.valid.unsqueeze(-1)).any(dim=-1)
        return Targets(gains(raw, deciding, counts, experience.groups), returns, said, self._anchored(sequences))

    @torch.no_grad()
    def _anchored(self, sequences: Sequences) -> Tensor | None:
        """Log-probabilities of the decisions under the policy that learning began with."""
        if self.anchor is None:
            return None
        return replay(self.anchor, sequences, self.config.exploration).log_probs

    def _keep_policy(self) -> None:
        """Leave gradients to the critic alone; what is without one is not moved by the optimiser."""
        rest, _ = self.optimizer.param_groups
        for parameter in rest["params"]:
            parameter.grad = None

    def _minibatches(self, sequences: Sequences, targets: Targets) -> Iterator[tuple[Sequences, Targets]]:
        """Whole rows, in a new order for each pass."""
        parts = min(self.config.minibatches, sequences.rows)
        for _ in range(self.config.epochs):
            if parts == 1:
                yield sequences, targets
                continue
            for rows in torch.randperm(sequences.rows, generator=self.generator).tensor_split(parts):
                yield sequences.take(rows), targets.part(rows)


def _compiled() -> Replay:
    """The replay compiled for fixed shapes; the first failure is reported, and the rest runs uncompiled."""
    compiled: Replay | None = torch.compile(replay, dynamic=False)

    def run(network: Network, sequences: Sequences, exploration: float) -> Replayed:
        nonlocal compiled
        if compiled is not None:
            try:
                return compiled(network, sequences, exploration)
            except Exception as error:
                warnings.warn(f"torch.compile failed, learning goes on without it: {error}", stacklevel=2)
                compiled = None
        return replay(network, sequences, exploration)

    return run


def head_norms(network: Network) -> Tensor:
    """The gradient norm of the parameters that belong to each head alone, before clipping; (heads)."""
    return torch.stack([_norm(gradients) for gradients in network.head_gradients()])


def _norm(gradients: Sequence[Tensor | None]) -> Tensor:
    squares = [gradient.square().sum() for gradient in gradients if gradient is not None]
    return torch.stack(squares).sum().sqrt() if squares else torch.tensor(0.0)


def _groups(network: Network, weight_decay: float) -> list[dict[str, object]]:
    critic = list(network.critic.parameters())
    own = {id(parameter) for parameter in critic}
    rest = [parameter for parameter in network.parameters() if id(parameter) not in own]
    return [{"params": rest, "weight_decay": 0.0}, {"params": critic, "weight_decay": weight_decay}]
