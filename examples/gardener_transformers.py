"""Grow a small vision transformer of the `transformers` library on digits: built from its configuration, nothing is
downloaded. Inputs and outputs are dictionaries.

python examples/gardener_transformers.py
"""

from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn
from transformers import ViTConfig, ViTForImageClassification

import esper

EPOCHS, ROWS = 5, 800


def main() -> None:
    """Train, grow, harvest."""
    torch.manual_seed(0)
    raw = load_digits()
    x = torch.tensor(raw.data, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16.0
    y = torch.tensor(raw.target)
    shape: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 32, "num_labels": 10}
    shape |= {"num_hidden_layers": 2, "num_attention_heads": 2}
    model = ViTForImageClassification(ViTConfig(image_size=8, patch_size=4, num_channels=1, **shape))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.005)
    gardener = esper.Gardener(model, optimizer, example={"pixel_values": x[:2]}, epochs=EPOCHS)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=EPOCHS)

    def accuracy(model: nn.Module) -> float:
        with torch.no_grad():
            return float((model(pixel_values=x[ROWS:1200]).logits.argmax(1) == y[ROWS:1200]).float().mean())

    for _ in range(EPOCHS):
        model.train()
        for batch in torch.randperm(ROWS).split(32):
            optimizer.zero_grad()
            model(pixel_values=x[batch], labels=y[batch]).loss.backward()
            optimizer.step()
        scheduler.step()
        print(gardener.step(accuracy))
    gardener.harvest()
    print(gardener.report())


if __name__ == "__main__":
    main()
