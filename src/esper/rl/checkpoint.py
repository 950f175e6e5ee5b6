"""Everything a learner needs to go on as if it had never stopped, in one file that is written whole or not at all.

A file is a dictionary of tensors, numbers and strings, read with `weights_only=True`: it cannot run code. What comes
from a file is checked completely before anything is changed.
"""

import copy
import io
import math
import os
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from esper.rl.errors import RLError
from esper.rl.learner import Counters, Learner
from esper.rl.network import Network
from esper.rl.normalise import Moments
from esper.rl.reuse import Rollout, rollout_in

FORMAT = "esper-learner"
VERSION = 2
MAX_BYTES = 1 << 30
UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: lambda raw: raw | {"past": []}}
"""From each older version to the next one; an upgrade applies them in turn."""
READABLE = {bool, int, float, str, type(None), list, tuple, dict, OrderedDict}
"""What may be in a file, beside tensors: these types themselves, not those derived from them."""


class BadCheckpoint(RLError):
    """A file that is no checkpoint, is damaged, or does not fit."""


class OldCheckpoint(BadCheckpoint):
    """A checkpoint of an older version that can be upgraded."""


@dataclass(frozen=True)
class Checkpoint:
    """The content of a file, of the right types and the current version."""

    schema: dict[str, Any]
    config: dict[str, Any]
    weights: dict[str, Tensor]
    optimiser: dict[str, Any]
    moments: dict[str, Any]
    counters: dict[str, Any]
    generator: Tensor
    past: list[Any]
    """Rollouts that the next update learns from too."""
    extra: dict[str, Any]
    """What the caller stored beside the learner."""
    anchor: dict[str, Tensor] = field(default_factory=dict)
    """Weights of the policy that learning began with, if it is kept near that; files without them mean none."""


def save_checkpoint(path: Path, learner: Learner, extra: Mapping[str, Any]) -> None:
    """Write atomically: the file is the old one or the new one, never a part.

    `extra` may hold numbers, strings, tensors, lists and dictionaries.
    """
    content = Checkpoint(
        schema=learner.network.schema(),
        config=asdict(learner.config),
        weights=learner.network.state_dict(),
        optimiser=learner.optimizer.state_dict(),
        moments=asdict(learner.moments),
        counters=asdict(learner.counters),
        generator=learner.generator.get_state(),
        past=[rollout.plain() for rollout in learner.past],
        extra=dict(extra),
        anchor={} if learner.anchor is None else learner.anchor.state_dict(),
    )
    _write(path, {"format": FORMAT, "version": VERSION, **vars(content)})


def load_checkpoint(path: Path) -> Checkpoint:
    """Read and check a file of the current version."""
    raw = _read(path)
    if raw["version"] != VERSION:
        raise OldCheckpoint(
            f"{path} has format version {raw['version']} and this program reads {VERSION}; "
            f"run 'esper checkpoint upgrade {path}'"
        )
    return _parsed(path, raw)


def upgrade_checkpoint(path: Path) -> int:
    """Rewrite a file of an older version in place; returns the version it had."""
    raw = _read(path)
    found = int(raw["version"])
    for version in range(found, VERSION):
        raw = UPGRADES[version](raw) | {"version": version + 1}
    _parsed(path, raw)
    if found != VERSION:
        _write(path, raw)
    return found


def export_checkpoint(path: Path, out: Path) -> None:
    """Write the checkpoint without what only the next update needs: a third of the size, and plays the same."""
    checkpoint = load_checkpoint(path)
    slim = replace(checkpoint, optimiser={**checkpoint.optimiser, "state": {}}, past=[], anchor={})
    try:
        _write(out, {"format": FORMAT, "version": VERSION, **vars(slim)})
    except OSError as error:
        raise RLError(f"{out} cannot be written ({error.strerror}); give another file") from None


