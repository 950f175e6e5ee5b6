"""The policy that learns: a network that plays."""

import copy
import dataclasses
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from esper.contracts import ActionCodec, Choices, ObservationFields, Op
from esper.controller.network import ControllerNetwork, NetworkConfig
from esper.controller.policy import Arrays, Decision
from esper.controller.pooled_network import PooledNetwork
from esper.rl import (
    MOOD,
    BadCheckpoint,
    MemoryState,
    Network,
    Observation,
    Typical,
    act,
    load_checkpoint,
    require_same_schema,
    require_same_weights,
)


class Mind(NamedTuple):
    """What a network remembers, what greedy play has not done yet, the body that it plays, and the mood it is in."""

    memory: MemoryState
    course: Typical
    codec: ActionCodec
    mood: Tensor | None = None
    """(1, ops): what is added to the logits of ops in this episode; None before its first step, and without moods."""


class Learned:
    """A network as a policy; greedy, or drawn with the exploration and the moods it is trained with.

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
        network: Network,
        greedy: bool = False,
        exploration: float = 0.0,
        moods: float = 0.0,
        name: str = "learned",
    ) -> None:
        """`moods` is the deviation of the numbers that are added to the logits of ops, drawn once for an episode."""
        self.network, self.greedy, self.exploration, self.name = network, greedy, exploration, name
        self.moods = 0.0 if greedy else moods

    def start(self, codec: ActionCodec) -> Mind:
        """No memories yet, and nothing decided."""
        return Mind(self.network.memory.start(1), Typical(Op.WAIT), codec)

    def act(self, observation: Arrays, state: Mind, generator: torch.Generator) -> tuple[Decision, Mind]:
        course, mood, seen = copy.copy(state.course), state.mood, tensors(observation)
        if self.moods:
            mood = self.moods * torch.randn(1, len(Op), generator=generator) if mood is None else mood
            seen[MOOD] = mood
        acted = act(
            self.network,
            seen,
            state.memory,
            torch.zeros(1, dtype=torch.bool),
            None if self.greedy else generator,
            0.0 if self.greedy else self.exploration,
            course.draw if self.greedy else None,
        )
        choices = Choices(acted.choices[0].tolist(), state.codec)
        log_probs = None if self.greedy else tuple(acted.log_probs[0].tolist())
        return Decision(choices, acted, log_probs), Mind(acted.state, course, state.codec, mood)


def load_network(path: Path, shown: ObservationFields) -> Network:
    """The network of a checkpoint: of the sizes that it was trained with, reading the features that it was trained on.

    `shown` are the features of the observations that it is to be given. Those that are newer than the checkpoint are
    not read.
    """
    checkpoint = load_checkpoint(path)
    schema = dict(checkpoint.schema)
    pooled = schema.get("network") == PooledNetwork.kind
    if pooled:
        schema.setdefault("offer_bits", False)  # observations had no bits for blueprints once
    names = [each.name for each in dataclasses.fields(NetworkConfig)]
    saved = {name: size for name, size in schema.items() if name in names and type(size) is int}
    arrays = {name: schema.get(f"{name}_features") for name in dataclasses.asdict(shown)}
    if len(saved) < len(names) or not all(map(_are_names, arrays.values())):
        raise BadCheckpoint(f"{path} is a checkpoint, but not of a controller; give one that 'esper train' wrote")
    fields = ObservationFields(**{name: tuple(features) for name, features in arrays.items() if features})
    network: Network = (
        PooledNetwork(fields, NetworkConfig(**saved), shown, schema["offer_bits"] is True)
        if pooled
        else ControllerNetwork(fields, NetworkConfig(**saved), shown)
    )
    require_same_schema(schema, network.schema())
    require_same_weights(checkpoint.weights, network.state_dict())
    network.load_state_dict(checkpoint.weights)
    return network


def exploration_of(path: Path) -> float:
    """What the controller of a checkpoint explored with when it was trained."""
    found = load_checkpoint(path).config.get("exploration")
    if not isinstance(found, int | float) or not 0.0 <= found <= 1.0:
        raise BadCheckpoint(f"{path} says no exploration from 0 to 1; give a checkpoint that 'esper train' wrote")
    return float(found)


def _are_names(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, str) for each in value)


def tensors(observation: Arrays) -> Observation:
    """The observation of one environment as a batch of one row."""
    return {name: torch.from_numpy(array).unsqueeze(0) for name, array in observation.items()}
