"""A saved network comes back: its fossils and weights in a host that was built afresh, or an error and no change."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from esper.contracts import EsperError, SlotId, nearest
from esper.growth.architecture import Architecture, DamagedNetwork, read_architecture
from esper.growth.attachment import Attached
from esper.growth.blending import Seed
from esper.growth.blueprints import UnknownBlueprint
from esper.growth.copies import hollow
from esper.growth.directory import ARCHITECTURE, WEIGHTS, opened
from esper.growth.front import Front, front_of
from esper.growth.harvest import Fossil, Grown, build_in, grown_in, newborn
from esper.growth.structure import differences, structure_of, take_precision, tensors_of

AGAIN = "save the network again, or fetch it again"


class DoesNotFit(EsperError):
    """The host is not the one that a saved network grew in."""


def load(path: str | Path, host: nn.Module) -> nn.Module:
    """Build the saved network into `host`, which was built as it was before it grew; returns it in evaluation mode.

    The host's parameters stay the same objects, with the saved values. Files that are damaged, hostile or of another
    host are refused before anything is changed.
    """
    saved = read_architecture(Path(path) / ARCHITECTURE)
    _require_fit(host, saved)
    tensors = _read_weights(Path(path) / WEIGHTS, saved)
    build_in(host, _seeds(host, saved, tensors)).load_state_dict(tensors)
    return host.eval()


def _require_fit(host: nn.Module, saved: Architecture) -> None:
    if any(isinstance(part, (Attached, Grown)) for part in host.modules()):
        raise DoesNotFit("the host has slots or fossils; give one that was built afresh")
    wrong = differences(saved.host, structure_of(tensors_of(host)))
    if wrong:
        raise DoesNotFit(f"the network grew in another host: {wrong}; build the host as it was before it grew")
    modules = [name for name, _ in host.named_modules(remove_duplicate=False) if name]
    for fossil in saved.fossils:
        if fossil.slot not in modules:
            raise DoesNotFit(
                f"the network has a fossil behind '{fossil.slot}', and the host has no such submodule; "
                f"{nearest(fossil.slot, modules)}; build the host as it was before it grew"
            )


def _read_weights(path: Path, saved: Architecture) -> dict[str, Tensor]:
    """The tensors under all of their names."""
    with opened(path) as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != saved.sha256:
        raise DamagedNetwork(f"{path} has the SHA-256 {found}, not {saved.sha256:.64}; {AGAIN}")
    try:
        tensors = safetensors.torch.load_file(path)
    except (SafetensorError, OSError) as error:
        raise DamagedNetwork(f"{path} cannot be read as safetensors ({error}); {AGAIN}") from error
    if not set(saved.tied.values()) <= tensors.keys():
        raise DamagedNetwork(f"{ARCHITECTURE} has tensors tied to others that {WEIGHTS} does not have; {AGAIN}")
    return tensors | {name: tensors[other] for name, other in saved.tied.items()}


def _seeds(host: nn.Module, saved: Architecture, tensors: Mapping[str, Tensor]) -> list[tuple[Fossil, Seed]]:
    """What is to be built in, where the host is; an error unless the network would then have exactly these tensors."""
    seeds = [(fossil, _hollow_seed(fossil, front_of(host, fossil.slot, 0).hollow())) for fossil in saved.fossils]
    trial = build_in(hollow(host), seeds)
    grown = {f"{place}.seed.": part for place, part in grown_in(trial).items()}
    if len(grown) != len(saved.fossils):
        raise DamagedNetwork(f"{ARCHITECTURE} has a fossil behind a submodule that has several names; {AGAIN}")
    own = {inside: _within(tensors, inside) for inside in grown}
    for inside, part in grown.items():
        take_precision(part.seed, own[inside])
    wrong = differences(structure_of(trial.state_dict(keep_vars=True)), structure_of(tensors))
    if wrong:
        raise DamagedNetwork(f"{WEIGHTS} is not of the network that {ARCHITECTURE} describes: {wrong}; {AGAIN}")
    with torch.random.fork_rng(devices=[]):
        fronts = [front_of(host, part.fossil.slot, number) for number, part in enumerate(grown.values())]
        born = [newborn(part.fossil, front) for part, front in zip(grown.values(), fronts, strict=True)]
    fossils = [part.fossil for part in grown.values()]
    return [
        (fossil, take_precision(seed, like).to(_device(host, fossil.slot)))
        for fossil, seed, like in zip(fossils, born, own.values(), strict=True)
    ]


def _hollow_seed(fossil: Fossil, front: Front) -> Seed:
    try:
        with torch.device("meta"):
            return newborn(fossil, front)
    except UnknownBlueprint as error:
        raise UnknownBlueprint(f"{error}; '{fossil.slot}' has one: import what registers it, then load") from None
    except Exception as error:  # a blueprint may stumble in any way over a number that is not its own
        raise DamagedNetwork(
            f"'{fossil.blueprint}' behind '{fossil.slot}' cannot have {fossil.channels} channels ({error}); {AGAIN}"
        ) from error


def _within(tensors: Mapping[str, Tensor], inside: str) -> dict[str, Tensor]:
    return {name.removeprefix(inside): each for name, each in tensors.items() if name.startswith(inside)}


def _device(host: nn.Module, slot: SlotId) -> torch.device:
    """Where the slot's submodule is, or the host if that has no tensors."""
    near = [*host.get_submodule(slot).state_dict().values(), *host.state_dict().values()]
    return near[0].device if near else torch.device("cpu")
