"""`architecture.json` of a saved network: what grew where, in which host. It is checked before it is believed."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from esper.checked import BadValue, checked, require_ranges, shown_value
from esper.contracts import EsperError
from esper.growth.directory import opened
from esper.growth.harvest import Fossil
from esper.growth.structure import Structure

SCHEMA = 1
MAX_FOSSILS = 1_000
MAX_CHANNELS = 65_536
MAX_NAME = 500


class DamagedNetwork(EsperError):
    """A saved network is not what was saved."""


class UnknownSchema(EsperError):
    """A network saved by a version that writes another kind of file."""


class UnlikelyArchitecture(EsperError):
    """A number or a name that no network has."""


@dataclass(frozen=True)
class Architecture:
    """A grown network without its weights.

    `host` is the structure of the host's state before it grew. `tied` has the names under which tensors of the grown
    network appear once more, each with the name under which it was saved. `sha256` is that of the file of the weights.
    """

    schema: int
    esper: str
    torch: str
    sha256: str
    fossils: tuple[Fossil, ...]
    tied: dict[str, str]
    host: Structure

    def __post_init__(self) -> None:
        if len(self.fossils) > MAX_FOSSILS:
            raise UnlikelyArchitecture(f"there are {len(self.fossils):,} fossils; at most {MAX_FOSSILS:,} are allowed")
        for fossil in self.fossils:
            _require_likely(fossil)


def _require_likely(fossil: Fossil) -> None:
    for name in (fossil.slot, fossil.blueprint):
        if not 0 < len(name) <= MAX_NAME:
            raise UnlikelyArchitecture(f"a name has {len(name):,} characters; 1 to {MAX_NAME} are allowed")
    inside = f"the fossil behind '{fossil.slot}' has "
    require_ranges(fossil, {"channels": (1, MAX_CHANNELS)}, UnlikelyArchitecture, inside)
    if not 0.0 < fossil.alpha <= 1.0:
        raise UnlikelyArchitecture(f"{inside}alpha = {fossil.alpha}; give a value above 0 and up to 1")


def encode(architecture: Architecture) -> bytes:
    """The content of `architecture.json`."""
    fossils = [{**vars(each), "style": each.style.name.lower()} for each in architecture.fossils]
    return msgspec.json.format(msgspec.json.encode({**vars(architecture), "fossils": fossils}), indent=2) + b"\n"


def read_architecture(path: Path) -> Architecture:
    """What was written to the file by `encode`."""
    with opened(path) as file:
        content = file.read()
    try:
        table = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedNetwork(f"{path} is not JSON ({error}); save the network again") from error
    schema = table.get("schema") if isinstance(table, dict) else None
    if type(schema) is not int or schema != SCHEMA:
        raise UnknownSchema(
            f"{path} has the schema {shown_value(schema)}, and this version of esper reads {SCHEMA}; "
            "give a directory that `esper.save` made, or use the version of esper that made it"
        )
    try:
        return checked(Architecture, table)
    except (BadValue, UnlikelyArchitecture) as error:
        raise DamagedNetwork(f"{path} does not describe a network: {error}; save the network again") from error
