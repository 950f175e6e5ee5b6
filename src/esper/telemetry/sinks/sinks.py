"""The sinks by name, and the guard between them and the run: whatever happens to a sink, training goes on the same."""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Protocol, Self

import numpy as np
import torch

from esper.contracts import EsperError, nearest
from esper.telemetry.sinks.mlflow import MLflow
from esper.telemetry.sinks.tensorboard import TensorBoard
from esper.telemetry.sinks.wandb import WeightsAndBiases

Setting = int | float | str


class UnknownSink(EsperError):
    """No sink of that name."""


class MissingSink(EsperError):
    """The library of a sink is not installed."""


class MetricSink(Protocol):
    """Where metrics go. It may fail in any way; it is then given up."""

    modules: ClassVar[tuple[str, ...]]
    """What must be importable. Only opening a sink imports it."""

    def __init__(self, directory: Path, name: str, settings: Mapping[str, Setting]) -> None:
        """Open it for the run of that directory, name and settings; a run that is resumed goes on in it."""

    def write(self, figures: Mapping[str, float], round: int) -> None:
        """Take figures by their metrics. Rounds do not fall, and one may come in several parts."""

    def close(self) -> None: ...


SINKS: dict[str, type[MetricSink]] = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases, "mlflow": MLflow}
"""Every sink by its name, which is also that of the extra that installs its library."""


class Sinks:
    """Writes to all sinks that still work. One that fails is reported once and left alone from then on."""

    def __init__(self, report: Callable[[str, str], None]) -> None:
        self._report = report
        self._working: dict[str, MetricSink] = {}

    def open(self, name: str, sink: Callable[[], MetricSink]) -> None:
        """Add the sink that is made by the call."""
        with self._guarded(name):
            self._working[name] = sink()

    def write(self, figures: Mapping[str, float], round: int) -> None:
        """Give figures to every sink; `round` counts the rounds that are complete."""
        for name, sink in list(self._working.items()) if figures else ():
            with self._guarded(name):
                sink.write(figures, round)

    def close(self) -> None:
        while self._working:
            name, sink = self._working.popitem()
            with self._guarded(name):
                sink.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @contextmanager
    def _guarded(self, name: str) -> Iterator[None]:
        try:
            with _same_random_numbers():
                yield
        except Exception as error:
            self._working.pop(name, None)
            self._report(name, f"{type(error).__name__}: {error}")


def check_sinks(names: Iterable[str]) -> None:
    """Refuse names of no sink, and sinks whose library is not installed. Imports none of them."""
    for name in names:
        if name not in SINKS:
            raise UnknownSink(f"no sink '{name}'; {nearest(name, SINKS)}")
        missing = [module for module in SINKS[name].modules if find_spec(module) is None]
        if missing:
            raise MissingSink(
                f"the sink '{name}' needs {' and '.join(missing)}, not installed here; "
                f"pip install 'esper-growth[{name}]'"
            )


def open_sinks(
    names: Iterable[str],
    directory: Path,
    name: str,
    settings: Mapping[str, object],
    report: Callable[[str, str], None],
) -> Sinks:
    """Open these sinks for the run of that directory, name and settings; `report` is told the name and why it failed.

    Raises only what `check_sinks` does. Without names nothing is imported and nothing is written.
    """
    wanted = dict.fromkeys(names)
    check_sinks(wanted)
    sinks = Sinks(report)
    for each in wanted:
        sinks.open(each, partial(SINKS[each], directory, name, flattened(settings)))
    return sinks


def flattened(settings: Mapping[str, object], inside: str = "") -> dict[str, Setting]:
    """Nested settings by names with dots; what is neither number nor text is told as text.

    >>> flattened({"seed": 3, "task": ("digits", "spirals"), "ppo": {"discount": 1.0}})
    {'seed': 3, 'task': 'digits, spirals', 'ppo.discount': 1.0}
    """
    flat: dict[str, Setting] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= flattened(value, f"{inside}{name}.")
        elif isinstance(value, list | tuple):
            flat[inside + name] = ", ".join(map(str, value))
        else:
            flat[inside + name] = value if isinstance(value, int | float) else str(value)
    return flat


@contextmanager
def _same_random_numbers() -> Iterator[None]:
    """Undo what is drawn meanwhile: MLflow, for one, draws the pauses between its attempts from Python's generator."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
