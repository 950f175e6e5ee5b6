"""Grow a perceptron on scikit-learn's breast cancer data within a budget, save it, and load it again.

python examples/gardener_tabular.py
"""

import tempfile

import torch
from sklearn.datasets import load_breast_cancer
from torch import Tensor, nn

import esper

EPOCHS = 15
ROWS = 400
"""To train on; the others are for evaluation."""


def table() -> tuple[Tensor, Tensor]:
    """Standardised features and labels, in an order of their own."""
    raw = load_breast_cancer()
    x, y = torch.tensor(raw.data, dtype=torch.float32), torch.tensor(raw.target)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    x = (x - x[order[:ROWS]].mean(0)) / x[order[:ROWS]].std(0)
    return x[order], y[order]


def perceptron() -> nn.Module:
    """Two narrow layers."""
    return nn.Sequential(nn.Linear(30, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))


def main() -> None:
    """Plan, train, harvest, save, load."""
    torch.manual_seed(0)
    x, y = table()
    model = perceptron()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.005)
    gardener = esper.Gardener(model, optimizer, example=x[:2], epochs=EPOCHS, direction="min", max_added_parameters=100)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    print(gardener.plan())

    def loss_of(model: nn.Module) -> float:
        with torch.no_grad():
            return float(nn.functional.cross_entropy(model(x[ROWS:]), y[ROWS:]))

    for _ in range(EPOCHS):
        for batch in torch.randperm(ROWS).split(32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
        scheduler.step()
        print(gardener.step(loss_of))
    plain = gardener.harvest()
    print(gardener.report())
    with tempfile.TemporaryDirectory() as directory:
        esper.save(plain, f"{directory}/grown")
        again = esper.load(f"{directory}/grown", perceptron())
    print("loaded again, the loss is the same:", loss_of(again) == loss_of(plain.eval()))


if __name__ == "__main__":
    main()
