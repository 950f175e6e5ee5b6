"""Policies with weights that come with this package, each checked against its known sum before it is used."""

import hashlib
from importlib import resources
from pathlib import Path

from esper.contracts import EsperError

RANKER = "ranker"
SHIPPED: dict[str, str] = {
    "tamiyo": "032149e9a805c2348316ee63c51c6bfddd52943e8684b283a853bb215a0b38a3",
    "tamiyo-small": "a54f89e848a8231b325237787cc1c45ebb6fa3fc612b9a89c0077e62603e8874",
}
"""The SHA-256 of each controller's file, by name."""
RANKER_SUM = "b9637278daf21906b8dc2bf4ba43b37c4f78c3b2832c79bd89eb8dee87985ad2"


class DamagedController(EsperError):
    """A file of this package is not what it was."""


def shipped_file(name: str) -> Path:
    """Where the controller of that name lies, or the ranker."""
    file, known = (f"{name}.safetensors", RANKER_SUM) if name == RANKER else (f"{name}.pt", SHIPPED[name])
    path = Path(str(resources.files("esper.controller") / "weights" / file))
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise DamagedController(f"{path} cannot be read ({error.strerror}); install this package again") from None
    if found != known:
        raise DamagedController(f"{path} has the SHA-256 {found}, not {known}; install this package again")
    return path
