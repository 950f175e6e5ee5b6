"""A small task, and ordinary training loops that a gardener joins."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import esper
from esper.controller import Schedule, ScheduledSeed
from esper.gardener import Gardener

ROWS, BATCH, EPOCHS = 128, 32, 8


def rows() -> tuple[Tensor, Tensor]:
    x = torch.randn(ROWS, 6, generator=torch.Generator().manual_seed(0))
    return x, (x[:, 0] * x[:, 1] > 0).long()


X, Y = rows()


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))


def plan(*seeds: tuple[int, str, str]) -> Schedule:
    return Schedule(tuple(ScheduledSeed(*seed) for seed in seeds))


GROWTH = plan((0, "1", "mlp"), (2, "3", "norm"))


def logits(output: Any) -> Tensor:
    if isinstance(output, dict):
        return output["logits"]
    return output if isinstance(output, Tensor) else output[0] if isinstance(output, tuple) else output.logits


def evaluate(model: nn.Module) -> dict[str, float]:
    with torch.no_grad():
        output = logits(model(X)).float()
    return {"accuracy": float((output.argmax(1) == Y).float().mean()), "loss": float(cross_entropy(output, Y))}


@dataclass
class Training:
    """A model, its optimiser, a gardener and a scheduler, in the order in which a user makes them."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    gardener: Gardener
    scheduler: Any

    @classmethod
    def begun(
        cls,
        model: nn.Module | None = None,
        optimizer: Callable[[nn.Module], torch.optim.Optimizer] | None = None,
        scheduler: Callable[[torch.optim.Optimizer], Any] | None = None,
        **settings: Any,
    ) -> "Training":
        model = model or mlp()
        made = optimizer(model) if optimizer else torch.optim.AdamW(model.parameters(), lr=0.01)
        given = {"example": X, "epochs": EPOCHS, "controller": GROWTH} | settings
        gardener = esper.Gardener(model, made, **given)
        rate = scheduler or (lambda each: torch.optim.lr_scheduler.CosineAnnealingLR(each, EPOCHS))
        return cls(model, made, gardener, rate(made))

    def train(self, epoch: int) -> None:
        train(self.model, self.optimizer, epoch)
        self.scheduler.step()

    def play(self, first: int = 0, last: int = EPOCHS) -> None:
        for epoch in range(first, last):
            self.train(epoch)
            self.gardener.step(evaluate)

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name).state_dict() for name in ("gardener", "model", "optimizer", "scheduler")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, each in state.items():
            getattr(self, name).load_state_dict(each)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int) -> None:
    model.train()
    for batch in torch.randperm(ROWS, generator=torch.Generator().manual_seed(epoch)).split(BATCH):
        optimizer.zero_grad()
        cross_entropy(logits(model(X[batch])), Y[batch]).backward()
        optimizer.step()


def same(one: nn.Module, other: nn.Module) -> bool:
    first, second = one.state_dict(), other.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
