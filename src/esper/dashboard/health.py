"""The figures by which one sees whether a policy learns soundly, each beside its threshold, in words when crossed."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from esper.dashboard.series import Row
from esper.telemetry import KINDS, WatchedSettings
from esper.telemetry.anomalies import CriticError


@dataclass(frozen=True)
class Gauge:
    """One figure of the last round. `path` says where it stands in a row, so that a page can draw its course."""

    name: str
    path: tuple[str, ...]
    meaning: str
    threshold: Callable[[WatchedSettings], float | None]
    is_floor: bool = False
    """Whether it must not fall below the threshold, instead of rising above it."""
    kind: str = ""
    """The anomaly that its threshold belongs to."""
    read: Callable[[Row], float | None] | None = None
    """If it is not in the row as it is."""
    warmup: Callable[[WatchedSettings], int] = lambda _: 0
    """Rounds before it is judged."""

    def figures(self, row: Row, settings: WatchedSettings | None) -> dict[str, Any]:
        """What a page shows."""
        value = self.read(row) if self.read else _within(row, self.path)
        limit = self.threshold(settings) if settings is not None else None
        limit = limit if limit is not None and math.isfinite(limit) else None
        known = isinstance(value, int | float) and math.isfinite(value) and limit is not None
        early = settings is not None and row["until"] <= self.warmup(settings)
        beyond = known and (value < limit if self.is_floor else value > limit)  # type: ignore[operator]  # known
        crossed = beyond and not early
        words = f"{'below' if self.is_floor else 'above'} its threshold: {KINDS[self.kind].why}" if crossed else ""
        return {
            "name": self.name,
            "path": list(self.path),
            "meaning": self.meaning,
            "value": value,
            "threshold": limit,
            "floor": self.is_floor,
            "crossed": crossed,
            "words": words,
            "early": early,
        }


def _within(row: Row, path: tuple[str, ...]) -> Any:
    value: Any = row
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _kl(settings: WatchedSettings) -> float:
    target = settings.expected.target_kl
    return max(settings.anomalies.kl_high, 2 * target) if math.isfinite(target) else settings.anomalies.kl_high


def _relative_error(row: Row) -> float | None:
    error, deviation = row.get("value_error"), row.get("return_deviation")
    return error / deviation if error is not None and deviation else None


GAUGES = (
    Gauge("divergence (KL)", ("kl",), "how far an update moved the policy, in nats", _kl, kind="kl_spike"),
    Gauge("clipped share", ("clipped",), "share of choices whose ratio left the clip range", lambda _: None),
    Gauge(
        "value error over deviation",
        ("value_error",),
        "error of the critic over the deviation of returns; at 1 it knows nothing. The curve is the error itself",
        lambda settings: settings.anomalies.value_error_high,
        kind="value_collapse",
        warmup=lambda settings: CriticError.WARMUP + settings.anomalies.value_updates,
        read=_relative_error,
    ),
    Gauge(
        "gradient norm",
        ("gradient_norm",),
        "of the controller before clipping; growth is a drift only above the threshold",
        lambda settings: settings.anomalies.gradient_clips * settings.expected.max_gradient_norm,
        kind="gradient_drift",
        warmup=lambda settings: settings.anomalies.gradient_warmup,
    ),
    Gauge(
        "waiting share",
        ("waiting_share",),
        "share of waiting among the epochs that had a choice",
        lambda settings: settings.anomalies.waiting_high,
        kind="no_growth_collapse",
    ),
    Gauge("forced share", ("forced_share",), "share of epochs in which only one action was legal", lambda _: None),
)


def gauges(row: Row | None, settings: WatchedSettings | None) -> list[dict[str, Any]]:
    """The gauges of a row, and one for the entropy of every head."""
    if row is None:
        return []
    heads = [
        Gauge(
            f"entropy of {head}",
            ("entropy", head),
            f"share of the most there could be, over {(row.get('choices') or {}).get(head, 0):,.0f} real choices",
            lambda settings: settings.expected.least_entropy + settings.anomalies.entropy_low,
            is_floor=True,
            kind="entropy_collapse",
        )
        for head in row.get("entropy") or {}
    ]
    return [gauge.figures(row, settings) for gauge in (*GAUGES, *heads)]
