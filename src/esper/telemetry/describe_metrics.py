"""Writes docs/metrics.md from the table of metrics: `python -m esper.telemetry.describe_metrics > docs/metrics.md`."""

import inspect

from esper.contracts import Event
from esper.telemetry.describe import sentence_of, table
from esper.telemetry.events import AnomalyRaised
from esper.telemetry.metrics import METRICS, Metric

INTRODUCTION = """\
# Metrics

This file is made by `python -m esper.telemetry.describe_metrics > docs/metrics.md`; a test compares them.

A metric is a number of an event that is worth a curve. It has one name, and that name is the same in every sink. Names
follow from the fields of the event: its group, then the field, and for maps the key, which stands for `<head>`, `<op>`,
`<task>` or `<kind>` below. A task that is a file goes by the name of the file without its ending, or by its whole path
if another task of the run is called the same. What is not a letter, a digit, `_`, `-` or `.` in a key is `_`. The field
`total` is called `return`.

What was not measured has no point on the curve; it is never 0. A `fraction` is usually between 0 and 1, a `flag` is 1
if it is so and 0 if not, a `return` is counted in rewards, `deviations` are standard deviations of the advantage for
the policy and of the return for the value. The step of every point is the number of rounds that were complete.
"""

SINKS = """\
# Where metrics go

Metrics are in `events.jsonl` already, as fields of these events. They can go to other places too, the sinks:

```
pip install 'esper-growth[tensorboard,wandb,mlflow]'
esper train --telemetry.sinks tensorboard wandb mlflow
```

or in `config.toml`:

```toml
[telemetry]
sinks = ["tensorboard"]
```

| sink | where it writes | how to look at it |
|---|---|---|
| `tensorboard` | `RUN/tensorboard/` | `tensorboard --logdir RUN/tensorboard`, or a directory of many runs |
| `wandb` | `RUN/wandb/`, nothing is sent | `wandb sync RUN/wandb/offline-run-*`, then on the site |
| `mlflow` | `RUN/mlflow/mlflow.db` | `mlflow ui --backend-store-uri sqlite:///RUN/mlflow/mlflow.db` |

The settings of the run go with them, with names such as `ppo.discount`: as hyperparameters in TensorBoard, as config in
W&B, as parameters in MLflow. An unknown sink, or one whose library is not installed, is refused before the run starts.
A sink that fails later is reported once, with the reason, and gets nothing more; the run and the other sinks go on.
Sinks change nothing that is learned: random numbers are put back to where they were.

A resumed run goes on in the same place. A round that is played again is written again, and both points are kept.

| | `tensorboard` | `wandb` | `mlflow` |
|---|---|---|---|
| NaN | kept | kept | kept |
| infinities | kept | kept | kept as plus or minus 1.8e308, the largest number of its database |
| precision | 32 bits | 64 bits | 64 bits |
| after a resume | another file in the same directory | another `offline-run-*` with the same id | the same MLflow run |
| if the process is killed | nothing is lost | the last rounds, up to 32 kB, are lost | nothing is lost |

**W&B** is offline unless `WANDB_MODE` says otherwise; `WANDB_PROJECT` is `esper` unless set. `RUN/wandb/run_id` keeps
the id. Send the parts of a run that was resumed in their order, the later ones with `wandb sync --append`. Console,
code, git and the load of the machine are not recorded, and errors of the library are not reported to its maker
(`WANDB_ERROR_REPORTING`). Its cache is in `RUN/wandb/cache` unless `WANDB_CACHE_DIR` is set.

**MLflow** writes to the server that `MLFLOW_TRACKING_URI` names, if it is set, and its experiment is `esper` unless
`MLFLOW_EXPERIMENT_NAME` is set. `RUN/mlflow/run_id` keeps the id; a resumed run must find the same server. The extra
`mlflow` installs `mlflow-skinny`, which writes but cannot show: `mlflow ui` comes with `pip install mlflow` in an
environment of its own, since it needs older versions of other libraries than this project is tested with. MLflow's own
store of plain files is not used, because MLflow refuses it by now. A server that is gone is tried 3 times, and the
library's reports to its maker are off (`MLFLOW_HTTP_REQUEST_MAX_RETRIES`, `MLFLOW_DISABLE_TELEMETRY`, unless set).
"""

OF_ANOMALIES = (
    "Whether this kind of anomaly was raised; only 1 is ever written. The kinds are told in `diagnostics.md`."
)


def _row(metric: Metric) -> tuple[str, str, str]:
    meaning = OF_ANOMALIES if metric.event is AnomalyRaised else sentence_of(metric.record, metric.path[-1])
    return f"`{metric.name}`", metric.unit, meaning


def _section(event: type[Event], metrics: tuple[Metric, ...]) -> str:
    rows = table(("metric", "unit", "meaning"), map(_row, metrics))
    return f"## {event.__name__}\n\n{inspect.getdoc(event)}\n\n{rows}\n"


def document() -> str:
    """The whole text."""
    return "\n".join([INTRODUCTION, *(_section(event, metrics) for event, metrics in METRICS.items()), SINKS])


if __name__ == "__main__":
    print(document(), end="")
