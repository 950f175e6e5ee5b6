"""What a gardener costs that never plants. Interleaved epochs of the same training in one process.

    python benchmarks/waiting.py          # prints the table; about 4 minutes on one core

Each host is trained three times side by side, an epoch of one after an epoch of the other, with an evaluation after
every epoch: alone, with a gardener that waits, and with the shipped controller, which may add no parameter. All three
do the same arithmetic, so what is more is the gardener's: its look at gradients, its steps and decisions. The first
epochs are left out, in which PyTorch warms up. Goal: less than 2 %.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor, nn

import esper

CONTROLLERS = {"waiting": "none", "shipped": "tamiyo"}
WARMING = 2
BATCH = 32


def convolutional() -> nn.Module:
    """Three blocks of 16 channels."""
    blocks = [
        nn.Sequential(nn.Conv2d(channels, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()) for channels in (3, 16, 16)
    ]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


def perceptron() -> nn.Module:
    """Three layers of 256."""
    layers = [nn.Sequential(nn.Linear(width, 256), nn.LayerNorm(256), nn.ReLU()) for width in (64, 256, 256)]
    return nn.Sequential(*layers, nn.Linear(256, 10))


def transformer() -> nn.Module:
    """Two layers of 64, over 32 places."""
    layers = [nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True) for _ in range(2)]
    return nn.Sequential(nn.Linear(8, 64), *layers, nn.Flatten(), nn.Linear(64 * 32, 10))


HOSTS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "convolutional": (convolutional, (3, 16, 16), 200),
    "perceptron": (perceptron, (64,), 1_000),
    "transformer": (transformer, (32, 8), 120),
}
"""Builders, shapes of an input, and training batches in an epoch."""


@dataclass
class Training:
    """A host, its optimiser and perhaps its gardener."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    gardener: esper.Gardener | None
    x: Tensor
    y: Tensor

    def epoch(self) -> float:
        """Processor time of one epoch with its evaluation."""
        started = time.process_time()
        self.model.train()
        for rows in torch.arange(len(self.x)).split(BATCH):
            self.optimizer.zero_grad()
            nn.functional.cross_entropy(self.model(self.x[rows]), self.y[rows]).backward()
            self.optimizer.step()
        if self.gardener is None:
            self.score(self.model)
        else:
            self.gardener.step(self.score)
        return time.process_time() - started

    @torch.no_grad()
    def score(self, model: nn.Module) -> float:
        """Accuracy on a quarter of the rows."""
        quarter = len(self.x) // 4
        output = model.eval()(self.x[:quarter])
        return float((output.argmax(1) == self.y[:quarter]).float().mean())


def training(host: str, controller: str | None, epochs: int) -> Training:
    """Newborn; every one of a host with the same weights and rows."""
    build, shape, batches = HOSTS[host]
    torch.manual_seed(0)
    model, x, y = build(), torch.randn(batches * BATCH, *shape), torch.randint(10, (batches * BATCH,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    gardener = None
    if controller is not None:
        gardener = esper.Gardener(
            model, optimizer, example=x[:2], epochs=epochs, controller=controller, max_added_parameters=0
        )
    return Training(model, optimizer, gardener, x, y)


def main() -> None:
    """Train in turns."""
    parser = argparse.ArgumentParser(description="What a gardener costs that never plants.")
    parser.add_argument("--epochs", type=int, default=20, help="of each training (default %(default)s)")
    epochs = parser.parse_args().epochs
    torch.set_num_threads(1)
    print("| host | places | a batch alone, ms | " + " | ".join(f"{name}, more" for name in CONTROLLERS) + " | goal |")
    print("|---|---:|---:|" + "---:|" * len(CONTROLLERS) + "---:|")
    for host in HOSTS:
        arms = [training(host, controller, epochs) for controller in (None, *CONTROLLERS.values())]
        rounds = [[arm.epoch() for arm in arms] for _ in range(epochs)][WARMING:]
        grown = arms[1].gardener
        assert grown is not None
        more = [f"{median(row[place] / row[0] for row in rounds) - 1:+.1%}" for place in range(1, len(arms))]
        alone = 1_000 * median(row[0] for row in rounds) / HOSTS[host][2]
        print(f"| {host} | {len(grown.body.slots)} | {alone:.1f} | {' | '.join(more)} | < +2 % |", flush=True)


if __name__ == "__main__":
    main()
