"""Between an episode and a row of a recording, which comes from outside and is judged before it is believed."""

import zlib
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import msgspec
import numpy as np

from esper.contracts import ActionCodec, Head
from esper.runs.recordings.schema import BIT, CHOICE, LOG_PROB, NUMBERS, SEEN, BadRecording, RecordingSchema
from esper.runs.trajectory import USED, About, Numbers, Trajectory, illegal_heads

MOST_STEPS = 10_000
MOST_NAMES = 1_000
"""Slots, or blueprints."""
LONGEST_NAME = 1_000
ROUNDING = 1e-5
"""By which the logarithm of a probability may miss 0."""
HIGHEST = 2**53


def facts_of(trajectory: Trajectory) -> dict[str, Any]:
    """The columns of one value or a few names."""
    codec = trajectory.codec
    plain = asdict(trajectory.about) | {"slot_names": list(codec.slots), "blueprint_names": list(codec.blueprints)}
    return plain | {"checksum": checksum_of(plain, numbers_of(trajectory))}


def numbers_of(trajectory: Trajectory) -> dict[str, Numbers]:
    """The columns of many numbers, flat; without what the policy did not expect."""
    values = {} if trajectory.values is None else {"expected": trajectory.values}
    choices = {f"{CHOICE}{head}": trajectory.choices[:, place] for place, head in enumerate(Head)}
    log_probs = {f"{LOG_PROB}{head}": trajectory.log_probs[:, place] for place, head in enumerate(Head)}
    found = {"rewards": trajectory.rewards} | values | choices | log_probs | dict(trajectory.observation)
    return {name: np.ascontiguousarray(array, NUMBERS[name]).ravel() for name, array in found.items()}


def checksum_of(plain: Mapping[str, Any], numbers: Mapping[str, Numbers]) -> int:
    """CRC-32 of everything in a row: what a disk or a wire has changed is found before it is learned from."""
    found = zlib.crc32(msgspec.json.encode(plain))
    for name in NUMBERS:
        if name in numbers:
            found = zlib.crc32(numbers[name].tobytes(), zlib.crc32(name.encode(), found))
    return found


def trajectory_of(row: Mapping[str, Any], schema: RecordingSchema) -> Trajectory:
    """The episode in a row. Raises `BadRecording` for anything else; the message lacks file and row."""
    about, codec = _about(row), _codec(row)
    numbers = {name: _numbers(row, name) for name in NUMBERS if name != "expected" or row[name] is not None}
    steps = len(numbers["rewards"])
    if not 1 <= steps <= MOST_STEPS:
        raise BadRecording(f"it has {steps} steps; an episode has 1 to {MOST_STEPS:,}")
    shapes = {name: (steps + 1, *shape) for name, shape in schema.shapes(codec).items()}
    arrays = {name: _shaped(name, array, shapes.get(name, (steps,))) for name, array in numbers.items()}
    for name, kind in SEEN.items():
        if kind == BIT:
            _refuse(name, (arrays[name] != 0) & (arrays[name] != 1), arrays[name], "give 0 or 1")
    choices = np.stack([arrays[f"{CHOICE}{head}"] for head in Head], axis=1)
    log_probs = np.stack([arrays[f"{LOG_PROB}{head}"] for head in Head], axis=1)
    observation = {name: arrays[name] for name in SEEN}
    _check_choices(choices, codec, observation)
    _check_log_probs(log_probs, choices, about.drawn)
    plain = {name: row[name] for name in _ABOUT} | {
        "slot_names": list(codec.slots),
        "blueprint_names": list(codec.blueprints),
    }
    if row["checksum"] != checksum_of(plain, numbers):
        raise BadRecording("it is not what was written: its checksum differs")
    return Trajectory(about, codec, observation, choices, log_probs, arrays["rewards"], arrays.get("expected"))


_ABOUT = tuple(each.name for each in fields(About))


def _about(row: Mapping[str, Any]) -> About:
    for name in (*_ABOUT, "checksum"):
        value = row[name]
        if value is None:
            raise BadRecording(f"{name} is missing")
        if isinstance(value, str) and not 0 < len(value) <= LONGEST_NAME:
            raise BadRecording(f"{name} has {len(value):,} letters; give 1 to {LONGEST_NAME:,}")
        if isinstance(value, int) and not 0 <= value <= HIGHEST:
            raise BadRecording(f"{name} is {value}; give a number from 0 to {HIGHEST}")
        if isinstance(value, float) and not np.isfinite(value):
            raise BadRecording(f"{name} is {value}; give a finite number")
    return About(**{name: row[name] for name in _ABOUT})


def _codec(row: Mapping[str, Any]) -> ActionCodec:
    for name in ("slot_names", "blueprint_names"):
        names = () if row[name] is None else tuple(row[name])
        if not 1 <= len(names) <= MOST_NAMES:
            raise BadRecording(f"{name} has {len(names)} entries; give 1 to {MOST_NAMES:,}")
        if not all(isinstance(each, str) and 0 < len(each) <= LONGEST_NAME for each in names):
            raise BadRecording(f"{name} has an entry that is no name of 1 to {LONGEST_NAME:,} letters")
        if len(set(names)) < len(names):
            raise BadRecording(f"{name} names something twice")
    return ActionCodec(tuple(row["slot_names"]), tuple(row["blueprint_names"]))


def _numbers(row: Mapping[str, Any], name: str) -> Numbers:
    found = row[name]
    if found is None:
        raise BadRecording(f"{name} is missing")
    if np.ma.is_masked(found) or found.dtype != NUMBERS[name]:
        raise BadRecording(f"{name} has an entry that is missing")
    return np.asarray(found)


def _shaped(name: str, array: Numbers, shape: tuple[int, ...]) -> Numbers:
    if array.size != np.prod(shape, dtype=object):
        raise BadRecording(f"{name} has {array.size:,} numbers; shape {shape} needs {np.prod(shape, dtype=object):,}")
    shaped = array.reshape(shape)
    _refuse(name, ~np.isfinite(shaped), shaped, "give a finite number")
    return shaped


def _check_choices(choices: Numbers, codec: ActionCodec, observation: Mapping[str, Numbers]) -> None:
    for place, (head, size) in enumerate(zip(Head, codec.sizes, strict=True)):
        made = choices[:, place]
        _refuse(f"{CHOICE}{head}", (made < 0) | (made >= size), made, f"give 0 to {size - 1}")
    _refuse("the choice", illegal_heads(observation, choices), choices, "the mask forbids it, or the op uses no such")


def _check_log_probs(log_probs: Numbers, choices: Numbers, drawn: bool) -> None:
    _refuse("the log-probability", log_probs > ROUNDING, log_probs, "give at most 0")
    idle = ~USED[choices[:, 0]] | (not drawn)
    _refuse("the log-probability", idle & (log_probs < -ROUNDING), log_probs, "give 0 where nothing was drawn")


def _refuse(name: str, wrong: Numbers, array: Numbers, cure: str) -> None:
    """Name the first number that is wrong, if one is."""
    if wrong.any():
        step, *rest = (int(each) for each in np.argwhere(wrong)[0])
        head = f" of head {list(Head)[rest[0]].value}" if name.startswith("the ") else f" {rest}" if rest else ""
        raise BadRecording(f"step {step}: {name}{head} is {array[(step, *rest)]}; {cure}")
