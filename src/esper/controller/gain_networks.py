"""What a seed would gain in quality, predicted from what the host has shown: a few small networks, averaged.

A safetensors file holds them, with the names of the numbers that they read.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from esper.contracts import EsperError, ObservationFields
from esper.controller.features import places
from esper.controller.policy import Arrays

GROUPS: dict[str, tuple[str, ...]] = {
    "task": ("host.outcomes", "host.rows", "host.horizon"),
    "host": ("host.parameters", "host.depth", "host.mean_channels", "host.most_channels"),
    "course": (
        "host.train_loss",
        "host.evaluation_loss",
        "host.quality",
        "host.gradient_norm",
        "host.quality_slope",
        "host.loss_slope",
        "host.loss_gap",
    ),
    "place": ("slots.position", "slots.channels", "slots.resolution"),
    "reach": ("slots.reach", "slots.reach_share"),
    "blueprint": (
        "blueprints.topology_cnn",
        "blueprints.topology_dense",
        "blueprints.kind_normalise",
        "blueprints.kind_reweight",
        "blueprints.kind_mix_space",
        "blueprints.kind_mix_channels",
        "blueprints.cost",
    ),
    "first-order gain": (
        "blueprints.gain_norm",
        "blueprints.gain_push",
        "blueprints.gain_agreed",
        "blueprints.gain_steadiness",
    ),
}
"""What is read, by what it tells of. Rent is not: it decides what a gain is worth, not how large it is."""
INPUTS = tuple(name for names in GROUPS.values() for name in names)
SEED_INPUTS = (
    "host.progress",
    "host.horizon",
    "host.outcomes",
    "host.rows",
    *GROUPS["host"],
    *GROUPS["course"],
    "slots.contribution",
    "slots.gradient_norm",
    "slots.size",
    "slots.channels",
    "slots.resolution",
    "slots.reach",
    "slots.reach_share",
)
"""What is read of a seed that lives, and of the host around it."""

FAR = 4.0
"""Deviations from the mean beyond which a number counts as this far."""
UNIT = 0.1
"""A gain in quality that counts as 1 inside the networks."""
FORMAT = 1
MAX_BYTES = 16_000_000

Table = NDArray[np.float64]


class BadRanker(EsperError):
    """A file that holds no such networks."""


def measured(observation: Arrays) -> dict[str, Table]:
    """The arrays of numbers in an observation, with NaN for what was not measured."""
    return {
        name: np.where(observation[f"{name}_valid"] == 1, observation[name], np.nan).astype(np.float64)
        for name in ("host", "slots", "blueprints")
    }


def inputs_of(arrays: Mapping[str, Table], names: Sequence[str], fields: ObservationFields) -> Table:
    """The named numbers for every slot and blueprint, (S, B, inputs)."""
    shape = arrays["blueprints"].shape[:2]
    room: dict[str, Any] = {"host": (None, None), "slots": (slice(None), None), "blueprints": ()}
    spread = {
        array: np.broadcast_to(arrays[array][at], (*shape, arrays[array].shape[-1])) for array, at in room.items()
    }

    def column(array: str, feature: str) -> Table:
        return spread[array][..., places(getattr(fields, array), [feature])[feature]]

    return np.stack([column(*name.split(".")) for name in names], axis=-1)


class GainNetworks(nn.Module):
    """`members` networks of two hidden layers, which all read the numbers called `names`."""

    centre: Tensor
    scale: Tensor

    def __init__(self, names: Sequence[str], members: int, hidden: int) -> None:
        super().__init__()
        self.names = tuple(names)
        self.register_buffer("centre", torch.zeros(len(names)))
        self.register_buffer("scale", torch.ones(len(names)))
        self.weights = nn.ParameterList(
            torch.zeros(members, *sizes) for sizes in ((len(names), hidden), (hidden, hidden), (hidden, 1))
        )
        self.biases = nn.ParameterList(torch.zeros(members, 1, size) for size in (hidden, hidden, 1))

    def scaled(self, inputs: Tensor) -> Tensor:
        """In deviations from the mean; what was not measured, NaN, counts as the mean."""
        return ((inputs - self.centre) / self.scale).nan_to_num(nan=0.0).clamp(-FAR, FAR)

    def forward(self, scaled: Tensor) -> Tensor:
        """The gain that each member predicts, (members, rows), of rows (rows, inputs) or (members, rows, inputs)."""
        for weight, bias in zip(self.weights, self.biases, strict=True):
            hidden = torch.baddbmm(bias, scaled.expand(len(weight), -1, -1), weight)
            scaled = nn.functional.silu(hidden)
        return UNIT * hidden.squeeze(-1)

    @torch.inference_mode()
    def predict(self, inputs: Table) -> Table:
        """The gains in quality that the members predict on average, for inputs (..., inputs)."""
        rows = self.scaled(torch.from_numpy(inputs.reshape(-1, len(self.names))).float())
        predicted: Table = self(rows).mean(dim=0).double().numpy()
        return predicted.reshape(inputs.shape[:-1])


def networks_to_bytes(networks: GainNetworks) -> bytes:
    """The content of their file."""
    tensors = {name: value.contiguous() for name, value in networks.state_dict().items()}
    # One entry, because safetensors writes several in any order.
    return safetensors.torch.save(tensors, {"ranker": json.dumps({"format": FORMAT, "inputs": networks.names})})


def load_gain_networks(path: Path) -> GainNetworks:
    """The networks in a file; anything else is refused."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BadRanker(f"{path} is larger than {MAX_BYTES:,} bytes; give what 'esper fit ranker' wrote")
        with safetensors.safe_open(path, framework="pt") as file:
            meta = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no dictionary
        names = _names(meta)
        networks = GainNetworks(names, *tensors["weights.1"].shape[:2])
        networks.load_state_dict(tensors)
    except (OSError, safetensors.SafetensorError, ValueError, TypeError, KeyError, RuntimeError) as error:
        raise BadRanker(f"{path} holds no ranker ({error}); give what 'esper fit ranker' wrote") from error
    if not all(bool(value.isfinite().all()) for value in tensors.values()) or bool((networks.scale <= 0).any()):
        raise BadRanker(f"{path} holds weights that are no numbers; give what 'esper fit ranker' wrote")
    return networks


def _names(meta: Mapping[str, str]) -> tuple[str, ...]:
    said: Any = json.loads(meta["ranker"])
    names = said["inputs"] if said["format"] == FORMAT else None
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"it is not of format {FORMAT}")
    if any(name.partition(".")[0] not in ("host", "slots", "blueprints") for name in names):
        raise ValueError("it reads numbers of other arrays than an observation has")
    return tuple(names)
