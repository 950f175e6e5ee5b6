"""Metrics for MLflow: a database in `mlflow/` of the run's directory, or where `MLFLOW_TRACKING_URI` says."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

MAX_PARAMS = 100
"""That MLflow takes at once."""
DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",  # with MLflow's own 7 a server that is gone holds up training for minutes
}
"""Variables of the environment that are set if the user has not done it."""


class MLflow:
    """One MLflow run for the whole run: `mlflow/run_id` keeps its id, so a resumed run goes on in it."""

    modules: ClassVar[tuple[str, ...]] = ("mlflow", "sqlalchemy", "alembic")

    def __init__(self, directory: Path, name: str, settings: Mapping[str, int | float | str]) -> None:
        home = directory.resolve() / "mlflow"
        home.mkdir(parents=True, exist_ok=True)
        os.environ.update(DEFAULTS | os.environ)
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        self._metric = Metric
        server = os.environ.get("MLFLOW_TRACKING_URI")
        self._client = MlflowClient(server or _database(home))
        file = home / "run_id"
        if file.exists():
            self._run = file.read_text(encoding="utf-8")
            self._client.update_run(self._run, status="RUNNING")
            return
        # Without a place for them, artifacts of a local store belong into the working directory.
        experiment = self._experiment(None if server else (home / "artifacts").as_uri())
        self._run = self._client.create_run(experiment, run_name=name).info.run_id
        params = [Param(key, str(value)) for key, value in settings.items()]
        for start in range(0, len(params), MAX_PARAMS):
            self._client.log_batch(self._run, params=params[start : start + MAX_PARAMS])
        file.write_text(self._run, encoding="utf-8")

    def write(self, figures: Mapping[str, float], round: int) -> None:
        now = time.time_ns() // 1_000_000
        self._client.log_batch(self._run, [self._metric(name, each, now, round) for name, each in figures.items()])

    def close(self) -> None:
        self._client.set_terminated(self._run)

    def _experiment(self, artifacts: str | None) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "esper")
        found = self._client.get_experiment_by_name(name)
        return found.experiment_id if found else self._client.create_experiment(name, artifact_location=artifacts)


def _database(home: Path) -> str:
    if "%" in str(home) or "?" in str(home):  # MLflow reads them as parts of an address, and would write elsewhere
        raise ValueError(f"{home} has a '%' or '?' in it; rename it, or set MLFLOW_TRACKING_URI")
    return f"sqlite:///{home / 'mlflow.db'}"