def restore(checkpoint: Checkpoint, learner: Learner) -> None:
    """Give a learner everything that was saved. It shares no memory with the checkpoint afterwards.

    The learner's own configuration stays; what it must have in common with the saved one is the network's schema.
    """
    network = learner.network
    require_same_schema(checkpoint.schema, network.schema())
    require_same_weights(checkpoint.weights, network.state_dict())
    _require_same_optimiser(checkpoint.optimiser, learner.optimizer)
    generator = generator_in(checkpoint.generator)
    past = _past_in(checkpoint.past[: learner.config.reuse - 1], network)
    anchor = _anchor_in(checkpoint.anchor, network)
    network.load_state_dict(checkpoint.weights)
    groups = learner.optimizer.state_dict()["param_groups"]
    learner.optimizer.load_state_dict({"state": _copied(checkpoint.optimiser["state"]), "param_groups": groups})
    learner.moments = Moments(**checkpoint.moments)
    learner.counters = Counters(**checkpoint.counters)
    learner.generator = generator
    learner.past = past
    learner.anchor = anchor


def restore_weights(checkpoint: Checkpoint, learner: Learner) -> None:
    """Give a learner the weights alone, and the scale of returns that belongs to the critic."""
    network = learner.network
    require_same_schema(checkpoint.schema, network.schema())
    require_same_weights(checkpoint.weights, network.state_dict())
    network.load_state_dict(checkpoint.weights)
    learner.moments = Moments(**checkpoint.moments)
    learner.anchor = None


def _anchor_in(weights: Mapping[str, Tensor], network: Network) -> Network | None:
    if not weights:
        return None
    require_same_weights(weights, network.state_dict())
    anchor = copy.deepcopy(network).requires_grad_(False)
    anchor.load_state_dict(weights)
    return anchor


def _past_in(saved: Sequence[Any], network: Network) -> tuple[Rollout, ...]:
    try:
        return tuple(rollout_in(each, network) for each in saved)
    except Exception as error:  # tensors of the wrong kind can make a network stumble in any way
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadCheckpoint(
            f"the rollouts in the checkpoint are not those of this network ({reason}); use another checkpoint"
        ) from None


def generator_in(state: Tensor, device: torch.device | None = None) -> torch.Generator:
    """Random numbers that go on from a saved state."""
    try:
        return torch.Generator(device or "cpu").set_state(state)
    except (RuntimeError, TypeError):
        raise BadCheckpoint("the checkpoint's random numbers are damaged; use another checkpoint") from None


def require_same_schema(saved: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Refuse weights of a network with other heads, features or sizes, and say which."""
    differing = [name for name in sorted({*saved, *own}) if saved.get(name) != own.get(name)]
    if differing:
        lines = "; ".join(f"{name}: {_difference(saved.get(name), own.get(name))}" for name in differing)
        raise BadCheckpoint(
            f"the checkpoint was made by another kind of network ({lines}); build the network as it was, or train anew"
        )


def _difference(saved: object, own: object) -> str:
    """Long lists are told by what only one of them has."""
    if isinstance(saved, list | tuple) and isinstance(own, list | tuple):
        lost, new = [each for each in saved if each not in own], [each for each in own if each not in saved]
        if lost or new:
            return f"only the checkpoint has {lost}, only the network has {new}"
    return f"the checkpoint has {saved}, the network {own}"


def require_same_weights(saved: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
    """Refuse missing, additional, misshapen and non-finite weights."""
    missing, additional = sorted(own.keys() - saved.keys()), sorted(saved.keys() - own.keys())
    if missing or additional:
        raise BadCheckpoint(f"the checkpoint lacks weights {missing} and has unknown weights {additional}")
    for name, tensor in own.items():
        if saved[name].shape != tensor.shape or saved[name].dtype != tensor.dtype:
            given, wanted = (f"{tuple(each.shape)} {each.dtype}" for each in (saved[name], tensor))
            raise BadCheckpoint(f"weight '{name}' is {given} in the checkpoint and {wanted} in the network")
        if saved[name].is_floating_point() and not bool(saved[name].isfinite().all()):
            raise BadCheckpoint(f"weight '{name}' has numbers that are not finite; use an earlier checkpoint")


def _require_same_optimiser(saved: Mapping[str, Any], own: torch.optim.Optimizer) -> None:
    parameters = [parameter for group in own.param_groups for parameter in group["params"]]
    groups, state = saved.get("param_groups"), saved.get("state")
    fits = (
        isinstance(groups, list)
        and isinstance(state, dict)
        and [group.get("params") for group in groups] == [group["params"] for group in own.state_dict()["param_groups"]]
        and state.keys() <= set(range(len(parameters)))
        and all(_fits(each, parameters[place]) for place, each in state.items())
    )
    if not fits:
        raise BadCheckpoint("the optimiser in the checkpoint is not that of this network; use another checkpoint")


def _fits(moving: object, parameter: Tensor) -> bool:
    """Whether these can be Adam's averages of a parameter."""
    shapes = {"step": torch.Size(), "exp_avg": parameter.shape, "exp_avg_sq": parameter.shape}
    return (
        isinstance(moving, dict)
        and {name: getattr(value, "shape", None) for name, value in moving.items()} == shapes
        and all(bool(value.isfinite().all()) for value in moving.values())
    )


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list) else value


