"""A lock of five dials, small enough to be solved exactly: what learners from recordings are held against."""

from typing import NamedTuple

import torch
from torch import Tensor

from esper.rl import MemoryState, Network, Sequences, VectorConfig, VectorNetwork, act

DIALS, STYLES, STEPS = 5, 3, 16
DISCOUNT, SLIP = 0.95, 0.1
LEAVE, TURN = 0, 1
PAID_FOR_LEAVING, PAID_FOR_OPENING, PRICE = 0.2, 1.0, -0.02
"""Turning costs; the right style goes on to the next dial, a wrong one back to the first."""
RIGHT = torch.tensor([2, 0, 1, 1, 2])
SIZES = {"op": 2, "style": STYLES}
USES = torch.tensor([[True, False], [True, True]])


def solved() -> tuple[Tensor, float]:
    """The value of each dial, and what the best policy gains from the first, by value iteration."""
    values = torch.zeros(DIALS + 1)
    for _ in range(1000):
        after = torch.cat([values[1:DIALS], torch.tensor([0.0])])
        opening = PAID_FOR_OPENING * (torch.arange(DIALS) == DIALS - 1)
        turning = PRICE + (1 - SLIP) * (opening + DISCOUNT * after) + SLIP * DISCOUNT * values[:DIALS]
        values = torch.cat([torch.maximum(turning, torch.tensor(PAID_FOR_LEAVING)), torch.tensor([0.0])])
    return values[:DIALS], float(values[0])


class Habit(NamedTuple):
    """How often a recorded policy leaves, and how often it finds the right style at each dial."""

    leaves: float
    right: Tensor


MISTAKEN = Habit(0.2, torch.full((DIALS,), 0.25))
EARLY, LATE = Habit(0.1, torch.tensor([0.9, 0.9, 0.3, 0.2, 0.2])), Habit(0.1, torch.tensor([0.4, 0.4, 0.9, 0.9, 0.9]))
"""Each knows half of the lock."""
USUAL_MISTAKE = 0.75
"""How often a wrong style is the one behind the right one."""


def recorded(habits: list[Habit], episodes: int, seed: int) -> Sequences:
    """That many episodes of each policy, cut after 16 steps."""
    draws = torch.Generator().manual_seed(seed)
    rows = len(habits) * episodes
    owner = torch.arange(rows) % len(habits)
    leaves = torch.tensor([habit.leaves for habit in habits])[owner]
    knows = torch.stack([habit.right for habit in habits])[owner]
    vector, choices = torch.zeros(rows, STEPS, DIALS), torch.zeros(rows, STEPS, 2, dtype=torch.long)
    chances = torch.zeros(rows, STEPS, 2)
    rewards, ends, valid = (torch.zeros(rows, STEPS) for _ in range(3))
    dial, going = torch.zeros(rows, dtype=torch.long), torch.ones(rows, dtype=torch.bool)
    for step in range(STEPS):
        turns = torch.rand(rows, generator=draws) >= leaves
        right = torch.rand(rows, generator=draws) < knows.gather(1, dial.unsqueeze(1)).squeeze(1)
        usual = torch.rand(rows, generator=draws) < USUAL_MISTAKE
        other = (RIGHT[dial] + torch.where(usual, 1, 2)) % STYLES
        style = torch.where(right, RIGHT[dial], other)
        vector[:, step] = torch.eye(DIALS)[dial] * going.unsqueeze(1)
        choices[:, step] = torch.stack([turns.long(), style * turns], dim=1) * going.unsqueeze(1)
        chance = knows.gather(1, dial.unsqueeze(1)).squeeze(1)
        mistake = (1 - chance) * torch.where(usual, USUAL_MISTAKE, 1 - USUAL_MISTAKE)
        of_style = torch.where(right, chance, mistake).log() * turns
        chances[:, step] = torch.stack([torch.where(turns, 1 - leaves, leaves).log(), of_style], dim=1)
        valid[:, step] = going.float()
        slipped = torch.rand(rows, generator=draws) < SLIP
        opened = turns & right & ~slipped & (dial == DIALS - 1)
        rewards[:, step] = torch.where(turns, PRICE + PAID_FOR_OPENING * opened, PAID_FOR_LEAVING) * going
        over = ~turns | opened | (step == STEPS - 1)
        ends[:, step] = (over & going).float()
        moved = torch.where(right, (dial + 1).clamp(max=DIALS - 1), 0)
        dial = torch.where(slipped, dial, moved)
        going = going & ~over
    bootstrap = torch.zeros(rows, STEPS)
    bootstrap[:, -1] = valid[:, -1] * (choices[:, -1, 0] == TURN) * (rewards[:, -1] < 0.5)
    inside = valid.bool()
    return Sequences(
        observation={"vector": vector, "mask": masks(rows, STEPS)},
        choices=choices,
        log_probs=chances * inside.unsqueeze(-1),
        free=torch.stack([inside, inside & (choices[..., 0] == TURN)], dim=-1),
        values=torch.zeros(rows, STEPS),
        rewards=rewards,
        bootstrap=bootstrap,
        starts=torch.zeros(rows, STEPS, dtype=torch.bool).index_fill_(1, torch.tensor([0]), True),
        ends=ends.bool(),
        valid=inside,
        state=network(0).memory.start(rows),
    )


def masks(rows: int, steps: int) -> Tensor:
    """Everything is legal."""
    legal = torch.arange(STYLES) < torch.tensor([*SIZES.values()]).unsqueeze(-1)
    return legal.expand(rows, steps, 1, -1, -1)


def network(seed: int, memory: int = 0) -> VectorNetwork:
    """Newborn."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return VectorNetwork(DIALS, SIZES, USES, VectorConfig(hidden=16, memory=memory, critic=16))


def worth(player: Network) -> float:
    """What its greedy play gains from the first dial, exactly; for networks without a memory."""
    seen = {"vector": torch.eye(DIALS), "mask": masks(DIALS, 1)[:, 0]}
    nothing = MemoryState(torch.zeros(0, DIALS, 0), torch.zeros(0, DIALS, 0))
    made = act(player, seen, nothing, torch.ones(DIALS, dtype=torch.bool), None).choices
    values = torch.zeros(DIALS)
    for _ in range(1000):
        after = torch.cat([values[1:], torch.tensor([0.0])])
        opening = PAID_FOR_OPENING * (torch.arange(DIALS) == DIALS - 1)
        moved = torch.where(made[:, 1] == RIGHT, opening + DISCOUNT * after, DISCOUNT * values[0])
        turning = PRICE + (1 - SLIP) * moved + SLIP * DISCOUNT * values
        values = torch.where(made[:, 0] == TURN, turning, PAID_FOR_LEAVING)
    return float(values[0])
