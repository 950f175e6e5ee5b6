"""The configuration of a run, as libraries that draw curves want it."""

from collections.abc import Iterator, Mapping

Setting = int | float | str


def flattened(settings: Mapping[str, object]) -> dict[str, Setting]:
    """Nested settings by names with dots; what is neither number nor text is told as text.

    >>> flattened({"seed": 3, "task": ("digits", "spirals"), "ppo": {"discount": 1.0}})
    {'seed': 3, 'task': 'digits, spirals', 'ppo.discount': 1.0}
    """
    return dict(_leaves(settings, ""))


def _leaves(settings: Mapping[str, object], prefix: str) -> Iterator[tuple[str, Setting]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        elif isinstance(value, list | tuple):
            yield f"{prefix}{name}", ", ".join(map(str, value))
        else:
            yield f"{prefix}{name}", value if isinstance(value, int | float) else str(value)
