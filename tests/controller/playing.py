"""Policies in the small world: what they chose and what came of it."""

from dataclasses import dataclass
from typing import Any

import torch

from esper.contracts import Action
from esper.controller import Policy
from esper.environment import GrowEnv


@dataclass(frozen=True)
class Turn:
    """One decision and what the environment made of it."""

    choices: tuple[int, ...]
    reward: float
    executed: Action
    refused: tuple[str, ...]
    quality: float


class Seat:
    """A policy at one episode, decision by decision."""

    def __init__(self, env: GrowEnv, policy: Policy, seed: int) -> None:
        self.env, self.policy, self.over = env, policy, False
        self.observation, _ = env.reset(seed=seed)
        self.state: Any = policy.start(env.codec)
        self.generator = torch.Generator().manual_seed(seed)
        self.turns: list[Turn] = []

    def turn(self) -> None:
        decision, self.state = self.policy.act(self.observation, self.state, self.generator)
        self.observation, reward, terminated, truncated, info = self.env.step(decision.choices)
        self.over = terminated or truncated
        facts = (info["executed"], info["refused"], info["quality"])
        self.turns.append(Turn(decision.choices, reward, *facts))


def play(env: GrowEnv, policy: Policy, seed: int) -> list[Turn]:
    """A whole episode; actions are drawn from a generator of the same seed."""
    seat = Seat(env, policy, seed)
    while not seat.over:
        seat.turn()
    return seat.turns
