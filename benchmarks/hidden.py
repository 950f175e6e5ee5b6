"""Observations in which some features are shown as not measured, as in loops of people who do not measure them."""

from collections.abc import Sequence

from esper.controller.features import places
from esper.environment import FIELDS, Observation


def without(observation: Observation, features: Sequence[str]) -> Observation:
    """A copy with these features, each written as `array.feature`, not measured."""
    seen = dict(observation)
    for name in features:
        array, feature = name.split(".")
        column = places(getattr(FIELDS, array), [feature])[feature]
        for part in (array, f"{array}_valid"):
            seen[part] = seen[part].copy()
            seen[part][..., column] = 0
    return seen
