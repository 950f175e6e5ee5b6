"""What things are called: stages, ops, heads, legality, slots, snapshots and events. Standard library only."""

from esper.contracts.actions import (
    CHOICES,
    HEADS_OF,
    LEGAL_IN,
    WAIT,
    Action,
    ActionCodec,
    AlphaCurve,
    AlphaSpeed,
    AlphaTarget,
    Choices,
    Head,
    InvalidAction,
    Op,
    Operator,
    Style,
    Tempo,
    WrongBody,
)
from esper.contracts.errors import EsperError, cure_for, nearest
from esper.contracts.events import (
    AlphaRetargeted,
    EpisodeEvent,
    Event,
    NullSink,
    OperationRefused,
    RansomwareSuspected,
    RewardHackingSuspected,
    Sink,
    StageChanged,
)
from esper.contracts.fields import ObservationFields
from esper.contracts.metric import (
    ACCURACY,
    ACCURACY_GRAIN,
    CHARACTER,
    LOSS_GRAIN,
    UNITS,
    JudgedBy,
    Metric,
    Token,
    grain_of,
    loss_metric,
    metric_of,
)
from esper.contracts.slots import LAYOUTS, Birth, Kind, Layout, SlotId, Topology
from esper.contracts.snapshots import AlphaMode, Gain, HostSnapshot, InvalidSnapshot, SlotSnapshot, Snapshot
from esper.contracts.stages import ADVANCES_TO, RULES, Check, Gate, Rule, Stage, Verdict
