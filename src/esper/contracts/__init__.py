"""What things are called: stages, ops, heads, legality, slots, snapshots and events. Standard library only."""

from esper.contracts.actions import (
    CHOICES,
    HEADS_OF,
    LEGAL_IN,
    WAIT,
    Action,
    AlphaCurve,
    AlphaSpeed,
    AlphaTarget,
    Head,
    InvalidAction,
    Op,
    Operator,
    Style,
    Tempo,
)
from esper.contracts.errors import EsperError, nearest
from esper.contracts.events import AlphaRetargeted, Event, NullSink, OperationRefused, Sink, StageChanged
from esper.contracts.slots import Kind, SlotId, Topology
from esper.contracts.snapshots import AlphaMode, HostSnapshot, InvalidSnapshot, SlotSnapshot, Snapshot
from esper.contracts.stages import ADVANCES_TO, RULES, Check, Gate, Rule, Stage, Verdict

__all__ = [
    "ADVANCES_TO",
    "CHOICES",
    "HEADS_OF",
    "LEGAL_IN",
    "RULES",
    "WAIT",
    "Action",
    "AlphaCurve",
    "AlphaMode",
    "AlphaRetargeted",
    "AlphaSpeed",
    "AlphaTarget",
    "Check",
    "EsperError",
    "Event",
    "Gate",
    "Head",
    "HostSnapshot",
    "InvalidAction",
    "InvalidSnapshot",
    "Kind",
    "NullSink",
    "Op",
    "OperationRefused",
    "Operator",
    "Rule",
    "Sink",
    "SlotId",
    "SlotSnapshot",
    "Snapshot",
    "Stage",
    "StageChanged",
    "Style",
    "Tempo",
    "Topology",
    "Verdict",
    "nearest",
]
