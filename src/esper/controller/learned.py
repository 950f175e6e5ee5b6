"""The policy that learns: a network that plays."""

import copy
import dataclasses
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from esper.contracts import ActionCodec, Choices, ObservationFields, Op
from esper.controller.network import ControllerNetwork, NetworkConfig
from esper.controller.policy import Arrays, Decision
from esper.rl import (
    BadCheckpoint,
    Draw,
    MemoryState,
    Observation,
    Resolve,
    Typical,
    act,
    load_checkpoint,
    require_same_schema,
    require_same_weights,
)

LASTING = (Op.GERMINATE, Op.PRUNE)
"""The ops that decide which seeds there are. Drawn anew in every epoch, sooner or later one of them always comes."""


SILENT: dict[str, Any] = {"offer_bits": False}
"""What a checkpoint means that does not say it: observations had no bits for blueprints once."""


class Mind(NamedTuple):
    """What a network remembers, what it has made up its mind about, and the body that it plays."""

    memory: MemoryState
    course: Resolve | Typical
    codec: ActionCodec


class Learned:
    """A network as a policy; greedy, or drawn with the exploration and persistence it is trained with.

    >>> import gymnasium, esper.environment
    >>> env = gymnasium.make("esper/Grow-v0")
    >>> policy = Learned(ControllerNetwork(esper.environment.FIELDS), greedy=True)
    >>> observation, _ = env.reset(seed=0)
    >>> state = policy.start(env.unwrapped.codec)
    >>> decision, state = policy.act(observation, state, torch.Generator())
    >>> len(decision.choices)
    8
    """

    def __init__(
        self,
        network: ControllerNetwork,
        greedy: bool = False,
        exploration: float = 0.0,
        persistence: float = 0.0,
        name: str = "learned",
    ) -> None:
        self.network, self.greedy, self.name = network, greedy, name
        self.exploration, self.persistence = exploration, persistence

    def start(self, codec: ActionCodec) -> Mind:
        """No memories yet, and nothing decided."""
        course = Typical(Op.WAIT, LASTING) if self.greedy else Resolve(LASTING, self.persistence)
        return Mind(self.network.memory.start(1), course, codec)

    def act(self, observation: Arrays, state: Mind, generator: torch.Generator) -> tuple[Decision, Mind]:
        course = copy.copy(state.course)
        acted = act(
            self.network,
            tensors(observation),
            state.memory,
            torch.zeros(1, dtype=torch.bool),
            None if self.greedy else generator,
            0.0 if self.greedy else self.exploration,
            self._draw_op(course, generator),
        )
        choices = Choices(acted.choices[0].tolist(), state.codec)
        return Decision(choices, acted), Mind(acted.state, course, state.codec)

    def _draw_op(self, course: Resolve | Typical, generator: torch.Generator) -> Draw | None:
        """None to draw ops as everything else is drawn."""
        if isinstance(course, Typical):
            return course.draw
        return partial(course.draw, generator=generator) if self.persistence else None


def load_network(path: Path, shown: ObservationFields) -> ControllerNetwork:
    """The network of a checkpoint: of the sizes that it was trained with, reading the features that it was trained on.

    `shown` are the features of the observations that it is to be given. Those that are newer than the checkpoint are
    not read.
    """
    checkpoint = load_checkpoint(path)
    schema = SILENT | checkpoint.schema
    names = [each.name for each in dataclasses.fields(NetworkConfig)]
    saved = {name: size for name, size in schema.items() if name in names and type(size) is int}
    arrays = {name: schema.get(f"{name}_features") for name in dataclasses.asdict(shown)}
    if len(saved) < len(names) or not all(map(_are_names, arrays.values())) or type(schema["offer_bits"]) is not bool:
        raise BadCheckpoint(f"{path} is a checkpoint, but not of a controller; give one that 'esper train' wrote")
    fields = ObservationFields(**{name: tuple(features) for name, features in arrays.items() if features})
    network = ControllerNetwork(fields, NetworkConfig(**saved), shown, schema["offer_bits"])
    require_same_schema(schema, network.schema())
    require_same_weights(checkpoint.weights, network.state_dict())
    network.load_state_dict(checkpoint.weights)
    return network


def _are_names(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, str) for each in value)


def tensors(observation: Arrays) -> Observation:
    """The observation of one environment as a batch of one row."""
    return {name: torch.from_numpy(array).unsqueeze(0) for name, array in observation.items()}
