"""The base of every error that a user can mend, and the nearest-name hint that such errors carry."""

from collections.abc import Iterable
from difflib import get_close_matches


class EsperError(Exception):
    """A mistake in what was given: the message says what it was, what is allowed, and what to do."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a misspelt name, or the list of known names when nothing is near.

    >>> nearest("conv_hevy", ["norm", "conv_heavy"])
    "did you mean 'conv_heavy'?"
    >>> nearest("zebra", ["norm", "conv_heavy"])
    'known: norm, conv_heavy'
    """
    names = list(known)
    matches = get_close_matches(name, names, n=1)
    return f"did you mean '{matches[0]}'?" if matches else f"known: {', '.join(names)}"
