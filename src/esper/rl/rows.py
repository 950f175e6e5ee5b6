"""What an agent asks of environments that are played in at the same time, one row each."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from esper.rl.actions import Actions
from esper.rl.errors import RLError
from esper.rl.network import Observation
from esper.rl.observations import Observations

Env = gymnasium.Env[Any, Any]


TRAINING, EVALUATION = 0, 1
"""What an episode is for is the first part of its seed, so that no agent is evaluated on what it was trained on."""


class Interface(NamedTuple):
    """Between an environment's arrays and the network's tensors."""

    observations: Observations
    actions: Actions
    device: torch.device

    @classmethod
    def of(
        cls, shown: spaces.Space[Any], taken: spaces.Space[Any], dependent: bool, device: torch.device
    ) -> "Interface":
        """For an environment that shows the one and takes the other."""
        return cls(Observations(shown, device), Actions(taken, dependent, device), device)


class Stepped(NamedTuple):
    """What came of one step in every row."""

    rewards: Tensor
    terminated: Tensor
    truncated: Tensor
    valid: Tensor | None
    """False in rows that made no step because they only began an episode; None if all made one."""
    final: Observation | None
    """What was seen last, before the next episode began, in rows that were truncated; None if none was."""
    returns: list[float]
    """Of the episodes that ended."""


class Rows(Protocol):
    """Environments that are played in at the same time."""

    observation: Observation
    """What is seen now, one row for each environment."""

    def restart(self) -> None:
        """Begin an episode in every row."""

    def step(self, choices: Tensor) -> Stepped:
        """Play one step; where an episode ended, the next one has begun or begins with the next step."""

    def plain(self) -> dict[str, Any]:
        """What is needed to come back to where it is, for a file."""

    def rebuild(self, plain: Mapping[str, Any], exact: bool) -> bool:
        """Come back to where `plain` was called, or if not `exact` begin new episodes; whether it came back."""

    def close(self) -> None:
        """Close all environments."""


def masking(env: Env) -> Callable[[], Any] | None:
    """The method `action_masks` of an environment or of a wrapper around it, if there is one."""
    if not (hasattr(env, "has_wrapper_attr") and env.has_wrapper_attr("action_masks")):
        return None
    masks = env.get_wrapper_attr("action_masks")
    if not callable(masks):
        raise RLError(f"{env} has action_masks = {masks!r}; it must be a method that gives the mask of now")
    return masks  # type: ignore[no-any-return]


def episode_seed(stream: Sequence[int], episode: int) -> int:
    """A seed for one episode of one environment."""
    return int(np.random.SeedSequence([*stream, episode]).generate_state(1)[0]) & 0x7FFFFFFF
