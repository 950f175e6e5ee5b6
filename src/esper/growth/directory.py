"""The directory of a saved network: written whole or not at all, read within bounds."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from esper.contracts import EsperError, cure_for

ARCHITECTURE = "architecture.json"
WEIGHTS = "weights.safetensors"
CARD = "README.md"
FILES = frozenset({ARCHITECTURE, WEIGHTS, CARD})
MAX_BYTES = {ARCHITECTURE: 8_000_000, WEIGHTS: 2**36}


class TargetExists(EsperError):
    """Something is in the place where a network is to be saved."""


class NotWritable(EsperError):
    """A network cannot be written where it is to be saved."""


class NotReadable(EsperError):
    """A file of a saved network is missing, too large, or not a file of the directory itself."""


def require_free(target: Path, overwrite: bool) -> None:
    """Nothing is there; or a saved network and nothing else, which may be replaced."""
    if not os.path.lexists(target):
        return
    try:
        names = {each.name for each in target.iterdir()} if target.is_dir() else set()
    except OSError as error:
        raise NotWritable(f"{target} cannot be looked into: {error.strerror}; {cure_for(error)}") from error
    if ARCHITECTURE not in names or not names <= FILES:
        raise TargetExists(f"{target} exists and is not a saved network alone; give a path where nothing is")
    if not overwrite:
        raise TargetExists(f"{target} is a saved network; give another path, or overwrite=True to replace it")


def write_whole(target: Path, files: dict[str, bytes], overwrite: bool) -> None:
    """Make a directory of these files beside `target`, then put it there.

    What it replaces is moved aside first, to a name that ends in `.old`, and removed when the new one is in its place.
    """
    token = secrets.token_hex(4)
    part, old = (target.with_name(f".{target.name}.{token}.{end}") for end in ("part", "old"))
    try:
        part.mkdir(parents=True)
        for name, content in files.items():
            with (part / name).open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        require_free(target, overwrite)
        with _aside(target, old):
            part.rename(target)
    except OSError as error:
        raise NotWritable(f"{target} cannot be written: {error.strerror}; {cure_for(error)}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


@contextmanager
def _aside(target: Path, old: Path) -> Iterator[None]:
    """While this lasts, what is at `target` lies at `old`; it is put back if anything fails, else removed."""
    if not target.exists():
        yield
        return
    target.rename(old)
    try:
        yield
    except BaseException:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def opened(path: Path) -> BufferedReader:
    """A file of the directory for reading: no link, and of a size that is allowed."""
    try:
        if path.is_symlink() or not path.is_file():
            found = "is a link" if path.is_symlink() else "is no file" if path.exists() else "does not exist"
            raise NotReadable(f"{path} {found}; give a directory that `esper.save` made, with its files in it")
        size, limit = path.stat().st_size, MAX_BYTES[path.name]
        if size > limit:
            raise NotReadable(f"{path} has {size:,} bytes; at most {limit:,} are read; give a saved network")
        return path.open("rb")
    except OSError as error:
        raise NotReadable(f"{path} cannot be read: {error.strerror}; {cure_for(error)}") from error
