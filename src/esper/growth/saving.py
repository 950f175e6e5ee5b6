"""Grown networks on disk: a directory with weights, architecture and a card. Nothing in it can run code."""

import hashlib
from collections.abc import Container, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor, nn

from esper.contracts import EsperError
from esper.growth.accounting import count_parameters
from esper.growth.architecture import SCHEMA, Architecture, encode
from esper.growth.attachment import Attached
from esper.growth.body import Body
from esper.growth.card import card
from esper.growth.directory import ARCHITECTURE, CARD, MAX_BYTES, WEIGHTS, require_free, write_whole
from esper.growth.front import front_of
from esper.growth.harvest import Fossil, Grown, grown_in, name_in_host, newborn, ungrown
from esper.growth.structure import differences, structure_of, take_precision, tensors_of, ties_of


class NotSavable(EsperError):
    """A network that could not be loaded again."""


def save(network: nn.Module, path: str | Path, *, overwrite: bool = False) -> None:
    """Write a grown network to a new directory, which is there whole or not at all.

    `network` is a body, whose harvest is saved, or a harvested network, which may have been trained on. What is at
    `path` is replaced only if `overwrite` says so and it is a saved network.
    """
    target = Path(path).resolve()
    require_free(target, overwrite)
    plain = _plain(network)
    tensors, grown = tensors_of(plain), grown_in(plain)
    ties = ties_of(tensors)
    fossils = _rebuildable(grown, ties)
    weights = _serialised({name: tensor for name, tensor in tensors.items() if name not in ties})
    own = {name_in_host(name, grown): each for name, each in tensors.items() if _place_of_seed(name, grown) is None}
    architecture = Architecture(
        schema=SCHEMA,
        esper=import_module("esper").__version__,
        torch=str(torch.__version__),
        sha256=hashlib.sha256(weights).hexdigest(),
        fossils=tuple(fossils),
        tied=ties,
        host=structure_of(own),
    )
    files = {WEIGHTS: weights, ARCHITECTURE: encode(architecture), CARD: _card(plain, target.name, fossils, grown)}
    for name, limit in MAX_BYTES.items():
        if len(files[name]) > limit:
            raise NotSavable(f"{name} would have {len(files[name]):,} bytes; at most {limit:,} can be loaded")
    write_whole(target, files, overwrite)


def _plain(network: nn.Module) -> nn.Module:
    network = getattr(network, "_orig_mod", network)  # inside a compiled one
    if isinstance(network, Body):
        return network.harvest()
    if any(isinstance(part, Attached) for part in network.modules()):
        raise NotSavable("the network has slots; give its body, or what body.harvest() returns")
    return network


def _rebuildable(grown: Mapping[str, Grown], ties: Mapping[str, str]) -> list[Fossil]:
    """The fossils, with the names of their slots in the host; an error unless they can be built in again."""
    for place, part in grown.items():
        if place == "":
            raise NotSavable("the network is a single place with its fossil; give the network that it is a part of")
        found = part.seed.state_dict(keep_vars=True)
        with torch.device("meta"):
            seed = newborn(part.fossil, front_of(ungrown(part.host), "", 0))
            wanted = take_precision(seed, found).state_dict(keep_vars=True)
        wrong = differences(structure_of(wanted), structure_of(found))
        if wrong:
            raise NotSavable(
                f"the seed in '{place}' is not what '{part.fossil.blueprint}' builds: {wrong}; "
                "give a network whose seeds have been trained and not rebuilt"
            )
    for name, other in ties.items():
        if _place_of_seed(name, grown) != _place_of_seed(other, grown):
            raise NotSavable(f"'{name}' is tied to '{other}' across the border of a seed; give each its own values")
    return [replace(part.fossil, slot=name_in_host(place, grown)) for place, part in grown.items()]


def _place_of_seed(name: str, grown: Container[str]) -> str | None:
    """The place of the fossil whose seed has a part of this name; None for parts of the host."""
    parts = name.split(".")
    places = (".".join(parts[:depth]) for depth, part in enumerate(parts) if part == "seed")
    return next((place for place in places if place in grown), None)


def _serialised(tensors: Mapping[str, Tensor]) -> bytes:
    whole = torch.contiguous_format
    try:  # clones, because safetensors refuses what shares memory
        clones = {name: each.detach().cpu().clone(memory_format=whole) for name, each in tensors.items()}
        return safetensors.torch.save(clones, metadata={"format": "pt"})
    except (ValueError, KeyError, RuntimeError) as error:
        raise NotSavable(f"safetensors cannot hold these weights: {error}; make them plain dense tensors") from error


def _card(network: nn.Module, directory: str, fossils: list[Fossil], grown: Mapping[str, Grown]) -> bytes:
    sizes = [count_parameters(part.seed.parameters()) for part in grown.values()]
    total = count_parameters(network.parameters())
    return card(type(network).__name__, directory, total, list(zip(fossils, sizes, strict=True))).encode()
