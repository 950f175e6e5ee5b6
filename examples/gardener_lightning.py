"""The gardener in a Lightning module: made where the optimiser is made, stepped by a callback.

python examples/gardener_lightning.py
"""

from typing import Any

import lightning
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import esper
from esper.gardener.lightning import GardenerCallback

EPOCHS, ROWS = 6, 1200


class Digits(lightning.LightningModule):
    """A perceptron for digits."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 10))
        self.x, self.y = x, y

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        return nn.functional.cross_entropy(self.model(batch[0]), batch[1])

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.gardener = esper.Gardener(self.model, optimizer, example=self.x[:2], epochs=EPOCHS)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)]

    def accuracy(self) -> float:
        """On the rows that are not trained on."""
        with torch.no_grad():
            return float((self.model(self.x[ROWS:]).argmax(1) == self.y[ROWS:]).float().mean())


def main() -> None:
    """Fit, harvest."""
    lightning.seed_everything(0, verbose=False)
    raw = load_digits()
    x, y = torch.tensor(raw.data, dtype=torch.float32) / 16.0, torch.tensor(raw.target)
    module = Digits(x, y)
    trainer = lightning.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        callbacks=[GardenerCallback(Digits.accuracy)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, DataLoader(TensorDataset(x[:ROWS], y[:ROWS]), batch_size=64, shuffle=True))
    plain = module.gardener.harvest()
    print(module.gardener.report())
    print(f"harvested: {sum(each.numel() for each in plain.parameters()):,} parameters")


if __name__ == "__main__":
    main()
