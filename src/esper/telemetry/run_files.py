"""The directory of a run as its readers see it: what is in it, how the run is, what it was set to.

Reading locks nothing and changes nothing. What is in a directory may be of any origin: files are read up to a limit,
and what cannot be understood is refused with a reason.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esper.checked import BadValue, checked, read_toml
from esper.contracts import EsperError
from esper.telemetry.anomaly_kinds import AnomalyConfig, Expectations
from esper.telemetry.detail import TelemetryConfig
from esper.telemetry.status import RunState, RunStatus, read_status, state_now


class NoRun(EsperError):
    """The directory holds no run."""


class BadSettings(EsperError):
    """The settings of a run that cannot be read."""


@dataclass(frozen=True)
class WatchedSettings:
    """What one must know of a run's settings to judge its events."""

    telemetry: TelemetryConfig
    anomalies: AnomalyConfig
    expected: Expectations


class RunFiles:
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.toml"
        self.events_file = path / "events.jsonl"
        self.status_file = path / "status.json"
        self.live = path / "live"
        """The episodes that are being played, see `LiveFile`."""

    def require(self) -> None:
        """Refuse a directory without a run."""
        if not self.config_file.is_file():
            raise NoRun(f"{self.path} holds no run: there is no config.toml; 'esper runs' lists the runs")

    def status(self) -> RunStatus | None:
        """What was written last; None if nothing readable was."""
        return read_status(self.status_file, RunStatus)

    def state(self) -> RunState:
        """How the run is now."""
        return state_now(self.status_file, RunStatus)

    def settings(self) -> dict[str, Any]:
        """All settings, as they stand in `config.toml`."""
        try:
            return read_toml(self.config_file)
        except BadValue as error:
            raise BadSettings(f"{self.config_file}: {error}") from None

    def watched(self) -> WatchedSettings:
        """What one must know to judge the events; settings that a file of an older version lacks are the defaults."""
        table = self.settings()
        try:
            ppo = table.get("ppo", {})
            return WatchedSettings(
                telemetry=checked(TelemetryConfig, table.get("telemetry", {})),
                anomalies=checked(AnomalyConfig, table.get("anomalies", {})),
                expected=Expectations(
                    rounds=int(table.get("rounds", 1)),
                    exploration=float(ppo.get("exploration", 0.0)),
                    max_gradient_norm=float(ppo.get("max_gradient_norm", math.inf)),
                    target_kl=float(ppo.get("target_kl", math.inf)),
                ),
            )
        except (EsperError, AttributeError, TypeError, ValueError) as error:
            raise BadSettings(f"{self.config_file}: {error}; it is not the config.toml of a run") from None