def _require_plain(value: object, name: str) -> None:
    """Refuse what could be written and not be read again."""
    if type(value) not in READABLE and not isinstance(value, Tensor):
        raise RLError(
            f"{name} is a {type(value).__name__}; a checkpoint holds numbers, strings, tensors, lists and dictionaries"
        )
    if isinstance(value, dict):
        for key, each in value.items():
            _require_plain(key, f"a key of {name}")
            _require_plain(each, f"{name}[{key!r}]")
    if isinstance(value, list | tuple):
        for place, each in enumerate(value):
            _require_plain(each, f"{name}[{place}]")


def _write(path: Path, content: Mapping[str, Any]) -> None:
    """Beside the target first, flushed to disk, then in its place."""
    for name, value in content.items():
        _require_plain(value, name)
    packed = io.BytesIO()  # torch hides what the system says of a disk that is full
    torch.save(dict(content), packed)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(packed.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any]:
    """The dictionary of a file, with its format and version checked."""
    try:
        _require_bounded(path)
        raw = torch.load(path, map_location="cpu", weights_only=True)
    except BadCheckpoint:
        raise
    except FileNotFoundError:
        raise BadCheckpoint(f"there is no file {path}; give the path of a checkpoint") from None
    except Exception as error:  # a damaged pickle can make its reader stumble in any way
        reason = (str(error).splitlines() or ["no reason given"])[0]
        raise BadCheckpoint(
            f"{path} cannot be read as a checkpoint ({reason}); it is damaged, or no checkpoint"
        ) from None
    if not isinstance(raw, dict) or raw.get("format") != FORMAT or not isinstance(raw.get("version"), int):
        raise BadCheckpoint(f"{path} is a file of PyTorch, but no checkpoint of a learner")
    known = [*UPGRADES, VERSION]
    if raw["version"] not in known:
        raise BadCheckpoint(
            f"{path} has format version {raw['version']}; this program knows {', '.join(map(str, known))}; "
            "use the program that wrote it, or a newer one"
        )
    return raw


def _require_bounded(path: Path) -> None:
    """Refuse what is no archive, or unpacks to more than any controller needs."""
    with zipfile.ZipFile(path) as archive:
        size = sum(entry.file_size for entry in archive.infolist())
    if size > MAX_BYTES:
        raise BadCheckpoint(f"{path} unpacks to {size:,} bytes; a checkpoint has at most {MAX_BYTES:,}")


def _parsed(path: Path, raw: Mapping[str, Any]) -> Checkpoint:
    other: dict[str, type] = {"generator": Tensor, "past": list}
    raw = {"anchor": {}} | dict(raw)
    kinds = {name: other.get(name, dict) for name in Checkpoint.__dataclass_fields__}
    for name, kind in kinds.items():
        if not isinstance(raw.get(name), kind):
            raise BadCheckpoint(f"{path} has no proper '{name}'; it is damaged, or was not written by this program")
    for name in ("weights", "anchor"):
        if not all(isinstance(key, str) and isinstance(value, Tensor) for key, value in raw[name].items()):
            raise BadCheckpoint(f"{path} has '{name}' that are not tensors by name; it is damaged")
    for name, example in (("moments", asdict(Moments())), ("counters", asdict(Counters()))):
        wanted = {field: type(value) for field, value in example.items()}
        if {field: type(value) for field, value in raw[name].items()} != wanted:
            raise BadCheckpoint(f"{path} has {name} {raw[name]}; expected the fields {', '.join(wanted)}")
        if not all(math.isfinite(value) and (value >= 0 or field == "mean") for field, value in raw[name].items()):
            raise BadCheckpoint(f"{path} has {name} {raw[name]}, which cannot be; use an earlier checkpoint")
    return Checkpoint(**{name: raw[name] for name in kinds})
