"""What happened: events, where they are written, and how they are read again.

SQL over a log is in `esper.telemetry.query`, which is not loaded here: processes that only play need no database.
"""

from esper.telemetry.anomalies import Detector, tame
from esper.telemetry.anomaly_kinds import KINDS, AnomalyConfig, Expectations, InvalidThreshold
from esper.telemetry.events import (
    EVENTS,
    AnomalyRaised,
    CheckpointWritten,
    DecisionMade,
    EpisodeFinished,
    EvaluationMade,
    HeadFigures,
    RewardPaid,
    RolledBack,
    RoundFinished,
    RunFailed,
    RunFinished,
    RunHalted,
    RunInterrupted,
    RunResumed,
    RunStarted,
    UpdateMade,
    WorkerReplaced,
)
from esper.telemetry.log import (
    EventLog,
    LogReport,
    LogUnreadable,
    LogUnwritable,
    NewerLog,
    NullLog,
    Record,
    effective,
    read_log,
)

__all__ = [
    "EVENTS",
    "KINDS",
    "AnomalyConfig",
    "AnomalyRaised",
    "CheckpointWritten",
    "DecisionMade",
    "Detector",
    "EpisodeFinished",
    "EvaluationMade",
    "EventLog",
    "Expectations",
    "HeadFigures",
    "InvalidThreshold",
    "LogReport",
    "LogUnreadable",
    "LogUnwritable",
    "NewerLog",
    "NullLog",
    "Record",
    "RewardPaid",
    "RolledBack",
    "RoundFinished",
    "RunFailed",
    "RunFinished",
    "RunHalted",
    "RunInterrupted",
    "RunResumed",
    "RunStarted",
    "UpdateMade",
    "WorkerReplaced",
    "effective",
    "read_log",
    "tame",
]
