"""Growth by a fixed plan: which seed is to germinate where, and from which epoch on. A TOML file can hold it.

[[seed]]
epoch = 0                  # the first decision is in epoch 0
slot = "block1"
blueprint = "conv_light"

[[seed]]
epoch = 4
slot = "block2"
blueprint = "conv_small"
style = "gated"            # these four may be left out
tempo = "slow"
alpha_target = "most"
fossilize = false          # holds the seed to the end
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from esper.checked import BadValue, checked, read_toml
from esper.contracts import (
    CHOICES,
    WAIT,
    Action,
    ActionCodec,
    AlphaTarget,
    EsperError,
    Head,
    Op,
    SlotId,
    Style,
    Tempo,
    nearest,
)
from esper.controller.policy import Arrays, Decision, decision_for, legal_ops

START_SHARE = 0.6
"""The first part of the horizon, in which seeds of a random schedule start."""

CHOSEN = (Head.STYLE, Head.TEMPO, Head.ALPHA_TARGET)
"""The heads whose choices a seed names."""


class BadSchedule(EsperError):
    """A schedule that cannot be read, says what is not allowed, or names what the body does not have."""


@dataclass(frozen=True)
class ScheduledSeed:
    """One seed of a plan, to germinate in `epoch` or as soon as that is legal."""

    epoch: int
    slot: SlotId
    blueprint: str
    style: Style = Style.LINEAR_ADD
    tempo: Tempo = Tempo.FAST
    alpha_target: AlphaTarget = AlphaTarget.FULL
    fossilize: bool = True

    def next_step(self, legal: Sequence[bool] | NDArray[Any], epoch: int) -> Action | None:
        """The next operation of this seed's life if it may happen in `epoch`; `legal` says which ops its slot allows.

        Germinate, advance and fossilise belong to different stages, so that a slot allows at most one of them.
        """
        if legal[Op.GERMINATE] and epoch >= self.epoch:
            return Action(Op.GERMINATE, self.slot, self.blueprint, self.style, self.tempo, self.alpha_target)
        if legal[Op.ADVANCE]:
            return Action(Op.ADVANCE, self.slot)
        if legal[Op.FOSSILIZE] and self.fossilize:
            return Action(Op.FOSSILIZE, self.slot)
        return None


@dataclass(frozen=True)
class ScheduleState:
    """Where a schedule stands: the epoch of the next decision."""

    codec: ActionCodec
    epoch: int = 0


@dataclass(frozen=True)
class Schedule:
    """Takes each seed through its life as fast as the gates allow; of several that can go on, the first in the list.

    >>> seeds = (ScheduledSeed(0, "block1", "conv_light"), ScheduledSeed(4, "block2", "norm", tempo=Tempo.SLOW))
    >>> print(Schedule(seeds[:1]).to_toml())
    [[seed]]
    epoch = 0
    slot = "block1"
    blueprint = "conv_light"
    style = "linear_add"
    tempo = "fast"
    alpha_target = "full"
    fossilize = true
    <BLANKLINE>
    >>> Schedule(seeds).start(ActionCodec(slots=("block1", "block3"), blueprints=("norm", "conv_light")))
    Traceback (most recent call last):
    ...
    esper.controller.schedule.BadSchedule: seed 2: there is no slot 'block2'; did you mean 'block3'?
    """

    seeds: tuple[ScheduledSeed, ...]
    name: str = "schedule"

    def __post_init__(self) -> None:
        if not self.seeds:
            raise BadSchedule("the schedule has no seed; give at least one [[seed]], or play without growth")
        first: dict[SlotId, int] = {}
        for number, seed in enumerate(self.seeds, start=1):
            if seed.epoch < 0:
                raise BadSchedule(f"seed {number}: epoch {seed.epoch}; epochs count from 0, give 0 or more")
            if seed.slot in first:
                raise BadSchedule(
                    f"seed {number}: slot {seed.slot!r} is already that of seed {first[seed.slot]}; "
                    "a slot takes one seed, leave one of them out"
                )
            first[seed.slot] = number

    def start(self, codec: ActionCodec) -> ScheduleState:
        """Epoch 0, once every slot and blueprint is known to the codec."""
        for number, seed in enumerate(self.seeds, start=1):
            for what, name, known in (
                ("slot", seed.slot, codec.slots),
                ("blueprint", seed.blueprint, codec.blueprints),
            ):
                if name not in known:
                    raise BadSchedule(f"seed {number}: there is no {what} {name!r}; {nearest(name, known)}")
        return ScheduleState(codec)

    def act(
        self, observation: Arrays, state: ScheduleState, generator: torch.Generator
    ) -> tuple[Decision, ScheduleState]:
        """One epoch's operation, and the next epoch."""
        if state.epoch == 0:
            self._require_fit(state.codec, observation["mask_slot_blueprint"])
        action = self.choose(state.codec.slots, legal_ops(observation), state.epoch)
        return decision_for(action, state.codec), replace(state, epoch=state.epoch + 1)

    def choose(self, slots: Sequence[SlotId], legal: NDArray[Any], epoch: int) -> Action:
        """The operation of `epoch`; `legal` is (ops, slots)."""
        steps = (seed.next_step(legal[:, slots.index(seed.slot)], epoch) for seed in self.seeds)
        return next((step for step in steps if step is not None), WAIT)

    def _require_fit(self, codec: ActionCodec, fits: NDArray[Any]) -> None:
        for number, seed in enumerate(self.seeds, start=1):
            allowed = _fitting(codec, fits, codec.slots.index(seed.slot))
            if seed.blueprint not in allowed:
                raise BadSchedule(
                    f"seed {number}: blueprint {seed.blueprint!r} does not fit slot {seed.slot!r}; "
                    f"what fits there: {', '.join(allowed)}"
                )

    def to_toml(self) -> str:
        """A file that `load_schedule` reads as this schedule."""
        return "\n".join(f"[[seed]]\n{_lines_of(seed)}" for seed in self.seeds)


