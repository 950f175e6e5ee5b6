"""The gardener in Hugging Face's Trainer, which makes its scheduler after the gardener if it is given the optimiser.

python examples/gardener_trainer.py
"""

import tempfile
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn
from transformers import ResNetConfig, ResNetForImageClassification, Trainer, TrainingArguments

import esper
from esper.gardener.huggingface import GardenerTrainerCallback

EPOCHS, ROWS = 4, 600


def main() -> None:
    """Train, grow, harvest."""
    torch.manual_seed(0)
    raw = load_digits()
    x = torch.tensor(raw.data, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16.0
    y = torch.tensor(raw.target)
    rows: Any = [{"pixel_values": image, "labels": label} for image, label in zip(x[:ROWS], y[:ROWS], strict=True)]
    shape: dict[str, Any] = {"embedding_size": 4, "hidden_sizes": [4, 8], "depths": [1, 1], "num_labels": 10}
    build: Any = ResNetForImageClassification  # which has no types
    model = build(ResNetConfig(num_channels=1, layer_type="basic", **shape))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    gardener = esper.Gardener(model, optimizer, example={"pixel_values": x[:2]}, epochs=EPOCHS)

    def accuracy(model: nn.Module) -> float:
        with torch.no_grad():
            return float((model(pixel_values=x[ROWS:1000]).logits.argmax(1) == y[ROWS:1000]).float().mean())

    with tempfile.TemporaryDirectory() as directory:
        arguments = TrainingArguments(
            directory,
            num_train_epochs=EPOCHS,
            per_device_train_batch_size=32,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        )
        callbacks: Any = [GardenerTrainerCallback(gardener, accuracy)]
        Trainer(model, arguments, train_dataset=rows, optimizers=(optimizer, None), callbacks=callbacks).train()
    gardener.harvest()
    print(gardener.report())


if __name__ == "__main__":
    main()
