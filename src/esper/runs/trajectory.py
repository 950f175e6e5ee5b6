"""An episode as it can be learned from again: everything that was seen, chosen and paid, and what it is about."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from esper.contracts import HEADS_OF, ActionCodec, Choices, Head, Op
from esper.controller import Arrays, Decision
from esper.rl import MemoryState, Sequences

USED = np.array([[head in HEADS_OF[op] for head in Head] for op in Op])
"""Which heads shape an op, (ops, heads)."""
Numbers = NDArray[Any]


@dataclass(frozen=True)
class About:
    """Which episode it was, and how it ended."""

    task: str
    policy: str
    seed: int
    world: int
    """The seed of what was played; the episode's own unless several episodes shared a world."""
    round: int
    """Of the run that it belongs to; 0 in exams and in what 'esper record' plays."""
    score: float
    """Quality less rent at the end, on the evaluation split."""
    terminated: bool
    """Whether the governor ended it before the horizon."""
    drawn: bool
    """Whether choices were drawn. If not, the policy was certain of them, and their log-probabilities are 0."""

    @property
    def key(self) -> tuple[str, str, int, int]:
        """No two episodes of a recording have the same."""
        return self.task, self.policy, self.seed, self.round


@dataclass(frozen=True)
class Trajectory:
    """T steps of one episode over S slots and B blueprints."""

    about: About
    codec: ActionCodec = field(repr=False)
    """What the choices of slot and blueprint stand for."""
    observation: Mapping[str, Numbers] = field(repr=False)
    """Each array (T + 1, ...): the last entry is what was seen after the last step."""
    choices: Numbers = field(repr=False)
    """(T, heads); 0 for heads that the op does not use."""
    log_probs: Numbers = field(repr=False)
    """(T, heads), of the choices when they were made; 0 where nothing was drawn."""
    rewards: Numbers = field(repr=False)
    values: Numbers | None = field(default=None, repr=False)
    """(T), what the policy expected; None if it expects nothing."""

    @property
    def steps(self) -> int:
        return len(self.rewards)

    @property
    def size(self) -> int:
        """How many numbers were seen."""
        return sum(array.size for array in self.observation.values())

    @property
    def total(self) -> float:
        """The return."""
        return float(self.rewards.sum())

    def sequences(self) -> Sequences:
        """One row. No reward is expected after its end, and its first state is empty: whoever learns has its own."""
        ends = torch.zeros(1, self.steps, dtype=torch.bool)
        starts = ends.clone()
        ends[:, -1], starts[:, 0] = True, True
        nothing = torch.zeros(1, self.steps)
        return Sequences(
            observation={name: _row(array[:-1]) for name, array in self.observation.items()},
            choices=_row(self.choices).long(),
            log_probs=_row(self.log_probs).float(),
            free=_row(free_heads(self.observation, self.choices)),
            values=nothing if self.values is None else _row(self.values).float(),
            rewards=_row(self.rewards).float(),
            bootstrap=nothing.clone(),
            starts=starts,
            ends=ends,
            valid=torch.ones_like(ends),
            state=MemoryState(torch.zeros(0, 1, 0), torch.zeros(0, 1, 0)),
        )


def _row(array: Numbers) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).unsqueeze(0)


def masks_met(observation: Mapping[str, Numbers], choices: Numbers) -> dict[Head, Numbers]:
    """What each head could choose from if it was used, (T, values), the heads before it having chosen as they did."""
    steps = np.arange(len(choices))
    op, slot = (choices[:, place] for place in (0, 1))
    masks = {head: observation[f"mask_{head}"][: len(choices)] for head in Head}
    masks[Head.SLOT] = observation["mask_op_slot"][steps, op]
    masks[Head.BLUEPRINT] = observation["mask_slot_blueprint"][steps, slot]
    return {head: mask.astype(bool) for head, mask in masks.items()}


def free_heads(observation: Mapping[str, Numbers], choices: Numbers) -> Numbers:
    """Which heads were used and had more than one legal choice, (T, heads)."""
    choosable = np.stack([mask.sum(axis=1) > 1 for mask in masks_met(observation, choices).values()], axis=1)
    free: Numbers = USED[choices[:, 0]] & choosable
    return free


def illegal_heads(observation: Mapping[str, Numbers], choices: Numbers) -> Numbers:
    """Which heads chose what the masks forbid, or anything but 0 without being used, (T, heads)."""
    steps, used = np.arange(len(choices)), USED[choices[:, 0]]
    met = masks_met(observation, choices)
    allowed = np.stack([mask[steps, choices[:, place]] for place, mask in enumerate(met.values())], axis=1)
    return np.where(used, ~allowed, choices != 0)


class TrajectoryKeeper:
    """Keeps an episode as it is played."""

    def __init__(self, codec: ActionCodec, observation: Arrays) -> None:
        self._codec, self._seen = codec, [observation]
        self._choices: list[Choices] = []
        self._log_probs: list[tuple[float, ...] | None] = []
        self._rewards: list[float] = []
        self._values: list[float | None] = []

    def add(self, decision: Decision, reward: float, observation: Arrays) -> None:
        """What was decided, what it brought, and what is seen now."""
        self._choices.append(decision.choices)
        self._log_probs.append(decision.log_probs)
        self._values.append(None if decision.acted is None else decision.acted.values.item())
        self._rewards.append(reward)
        self._seen.append(observation)

    @property
    def drawn(self) -> bool:
        return any(each is not None for each in self._log_probs)

    def trajectory(self, about: About) -> Trajectory:
        """The whole episode."""
        certain = (0.0,) * len(Head)
        return Trajectory(
            about=about,
            codec=self._codec,
            observation={name: np.stack([seen[name] for seen in self._seen]) for name in self._seen[0]},
            choices=np.array(self._choices, dtype=np.int16),
            log_probs=np.array([each or certain for each in self._log_probs], dtype=np.float32),
            rewards=np.array(self._rewards, dtype=np.float64),
            values=None if None in self._values else np.array(self._values, dtype=np.float32),
        )
