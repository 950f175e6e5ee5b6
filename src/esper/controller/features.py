"""Where the numbers are that a policy reads: features are found by name, so that new ones change nothing."""

from collections.abc import Sequence

from esper.contracts import EsperError, nearest


class MissingFeature(EsperError):
    """The observation does not have a number that the policy needs."""


def places(known: Sequence[str], wanted: Sequence[str]) -> dict[str, int]:
    """The index of each wanted feature among the known ones."""
    for name in wanted:
        if name not in known:
            raise MissingFeature(f"the observation has no number '{name}'; {nearest(name, known)}")
    return {name: known.index(name) for name in wanted}
