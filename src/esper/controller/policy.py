"""What all policies have in common: they see an observation, remember a state, and choose."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from esper.contracts import HEADS_OF, Action, ActionCodec, Choices, Head, ObservationFields
from esper.controller.features import places
from esper.rl import Acted

Arrays = Mapping[str, NDArray[Any]]
"""An observation of the environment, array by name."""


class Decision(NamedTuple):
    """What each head chose, and for a learned policy how it came about."""

    choices: Choices
    acted: Acted | None = None
    log_probs: tuple[float, ...] | None = None
    """Of each head's choice, 0 for heads that were not used; None if nothing was drawn, as the policy was certain."""


class Policy(Protocol):
    """A player. It keeps nothing between calls: what it remembers of an episode is in the state."""

    @property
    def name(self) -> str: ...

    def start(self, codec: ActionCodec) -> Any:
        """The state at the start of an episode in which heads choose among the codec's values."""
        ...

    def act(self, observation: Arrays, state: Any, generator: torch.Generator) -> tuple[Decision, Any]:
        """The decision, drawn from the generator alone, and the state to pass to the next call."""
        ...


def legal_ops(observation: Arrays) -> NDArray[np.bool_]:
    """Which op is legal in which slot, (ops, slots)."""
    return np.asarray(observation["mask_op_slot"], dtype=bool)


def rent_in(observation: Arrays, fields: ObservationFields) -> float:
    """The quality that a factor e of size must bring; 0 if nobody says."""
    at = places(fields.host, ["rent"])["rent"]
    return float(10.0 ** observation["host"][at]) if observation["host_valid"][at] else 0.0


def size_in(observation: Arrays, slot: int, fields: ObservationFields) -> float:
    """The logarithm of the factor by which the seed of that slot makes the host larger."""
    return float(observation["slots"][slot, places(fields.slots, ["size"])["size"]])


def decision_for(action: Action, codec: ActionCodec) -> Decision:
    """The action as choices, with 0 for every head that its op does not use."""
    used = HEADS_OF[action.op]
    chosen = zip(Head, codec.encode(action), strict=True)
    return Decision(Choices((index if head in used else 0 for head, index in chosen), codec))
