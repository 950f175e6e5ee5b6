"""Small worlds for fast tests, players for them, and seeds that help nobody on purpose."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from esper.contracts import WAIT, Action, Kind, Style
from esper.controller import Schedule, ScheduledSeed
from esper.environment import GrowEnv, Split, Splits, Task, World, find_task
from esper.environment.masks import op_by_slot
from esper.growth import Thresholds, blueprint
from esper.growth.hosts import DenseHost

Player = Callable[[GrowEnv], Action]


class Inert(nn.Module):
    """Adds exactly nothing, ever, and yet has a live gradient: a seed that no gate can tell from a slow one."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels, 9))

    def forward(self, h: Tensor) -> Tensor:
        zero = (self.weight - self.weight.detach()).sum(dim=1)
        return h * (zero[:, None, None] if h.dim() == 4 else zero)


@blueprint("inert", topology="cnn", kind=Kind.MIX_SPACE)
def inert(channels: int) -> nn.Module:
    return Inert(channels)


def small_splits(_: Any = None) -> Splits:
    return SMALL


def _small() -> Splits:
    full = find_task("digits-pointwise").load(None)
    return Splits(
        Split(full.train.x[:128], full.train.y[:128]),
        Split(full.evaluation.x[:100], full.evaluation.y[:100]),
        Split(full.test.x[:100], full.test.y[:100]),
    )


SMALL = _small()
POINTWISE: Task = replace(find_task("digits-pointwise"), load=small_splits, horizon=12, batch_size=32)


def _clusters(_: Any = None) -> Splits:
    return CLUSTERED


def _clustered() -> Splits:
    """Four heaps of points in the corners of a square."""
    draw, corners = torch.Generator().manual_seed(0), torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    labels = [torch.arange(count) % 4 for count in (64, 100, 100)]
    return Splits(*(Split(corners[y] + 0.35 * torch.randn(len(y), 2, generator=draw), y) for y in labels))


CLUSTERED = _clustered()
CLUSTERS: Task = replace(
    POINTWISE,
    name="clusters",
    load=_clusters,
    build_host=partial(DenseHost, 2, 4, (8, 8)),
    slots=("layer0", "layer1.0", "layer1"),
    classes=4,
    horizon=16,
    batch_size=16,
)
"""A host that needs no seed: alone it learns everything."""
LOOSE = World(Thresholds(CLUSTERS.horizon, training_share=0.0, holding_share=0.0, min_contribution=-1.0))
"""Gates that let everything pass as soon as it can."""


class Ransom(nn.Module):
    """Turns the order of the channels round, which helps nobody; but whoever has learned with it needs it.

    Two of them on both sides of a ReLU undo each other.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))

    def forward(self, h: Tensor) -> Tensor:
        return h.flip(-1) * (1.0 + self.weight - self.weight.detach()) - h


def idle(_: GrowEnv) -> Action:
    return WAIT


def grower(*plan: tuple[str, str], keep: bool = True, style: Style = Style.LINEAR_ADD) -> Player:
    """Takes each slot of the plan through its life as fast as the gates allow; without `keep` only up to HOLDING."""
    schedule = Schedule(tuple(ScheduledSeed(0, slot, seed, style, fossilize=keep) for slot, seed in plan))

    def play(env: GrowEnv) -> Action:
        slots, body = env.episode.snapshot.slots, env.episode.body
        return schedule.choose([slot.slot for slot in slots], op_by_slot(slots, body.thresholds), body.epoch)

    return play


def random_player(seed: int) -> Player:
    generator = np.random.default_rng(seed)

    def play(env: GrowEnv) -> Action:
        return env.codec.decode(generator.integers(env.action_space.nvec))

    return play


def play(env: GrowEnv, player: Player, seed: int) -> list[dict[str, Any]]:
    """One episode; a record per step with reward, flags, info, the observation and the snapshot after it."""
    observation, _ = env.reset(seed=seed)
    records: list[dict[str, Any]] = []
    while not records or not (records[-1]["terminated"] or records[-1]["truncated"]):
        wanted = env.codec.encode(player(env))
        observation, reward, terminated, truncated, info = env.step(wanted)
        records.append(
            {
                "observation": observation,
                "reward": reward,
                "terminated": terminated,
                "truncated": truncated,
                "snapshot": env.episode.snapshot,
                **info,
            }
        )
    return records