def _lines_of(seed: ScheduledSeed) -> str:
    return "".join(f"{field.name} = {_written(getattr(seed, field.name))}\n" for field in fields(seed))


def _written(value: Any) -> str:
    """A JSON value is a TOML value, but for the character DEL."""
    plain = value.name.lower() if isinstance(value, Enum) else value
    return json.dumps(plain, ensure_ascii=False).replace("\x7f", "\\u007f")


@dataclass(frozen=True)
class ScheduleFile:
    """The tables of a file."""

    seed: tuple[ScheduledSeed, ...] = ()


def load_schedule(path: Path) -> Schedule:
    """The schedule in a TOML file. Its slots and blueprints are checked at the start of an episode, all else here."""
    try:
        return Schedule(checked(ScheduleFile, read_toml(path)).seed)
    except (BadValue, BadSchedule) as error:
        raise BadSchedule(f"{path}: {error}") from error.__cause__


def random_schedule(
    codec: ActionCodec, horizon: int, generator: torch.Generator, fits: NDArray[Any] | None = None
) -> Schedule:
    """Between one seed and one per slot, each with everything drawn evenly; all start in the first 60 % of the horizon.

    `fits` (slots, blueprints) is the observation's `mask_slot_blueprint`; without it every blueprint fits everywhere.
    """

    def draw(choices: Sequence[Any]) -> Any:
        return choices[int(torch.randint(len(choices), (), generator=generator))]

    starts = range(max(1, int(START_SHARE * horizon)))
    order = torch.randperm(len(codec.slots), generator=generator).tolist()
    seeds = []
    for index in order[: draw(range(len(order))) + 1]:
        blueprint = draw(codec.blueprints if fits is None else _fitting(codec, fits, index))
        chosen = {head.value: draw(CHOICES[head]) for head in CHOSEN}
        seeds.append(ScheduledSeed(draw(starts), codec.slots[index], blueprint, **chosen))
    return Schedule(tuple(seeds))


def _fitting(codec: ActionCodec, fits: NDArray[Any], slot: int) -> list[str]:
    """The blueprints that may germinate in the slot of that index."""
    return [name for name, fit in zip(codec.blueprints, fits[slot], strict=True) if fit]
