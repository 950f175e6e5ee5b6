"""Experience: rows of steps, in room that is allocated once.

A row holds one episode, or several one behind the other. Rows stay whole everywhere: minibatches take rows, never
single steps, because a recurrent policy can only be replayed from the start of a row.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from esper.rl.errors import BufferFull, NonFinite, NoSteps, OpenRow, WrongShape
from esper.rl.memory import MemoryState


class Sequences(NamedTuple):
    """B rows of T steps: what a learner learns from.

    Behind a row's last step `valid` is False and all else is 0. Between two episodes there may be steps that are not
    valid either, in which nothing was done.
    """

    observation: dict[str, Tensor]
    choices: Tensor
    """(B, T, heads): whole numbers, or real ones if the network is continuous."""
    log_probs: Tensor
    """(B, T, heads), of the choices when they were made."""
    free: Tensor
    """(B, T, heads): the head was used and had more than one legal choice."""
    values: Tensor
    rewards: Tensor
    bootstrap: Tensor
    """V of the state after a step that ends a row or a truncated episode; 0 after a terminated one."""
    starts: Tensor
    ends: Tensor
    valid: Tensor
    state: MemoryState
    """The state before the first step of each row, (layers, B, size)."""

    @property
    def rows(self) -> int:
        return self.rewards.shape[0]

    def course(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """What estimates of advantage are made from: rewards, values, bootstrap, ends, valid."""
        return self.rewards, self.values, self.bootstrap, self.ends, self.valid

    def take(self, rows: Tensor) -> "Sequences":
        """Some of the rows, whole."""
        return self.mapped(lambda part: part[rows], self.state.take(rows))

    def mapped(self, change: Callable[[Tensor], Tensor], state: MemoryState) -> "Sequences":
        """The same change made to everything that has rows and steps, and another first state."""
        observation = {name: change(value) for name, value in self.observation.items()}
        rest = {name: change(getattr(self, name)) for name in ROW_TENSORS}
        return Sequences(observation=observation, state=state, **rest)

    def check(self, heads: int) -> None:
        """Refuse what cannot be learned from."""
        if not bool(self.valid.any()):
            raise NoSteps("the sequences hold no step; collect at least one before an update")
        wanted = (*self.rewards.shape, heads)
        for name in ("choices", "log_probs", "free"):
            given = tuple(getattr(self, name).shape)
            if given != wanted:
                raise WrongShape(f"{name} of shape {given}; the network's {heads} heads need {wanted}")
        last = self.valid & ~torch.nn.functional.pad(self.valid[:, 1:], (0, 1))
        if bool((last & ~self.ends).any()):
            row = (last & ~self.ends).nonzero()[0, 0].item()
            raise OpenRow(f"row {row} stops inside an episode; cut it, with V of the state that follows")
        plain = {name: getattr(self, name) for name in ("rewards", "values", "bootstrap", "log_probs")}
        for name, value in (plain | self.observation).items():
            if not bool(value.isfinite().all()):
                where = (~value.isfinite()).nonzero()[0].tolist()
                raise NonFinite(f"{name} at [row, step, ...] = {where} is {value[tuple(where)].item()}")


ROW_TENSORS = tuple(name for name in Sequences._fields if name not in {"observation", "state"})
"""The parts that are single tensors with rows and steps."""


class Buffer:
    """Room for `rows` rows of at most `steps` steps, filled one step of all rows at a time and used again and again."""

    def __init__(
        self, rows: int, steps: int, example: Mapping[str, Tensor], heads: int, continuous: bool = False
    ) -> None:
        """`example` is one row's observation of one step, on the device where there is to be room."""
        shape, device = (rows, steps), next(iter(example.values())).device
        self.steps = steps
        self._used = 0
        self._state: MemoryState | None = None
        self._data = Sequences(
            {name: value.new_zeros(*shape, *value.shape) for name, value in example.items()},
            choices=torch.zeros(*shape, heads, dtype=torch.float if continuous else torch.long, device=device),
            log_probs=torch.zeros(*shape, heads, device=device),
            free=torch.zeros(*shape, heads, dtype=torch.bool, device=device),
            values=torch.zeros(shape, device=device),
            rewards=torch.zeros(shape, device=device),
            bootstrap=torch.zeros(shape, device=device),
            starts=torch.zeros(shape, dtype=torch.bool, device=device),
            ends=torch.zeros(shape, dtype=torch.bool, device=device),
            valid=torch.ones(shape, dtype=torch.bool, device=device),
            state=MemoryState(torch.zeros(0), torch.zeros(0)),
        )

    def begin(self, state: MemoryState) -> None:
        """Forget everything and start rows in this state."""
        self._used, self._state = 0, MemoryState(*(part.detach().clone() for part in state))

    def decide(
        self, observation: Mapping[str, Tensor], starts: Tensor, choices: Tensor, log_probs: Tensor, free: Tensor
    ) -> None:
        """Open the next step with what was seen and chosen, one entry per row."""
        if self._used == self.steps:
            raise BufferFull(
                f"an episode is longer than the {self.steps} steps there is room for; make a buffer of more steps"
            )
        now, data = self._used, self._data
        for name, value in observation.items():
            data.observation[name][:, now] = value
        data.starts[:, now], data.choices[:, now] = starts, choices
        data.log_probs[:, now], data.free[:, now] = log_probs, free

    def conclude(
        self, values: Tensor, rewards: Tensor, ends: Tensor, bootstrap: Tensor, valid: Tensor | None = None
    ) -> None:
        """Close the step with what came of it; rows that are not `valid` made no step."""
        now, data = self._used, self._data
        data.valid[:, now] = True if valid is None else valid
        data.values[:, now], data.rewards[:, now] = values, rewards
        data.ends[:, now], data.bootstrap[:, now] = ends, bootstrap
        self._used += 1

    def cut(self, bootstrap: Tensor) -> None:
        """End every row that is in the middle of an episode; `bootstrap` is V of the state after its last step."""
        last = self._used - 1
        going = ~self._data.ends[:, last]
        self._data.bootstrap[:, last] = torch.where(going, bootstrap, self._data.bootstrap[:, last])
        self._data.ends[:, last] = True

    def sequences(self) -> Sequences:
        """What was collected: views of the buffer, good until it begins again."""
        if self._state is None or self._used == 0:
            raise NoSteps("the buffer is empty; collect at least one step")
        used = self._used
        return self._data.mapped(lambda part: part[:, :used], self._state)


def join(parts: Sequence[Sequences]) -> Sequences:
    """The rows of all parts. Shorter rows, and observations with fewer entries, are padded with zeros."""
    if not parts:
        raise NoSteps("there are no sequences to join")
    names = parts[0].observation
    return Sequences(
        observation={name: _stack([part.observation[name] for part in parts]) for name in names},
        state=MemoryState(*(torch.cat(column, dim=1) for column in zip(*(part.state for part in parts), strict=True))),
        **{name: _stack([getattr(part, name) for part in parts]) for name in ROW_TENSORS},
    )


def _stack(parts: list[Tensor]) -> Tensor:
    """Along the rows, in room for the largest part."""
    rows = sum(len(part) for part in parts)
    room = [max(sizes) for sizes in zip(*(part.shape[1:] for part in parts), strict=True)]
    result = parts[0].new_zeros(rows, *room)
    first = 0
    for part in parts:
        result[first : first + len(part)][tuple(slice(size) for size in part.shape)] = part
        first += len(part)
    return result
