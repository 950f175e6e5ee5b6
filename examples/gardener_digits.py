"""Grow a small network on scikit-learn's digits in an ordinary training loop: three lines are the gardener's.

python examples/gardener_digits.py
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

import esper

torch.manual_seed(0)
raw = load_digits()
x = torch.tensor(raw.data, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16.0
y = torch.tensor(raw.target)
blocks = (nn.Sequential(nn.Conv2d(channels, 8, 1), nn.ReLU()) for channels in (1, 8))
model = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
gardener = esper.Gardener(model, optimizer, example=x[:2], epochs=20)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=20)
for _ in range(20):
    for batch in torch.randperm(1200).split(64):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
        optimizer.step()
    scheduler.step()
    print(gardener.step(lambda model: (model(x[1200:]).argmax(1) == y[1200:]).float().mean()))
plain = gardener.harvest()
print(gardener.report())
