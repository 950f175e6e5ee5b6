"""The base of every error that a user can mend, and the hints that such errors carry."""

import errno
from collections.abc import Iterable
from difflib import get_close_matches

CURES = {
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room",
    errno.EFBIG: "make room, or lift the limit on the size of files",
    errno.EACCES: "mend its rights",
    errno.EPERM: "mend its rights",
    errno.EROFS: "make it writable",
    errno.EMFILE: "raise the limit of open files ('ulimit -n')",
}
"""What to do about what the system says."""


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


def cure_for(error: OSError) -> str:
    """What to do about an error of the system; where that is not known, no wrong advice.

    >>> cure_for(OSError(errno.ENOSPC, "No space left on device")), cure_for(OSError(errno.EIO, "Input/output error"))
    ('make room', 'mend that')
    """
    return CURES.get(error.errno or 0, "mend that")
