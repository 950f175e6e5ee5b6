"""Policies with weights that come with this package, each checked against its known sum before it is used."""

import hashlib
from importlib import resources
from pathlib import Path

from esper.contracts import EsperError

RANKER, KEEPER = "ranker", "keeper"
SHIPPED: dict[str, str] = {
    "tamiyo": "032149e9a805c2348316ee63c51c6bfddd52943e8684b283a853bb215a0b38a3",
    "tamiyo-small": "a54f89e848a8231b325237787cc1c45ebb6fa3fc612b9a89c0077e62603e8874",
}
"""The SHA-256 of each controller's file, by name."""
REGRESSIONS: dict[str, str] = {
    RANKER: "b9637278daf21906b8dc2bf4ba43b37c4f78c3b2832c79bd89eb8dee87985ad2",
    KEEPER: "74767a6a7f9669d00f2ef4f356ab9da280a605ff3e5e4afd7188ce0caa7ab2f5",
}
"""The same of regressions."""


class DamagedController(EsperError):
    """A file of this package is not what it was."""


def shipped_file(name: str) -> Path:
    """Where the controller or the regression of that name lies."""
    regression = name in REGRESSIONS
    file, known = f"{name}{'.safetensors' if regression else '.pt'}", (REGRESSIONS if regression else SHIPPED)[name]
    path = Path(str(resources.files("esper.controller") / "weights" / file))
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise DamagedController(f"{path} cannot be read ({error.strerror}); install this package again") from None
    if found != known:
        raise DamagedController(f"{path} has the SHA-256 {found}, not {known}; install this package again")
    return path
