"""The numbers that an observation is made of, by name."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ObservationFields:
    """Names of the features of the host, of a slot and of a blueprint, in the order of their arrays."""

    host: tuple[str, ...]
    slots: tuple[str, ...]
    blueprints: tuple[str, ...]
