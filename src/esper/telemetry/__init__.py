"""What happened: events, where they are written, and how they are read again.

SQL over a log is in `esper.telemetry.query`, which is not loaded here: processes that only play need no database.
"""

from esper.telemetry.anomalies import Detector, tame
from esper.telemetry.anomaly_kinds import KINDS, RATIO_KINDS, AnomalyConfig, Expectations
from esper.telemetry.decisions import decision_made
from esper.telemetry.detail import Escalation, Level, TelemetryConfig, belongs
from esper.telemetry.events import (
    AnomalyRaised,
    CheckpointWritten,
    DecisionMade,
    DetailChanged,
    EpisodeFinished,
    EvaluationMade,
    GardenHarvested,
    GardenStarted,
    GradientsSeen,
    HeadFigures,
    MemoryExamined,
    RewardPaid,
    RolledBack,
    RoundFinished,
    RunFailed,
    RunFinished,
    RunHalted,
    RunInterrupted,
    RunResumed,
    RunStarted,
    SinkFailed,
    StepMoved,
    UpdateExamined,
    UpdateMade,
    WorkerReplaced,
)
from esper.telemetry.gradients import GradientCollector, UpdateExaminer, memory_figures
from esper.telemetry.log import (
    EventLog,
    LogReport,
    Record,
    effective,
    line_of,
    read_log,
    record_of,
)
from esper.telemetry.metrics import figures_of
from esper.telemetry.sinks import check_sinks, open_sinks
