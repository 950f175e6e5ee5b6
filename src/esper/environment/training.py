"""How a host and its seeds train: one optimiser, clipped gradients, batches in an order of their own."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from esper.contracts import EsperError
from esper.environment.data import Split, augmented, cross_entropy
from esper.environment.randomness import global_draws_from, stream
from esper.environment.tasks import Task
from esper.growth import Body


class UnusableDevice(EsperError):
    """The machine does not have that device."""


class UnusablePrecision(EsperError):
    """There is no such precision, or not on that device."""


Precision = Literal["float32", "bfloat16"]
"""bfloat16 has the range of float32. float16 has not, and would need the losses of host and seeds to be scaled."""


@dataclass(frozen=True)
class Compute:
    """Where and how hosts and seeds train.

    `precision` is that of forward and backward passes in training; weights and evaluation are always float32. With
    `compile` the forward pass is compiled; should that fail, a warning says so and training goes on without it.
    """

    device: str = "cpu"
    compile: bool = False
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        try:
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError) as error:
            raise UnusableDevice(f"device '{self.device}' cannot be used here ({error}); try device 'cpu'") from error
        if self.precision not in get_args(Precision):
            raise UnusablePrecision(f"precision is '{self.precision}'; give one of {', '.join(get_args(Precision))}")
        if self.precision != "float32" and not self._multiplies_lower():
            raise UnusablePrecision(
                f"device '{self.device}' does not compute in {self.precision}; give precision 'float32'"
            )

    def _multiplies_lower(self) -> bool:
        one = torch.ones(1, 1, device=self.device)
        try:
            with self.autocast():
                return (one @ one).dtype is torch.bfloat16
        except RuntimeError:
            return False

    def autocast(self) -> AbstractContextManager[Any]:
        """The context of a forward pass in training."""
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(torch.device(self.device).type, dtype=torch.bfloat16)


@dataclass(frozen=True)
class EpochMeasures:
    """Means over an epoch's batches: loss in nats, and the norm of the host's gradient before clipping."""

    loss: float
    gradient_norm: float


MOMENTUM = 0.9
"""Of SGD."""


def rate_at(epochs: float, task: Task) -> float:
    """The learning rate after so many epochs in units of the task's: rising, then 1, then falling in the cooldown."""
    done, final = epochs / task.horizon, task.final_rate
    left = 1.0 - done
    rising = done / task.warmup_share if done < task.warmup_share else 1.0
    falling = 1.0 if left >= task.cooldown_share else final + (1.0 - final) * left / task.cooldown_share
    return min(rising, falling)


Probe = Callable[[Mapping[str, Sequence[Tensor | None]]], None]
"""Is shown the gradients of every batch before clipping, by owner: `host`, or the slot of a living seed."""


class Trainer:
    """Trains one body for one episode."""

    def __init__(self, body: Body, task: Task, seed: int, compute: Compute, probe: Probe | None = None) -> None:
        self.body, self._probe = body, probe
        self._host = body.host_weights()
        self.optimizer = _optimizer(task, self._host)
        body.optimise_with(self.optimizer, lr=task.seed_learning_rate)
        self._task = task
        self._seed = seed
        self._compute = compute
        self._order = stream(seed, "order")
        self._augmentation = stream(seed, "augmentation")
        self._forward: Callable[[Tensor], Tensor] = _compiled(body) if compute.compile else body.host

    def epoch(self, split: Split) -> EpochMeasures:
        """One pass over the training data, or as many batches as the task says."""
        losses, norms = [], []
        self.body.train()
        self._set_rates(0.0)
        with global_draws_from(self._seed, "noise", self.body.epoch):
            count = self._task.batches_of(split)
            for index, (x, y) in enumerate(self._batches(split)):
                if index == max(0, count - 2):  # the very last may be ragged
                    self.body.watch_gains()
                if self._task.smooth:
                    self._set_rates((index + 0.5) / count)
                self.optimizer.zero_grad()
                with self._compute.autocast():
                    loss = cross_entropy(self._forward(x), y)
                loss.backward()
                if self._probe is not None:
                    self._probe(self._gradients())
                norms.append(self._clip())
                self.optimizer.step()
                losses.append(loss.detach())
        means = torch.stack([torch.stack(losses).mean(), torch.stack(norms).mean()]).tolist()
        return EpochMeasures(*means)

    def _set_rates(self, part: float) -> None:
        """For that part of the epoch. The host has the first group; every seed has one of its own."""
        host, *seeds = self.optimizer.param_groups
        rate = rate_at(self.body.epoch + part, self._task)
        host["lr"] = rate * self._task.learning_rate
        for group in seeds:
            group["lr"] = rate * self._task.seed_learning_rate

    def _batches(self, split: Split) -> Iterator[tuple[Tensor, Tensor]]:
        for rows in self._task.draw_batches(split, self._order):
            x, y = split.x[rows], split.y[rows]
            yield (augmented(x, self._augmentation) if self._task.augment else x), y

    def _gradients(self) -> dict[str, list[Tensor | None]]:
        seeds = {slot.id: slot.seed_parameters for slot in self.body.living()}
        owners = {"host": self._host, **seeds}
        return {owner: [parameter.grad for parameter in parameters] for owner, parameters in owners.items()}

    def _clip(self) -> Tensor:
        """Each owner's gradient is clipped by its own norm, so that one exploding seed cannot still the host."""
        for slot in self.body.living():
            slot.record_gradient_norm(_clip_to(self._task.max_gradient_norm, slot.seed_parameters))
        return _clip_to(self._task.max_gradient_norm, self._host)


def _clip_to(most: float, parameters: Sequence[nn.Parameter]) -> Tensor:
    """The norm of the gradients before they were clipped. As `clip_grad_norm_`, without what that asks and we know."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    torch._foreach_mul_(gradients, (most / (norm + 1e-6)).clamp(max=1.0))
    return norm


def _optimizer(task: Task, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    if task.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=task.learning_rate, momentum=MOMENTUM, fused=True)
    kind = torch.optim.AdamW if task.optimizer == "adamw" else torch.optim.Adam
    return kind(parameters, lr=task.learning_rate, fused=True)


def _compiled(body: Body) -> Callable[[Tensor], Tensor]:
    """The body compiled with dynamic shapes; the first failure is reported and the rest runs uncompiled."""
    compiled: Callable[[Tensor], Tensor] | None = torch.compile(body, dynamic=True)

    def run(x: Tensor) -> Tensor:
        nonlocal compiled
        if compiled is not None:
            try:
                return compiled(x)
            except RuntimeError as error:
                warnings.warn(f"torch.compile failed, the run goes on without it: {error}", stacklevel=2)
                compiled = None
        output: Tensor = body(x)
        return output

    return run
