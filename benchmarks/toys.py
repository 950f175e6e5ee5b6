"""Decision problems so small that every episode can be listed: what policies do in them is known exactly.

A toy is the list of all its episodes, with what is chosen and paid in each. So the value of a policy is a sum over the
list, its gradient is that sum differentiated, and drawing an episode is drawing a number.
"""

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor, nn

SIZE = 16
"""Of the trunk that all heads of a policy share."""


class Toy(NamedTuple):
    """All episodes, E of them, of at most T steps and H heads."""

    heads: dict[str, int]
    """How many choices each has."""
    observation: Tensor
    """(E, T, numbers)."""
    choices: Tensor
    """(E, T, H)."""
    free: Tensor
    """(E, T, H): the head was used and had a choice."""
    rewards: Tensor
    """(E, T)."""
    states: Tensor
    """(E, T): numbers of what is seen; equal where a policy cannot see a difference."""
    chance: Tensor
    """(E): the part of an episode's probability that the policy has no hand in."""
    noise: float
    """Deviation of what is added to the reward of every step with a choice."""

    @property
    def deciding(self) -> Tensor:
        """(E, T): something could be chosen."""
        return self.free.any(dim=-1)


class Policy(nn.Module):
    """A trunk, and heads on it. Later heads are used under one choice of the first only, so none sees another."""

    def __init__(self, toy: Toy, seed: int, first: Sequence[float]) -> None:
        """`first` are added to the logits of the first head."""
        super().__init__()
        source = torch.Generator().manual_seed(seed)
        self.trunk = nn.Linear(toy.observation.shape[-1], SIZE)
        self.heads = nn.ModuleList([nn.Linear(SIZE, size) for size in toy.heads.values()])
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=source))
            self.head(0).bias.add_(torch.tensor(first))

    def head(self, place: int) -> nn.Linear:
        """The layer that makes a head's logits."""
        found = self.heads[place]
        assert isinstance(found, nn.Linear)
        return found

    def log_probs(self, toy: Toy) -> Tensor:
        """(E, T, H), of what was chosen in each episode; 0 where nothing could be."""
        seen = torch.tanh(self.trunk(toy.observation))
        every = [torch.log_softmax(head(seen), dim=-1) for head in self.heads]
        made = [each.gather(-1, toy.choices[..., place : place + 1]) for place, each in enumerate(every)]
        return torch.cat(made, dim=-1).masked_fill(~toy.free, 0.0)


class Exact(NamedTuple):
    """What is true of a policy in a toy."""

    log_probs: Tensor
    """(E, T, H)."""
    chances: Tensor
    """(E)."""
    value: Tensor
    """The mean return; its gradient is the policy gradient."""
    values: Tensor
    """(E, T): the mean of what is still paid, by what is seen."""
    gains: Tensor
    """(E, T): what is still paid in the episode, less that mean; 0 where nothing could be chosen."""
    scale: float
    """Deviation of these gains with their noise, over steps with a choice, times the number of such steps in a mean
    episode: the gradient of an average of normalised gains over steps is the policy gradient by this."""


def exact(toy: Toy, policy: Policy) -> Exact:
    """All of it, by summing over all episodes."""
    log_probs = policy.log_probs(toy)
    chances = log_probs.sum(dim=(1, 2)).exp() * toy.chance
    with torch.no_grad():
        paid = toy.rewards.flip(1).cumsum(dim=1).flip(1)
        count = int(toy.states.max()) + 1
        weight = chances.unsqueeze(-1).expand_as(paid).flatten()
        places = toy.states.flatten()
        visits, sums = (torch.zeros(count).index_add(0, places, each) for each in (weight, weight * paid.flatten()))
        values = (sums / visits.clamp(min=1e-12))[toy.states]
        gains = (paid - values) * toy.deciding
        steps = (chances.unsqueeze(-1) * toy.deciding).sum()
        variance = (chances.unsqueeze(-1) * gains.square()).sum() / steps + toy.noise**2
    value = (chances * toy.rewards.sum(dim=1)).sum()
    return Exact(log_probs, chances.detach(), value, values, gains, float(steps * variance.sqrt()))


def bandit() -> Toy:
    """One step, four contexts, six ops. Op 5 uses three more heads: which style is right depends on the context, one
    tempo is always better, the target does not matter. A wrong style costs, so that op 5 pays only who knows it."""
    heads = {"op": 6, "style": 4, "tempo": 3, "target": 3}
    plain = [(op, 0, 0, 0) for op in range(5)]
    planted = [(5, *rest) for rest in product(range(4), range(3), range(3))]
    observation, choices, free, rewards, states = [], [], [], [], []
    for context, (op, style, tempo, target) in product(range(4), plain + planted):
        observation.append(torch.eye(4)[context])
        choices.append([op, style, tempo, target])
        free.append([True] + [op == 5] * 3)
        rewards.append((0.6 * (style == context) + 0.2 * (tempo == 1) - 0.4) if op == 5 else 0.1 * (op == context))
        states.append(context)
    return _toy(heads, torch.stack(observation).unsqueeze(1), choices, free, rewards, states, 0.25, 0.3)


def hazard(done: float, left: float, steps: int = 20) -> Toy:
    """Something can be done once, in any step. An episode in which it is done pays `done`, one in which it never is
    `left`. The policy sees the time."""
    episodes = range(steps + 1)
    time = torch.linspace(0, 1, steps)
    seen = torch.stack([torch.ones(steps), time, time.square()], dim=-1)
    choices = [[[int(step == at)] for step in range(steps)] for at in episodes]
    free = [[[step <= at] for step in range(steps)] for at in episodes]
    rewards = torch.zeros(steps + 1, steps)
    rewards[:, -1] = torch.tensor([done] * steps + [left])
    states = torch.arange(steps).repeat(steps + 1, 1) + steps * torch.tensor(free)[..., 0]
    return Toy(
        {"op": 2},
        seen.expand(steps + 1, steps, 3),
        torch.tensor(choices),
        torch.tensor(free),
        rewards,
        states,
        torch.ones(steps + 1),
        0.3,
    )


def planting() -> Toy:
    """Two steps: plant one of four kinds, or wait; then finish what was planted, or not. Only the first kind is worth
    having, and only if it is finished; the others cost. A planter who has learned neither kind nor finishing loses."""
    heads = {"op": 2, "kind": 4}
    observation, choices, free, rewards, states = [], [], [], [], []
    for planted, kind, finished in product((0, 1), range(4), (0, 1)):
        if not planted and (kind or finished):
            continue
        observation.append([[1.0, 0.0], [0.0, 1.0]])
        choices.append([[planted, kind], [finished, 0]])
        free.append([[True, bool(planted)], [bool(planted), False]])
        rewards.append([0.0, (1.0 if kind == 0 else -0.5) * finished - 0.1 * planted])
        states.append([0, 1 + planted * (1 + kind)])
    return Toy(
        heads,
        torch.tensor(observation),
        torch.tensor(choices),
        torch.tensor(free),
        torch.tensor(rewards),
        torch.tensor(states),
        torch.ones(len(choices)),
        0.3,
    )


def _toy(
    heads: dict[str, int],
    observation: Tensor,
    choices: list[list[int]],
    free: list[list[bool]],
    rewards: list[float],
    states: list[int],
    chance: float,
    noise: float,
) -> Toy:
    """Of episodes of one step, equally likely contexts."""
    made, could, paid, seen = (torch.tensor(each).unsqueeze(1) for each in (choices, free, rewards, states))
    return Toy(heads, observation, made, could, paid, seen, torch.full((len(choices),), chance), noise)
