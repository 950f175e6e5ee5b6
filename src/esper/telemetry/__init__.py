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
    EpisodeStarted,
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
    SeedLife,
    SinkFailed,
    StepMoved,
    UpdateExamined,
    UpdateMade,
    WorkerReplaced,
)
from esper.telemetry.exam_row import ExamRow
from esper.telemetry.exam_rows import BadExam, read_rows, rows_so_far
from esper.telemetry.gradients import GradientCollector, UpdateExaminer, memory_figures
from esper.telemetry.interval import interval, mean
from esper.telemetry.live import LiveFile, forget_live
from esper.telemetry.log import (
    EventLog,
    LogReport,
    NewerLog,
    Record,
    effective,
    line_of,
    plain,
    read_log,
    record_of,
    whole_lines,
)
from esper.telemetry.metrics import figures_of
from esper.telemetry.run_files import BadSettings, NoRun, RunFiles, WatchedSettings
from esper.telemetry.sinks import check_sinks, open_sinks
from esper.telemetry.spans import StageSpan, spans
from esper.telemetry.status import ExamStatus, RunState, RunStatus, read_status, state_now, this_process
