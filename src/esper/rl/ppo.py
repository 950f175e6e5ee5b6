"""An agent for any `gymnasium` environment with Box observations and Discrete or MultiDiscrete actions.

Masks are optional, in `info["action_mask"]`: one entry per choice, the heads of a MultiDiscrete space one behind the
other. With one such row per choice of the first head, row k holds for the other heads when the first one chose k; the
first head itself goes by row 0.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from esper.rl.acting import Acted, act, value_of
from esper.rl.checkpoint import BadCheckpoint, generator_in, load_checkpoint, restore, save_checkpoint
from esper.rl.config import PPOConfig
from esper.rl.errors import DiscountMismatch, NonFinite, RLError, WrongShape
from esper.rl.learner import Learner
from esper.rl.memory import MemoryState
from esper.rl.metrics import UpdateMetrics
from esper.rl.network import Observation, VectorConfig, VectorNetwork
from esper.rl.sequences import Buffer

MakeEnv = Callable[[], gymnasium.Env[Any, Any]]


class UnsupportedSpace(RLError):
    """An observation or action space that the agent has no network for."""


@dataclass(frozen=True)
class Interface:
    """Between an environment's arrays and the network's tensors."""

    inputs: int
    sizes: tuple[int, ...]
    first: int | None
    """The lowest action of a Discrete space; None for MultiDiscrete."""
    dependent: bool = False
    """Whether masks depend on the first head."""

    @classmethod
    def of(cls, env: gymnasium.Env[Any, Any], dependent: bool) -> "Interface":
        seen, actions = env.observation_space, env.action_space
        if not isinstance(seen, spaces.Box):
            raise UnsupportedSpace(
                f"observations are {type(seen).__name__}; the agent needs a Box, "
                "so wrap the environment in gymnasium.wrappers.FlattenObservation"
            )
        inputs = int(np.prod(seen.shape))
        if isinstance(actions, spaces.Discrete):
            return cls(inputs, (int(actions.n),), int(actions.start), dependent)
        if isinstance(actions, spaces.MultiDiscrete) and actions.nvec.ndim == 1 and not np.any(actions.start):
            return cls(inputs, tuple(map(int, actions.nvec)), None, dependent)
        raise UnsupportedSpace(
            f"actions are {actions}; the agent needs Discrete, or MultiDiscrete with one axis that starts at 0"
        )

    def vector(self, observation: NDArray[Any]) -> NDArray[np.float32]:
        flat = np.asarray(observation, dtype=np.float32).reshape(-1)
        if flat.size != self.inputs:
            raise WrongShape(f"an observation has {flat.size} numbers; its space promises {self.inputs}")
        if not np.isfinite(flat).all():
            raise NonFinite(
                f"observation[{int(np.flatnonzero(~np.isfinite(flat))[0])}] is not finite; mend the environment"
            )
        return flat

    def mask(self, info: Mapping[str, Any]) -> NDArray[np.bool_]:
        """(K, heads, choices), with choices beyond a head's own masked out."""
        rows = self.sizes[0] if self.dependent else 1
        given = info.get("action_mask")
        total = sum(self.sizes)
        flat = np.ones((rows, total), bool) if given is None else np.asarray(given).astype(bool)
        shape = flat.shape
        if flat.ndim == 1 and rows == 1:
            flat = flat[None]
        if flat.shape != (rows, total):
            wanted = (rows, total) if self.dependent else (total,)
            hint = "" if self.dependent else "; for masks that depend on the first head pass dependent_masks=True"
            raise WrongShape(f"info['action_mask'] has shape {shape}; the action space needs {wanted}{hint}")
        result = np.zeros((rows, len(self.sizes), max(self.sizes)), bool)
        ends = np.cumsum(self.sizes)
        for head, (size, end) in enumerate(zip(self.sizes, ends, strict=True)):
            result[:, head, :size] = flat[:, end - size : end]
        return result

    def action(self, choices: Tensor) -> Any:
        return int(choices[0]) + self.first if self.first is not None else choices.numpy().astype(np.int64)


TRAINING, EVALUATION = 0, 1
"""What an episode is for is the first part of its seed, so that no agent is evaluated on what it was trained on."""


class Seat:
    """One environment and the episode that is being played in it; can be saved and rebuilt by playing it again."""

    def __init__(self, make: MakeEnv, interface: Interface, stream: tuple[int, ...]) -> None:
        self.env, self.interface, self.stream = make(), interface, stream
        self.episode = -1
        self.actions: list[list[int]] = []
        self.total = 0.0

    def restart(self) -> None:
        """Begin the next episode, from a seed of its own."""
        self.episode += 1
        self.actions, self.total = [], 0.0
        observation, info = self.env.reset(seed=episode_seed(self.stream, self.episode))
        self._see(observation, info)

    def step(self, choices: Tensor) -> tuple[float, bool, bool]:
        self.actions.append(choices.tolist())
        observation, reward, terminated, truncated, info = self.env.step(self.interface.action(choices))
        if not np.isfinite(float(reward)):
            raise NonFinite(f"the environment gave a reward of {reward}; rewards must be finite")
        self._see(observation, info)
        self.total += float(reward)
        return float(reward), bool(terminated), bool(truncated)

    def rebuild(self, episode: int, actions: Sequence[Sequence[int]], vector: NDArray[np.float32]) -> None:
        """Play an unfinished episode again up to where it was."""
        self.episode = episode - 1
        self.restart()
        for choices in actions:
            self.step(torch.tensor(choices))
        if not np.array_equal(self.vector, vector):
            raise RLError(
                "the environment does not repeat itself from its seed, so training cannot be resumed exactly; "
                "make reset(seed=...) and step() deterministic"
            )

    def _see(self, observation: NDArray[Any], info: Mapping[str, Any]) -> None:
        self.vector, self.mask = self.interface.vector(observation), self.interface.mask(info)


def episode_seed(stream: Sequence[int], episode: int) -> int:
    """A seed for one episode of one environment."""
    return int(np.random.SeedSequence([*stream, episode]).generate_state(1)[0]) & 0x7FFFFFFF


def observed(seats: Sequence[Seat]) -> Observation:
    """What all seats see now, one row each."""
    return {
        "vector": torch.from_numpy(np.stack([seat.vector for seat in seats])),
        "mask": torch.from_numpy(np.stack([seat.mask for seat in seats])),
    }


@dataclass(frozen=True)
class LearningProgress:
    """After an update: how far training is."""

    steps: int
    """Environment steps so far."""
    returns: tuple[float, ...]
    """Of the episodes that ended in this rollout."""
    metrics: UpdateMetrics


class PPO:
    """Recurrent PPO with masks and factored heads.

    >>> agent = PPO("CartPole-v1", seed=0, environments=2, steps=16)
    >>> agent.learn(until=64)
    >>> len(agent.evaluate(episodes=2))
    2
    """

    def __init__(
        self,
        env: str | MakeEnv,
        *,
        seed: int = 0,
        environments: int = 8,
        steps: int = 128,
        config: PPOConfig | None = None,
        network: VectorConfig | None = None,
        heads: Mapping[str, Sequence[int]] | None = None,
        dependent_masks: bool = False,
    ) -> None:
        """`steps` of each of `environments` make a rollout.

        `heads` names the heads in order, each with the choices of the first head under which it is used; the first
        head is always used, so its own list is not read. Without it all heads are always used.
        """
        for name, number, least in (("environments", environments, 1), ("steps", steps, 1), ("seed", seed, 0)):
            if number < least:
                raise RLError(f"{name} = {number}; give at least {least}")
        if not isinstance(env, str) and not callable(env):
            raise RLError(f"env is {env}; give its registered name, or a function that makes it, such as lambda: env")
        self.make: MakeEnv = (lambda: gymnasium.make(env)) if isinstance(env, str) else env
        self.seed, self.rollout_steps = seed, steps
        config = config or PPOConfig()
        probe = self.make()
        self.interface = Interface.of(probe, dependent_masks)
        _require_same_discount(probe, config)
        probe.close()
        names, uses = _uses(self.interface.sizes, heads)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.network = VectorNetwork(
                self.interface.inputs, dict(zip(names, self.interface.sizes, strict=True)), uses, network
            )
        self.learner = Learner(self.network, config, seed)
        self.generator = torch.Generator().manual_seed(seed + 1)
        self.seats = [Seat(self.make, self.interface, (TRAINING, seed, place)) for place in range(environments)]
        for seat in self.seats:
            seat.restart()
        self.state = self.network.memory.start(environments)
        self.starts = torch.ones(environments, dtype=torch.bool)
        example = {name: value[0] for name, value in observed(self.seats).items()}
        self.buffer = Buffer(environments, steps, example, len(names))

    @property
    def steps(self) -> int:
        """Environment steps learned from so far."""
        return self.learner.counters.environment_steps

    def learn(self, until: int, report: Callable[[LearningProgress], None] | None = None) -> None:
        """Train until `until` environment steps have been made in all; learning rate and entropy anneal towards it."""
        while self.steps < until:
            returns = self._collect()
            metrics = self.learner.update(self.buffer.sequences(), progress=self.steps / until)
            if report is not None:
                report(LearningProgress(self.steps, tuple(returns), metrics))

    def _collect(self) -> list[float]:
        """Fill the buffer; returns of the episodes that ended."""
        self.buffer.begin(self.state)
        exploration = self.learner.config.exploration
        returns: list[float] = []
        for _ in range(self.rollout_steps):
            seen = observed(self.seats)
            made = act(self.network, seen, self.state, self.starts, self.generator, exploration)
            self.buffer.decide(seen, self.starts, made.choices, made.log_probs, made.free)
            self.state = made.state
            returns += self._step(made)
        self.buffer.cut(value_of(self.network, observed(self.seats), self.state, self.starts))
        return returns

    def _step(self, made: Acted) -> list[float]:
        """Play one step everywhere; where an episode ends, begin the next."""
        rewards, terminated, truncated = zip(
            *(seat.step(choices) for seat, choices in zip(self.seats, made.choices, strict=True)), strict=True
        )
        cut = torch.tensor(truncated) & ~torch.tensor(terminated)
        ends = torch.tensor(terminated) | cut
        # The state after a truncated step is still on the seat: value it before the next episode begins.
        nothing = torch.zeros(len(self.seats), dtype=torch.bool)
        bootstrap = (
            value_of(self.network, observed(self.seats), made.state, nothing) * cut if cut.any() else cut.float()
        )
        self.buffer.conclude(made.values, torch.tensor(rewards), ends, bootstrap)
        finished = [seat for seat, over in zip(self.seats, ends.tolist(), strict=True) if over]
        returns = [seat.total for seat in finished]
        for seat in finished:
            seat.restart()
        self.starts = ends
        return returns

    def evaluate(self, episodes: int = 20, seed: int = 10_000, greedy: bool = True) -> list[float]:
        """Returns of whole episodes in environments of their own; training goes on unmoved."""
        generator = None if greedy else torch.Generator().manual_seed(seed)
        seats = [Seat(self.make, self.interface, (EVALUATION, seed + episode)) for episode in range(episodes)]
        for seat in seats:
            seat.restart()
        state, starts = self.network.memory.start(episodes), torch.ones(episodes, dtype=torch.bool)
        playing = seats
        while playing:
            made = act(self.network, observed(playing), state, starts, generator)
            outcomes = [seat.step(choices) for seat, choices in zip(playing, made.choices, strict=True)]
            going = [not (terminated or truncated) for _, terminated, truncated in outcomes]
            playing = [seat for seat, goes_on in zip(playing, going, strict=True) if goes_on]
            state, starts = made.state.take(torch.tensor(going)), torch.zeros(len(playing), dtype=torch.bool)
        for seat in seats:
            seat.env.close()
        return [seat.total for seat in seats]

    def predict(
        self, observation: NDArray[Any], state: MemoryState | None = None, info: Mapping[str, Any] | None = None
    ) -> tuple[Any, MemoryState]:
        """The likeliest action, and the memory to pass to the next call; no memory starts an episode."""
        seen = {
            "vector": torch.from_numpy(self.interface.vector(observation))[None],
            "mask": torch.from_numpy(self.interface.mask(info or {}))[None],
        }
        begins = torch.tensor([state is None])
        made = act(self.network, seen, state or self.network.memory.start(1), begins, None)
        return self.interface.action(made.choices[0]), made.state

    def save(self, path: str | Path) -> None:
        """Everything needed to go on exactly: learner, random numbers, memory, and the unfinished episodes."""
        seats = [
            {"episode": seat.episode, "actions": seat.actions, "vector": torch.from_numpy(seat.vector)}
            for seat in self.seats
        ]
        extra = {
            "settings": {"seed": self.seed, "environments": len(self.seats), "steps": self.rollout_steps},
            "generator": self.generator.get_state(),
            "state": list(self.state),
            "starts": self.starts,
            "seats": seats,
        }
        save_checkpoint(Path(path), self.learner, extra)

    def resume(self, path: str | Path) -> "PPO":
        """Go on where `save` was called, in an agent that was made with the same arguments."""
        checkpoint = load_checkpoint(Path(path))
        settings = {"seed": self.seed, "environments": len(self.seats), "steps": self.rollout_steps}
        extra = checkpoint.extra
        if extra.get("settings") != settings:
            raise BadCheckpoint(
                f"{path} was saved with {extra.get('settings')}; make the agent with the same, not {settings}"
            )
        generator = generator_in(extra["generator"])
        seats = [Seat(self.make, self.interface, seat.stream) for seat in self.seats]
        for seat, saved in zip(seats, extra["seats"], strict=True):
            seat.rebuild(saved["episode"], saved["actions"], saved["vector"].numpy())
        restore(checkpoint, self.learner)
        for seat in self.seats:
            seat.env.close()
        self.generator, self.seats = generator, seats
        self.state, self.starts = MemoryState(*extra["state"]), extra["starts"]
        return self


def _require_same_discount(env: gymnasium.Env[Any, Any], config: PPOConfig) -> None:
    """Shaped rewards telescope for one discount only; an environment that has one says so by its `discount`."""
    shaped_for = getattr(env.unwrapped, "discount", None)
    if shaped_for is not None and shaped_for != config.discount:
        raise DiscountMismatch(
            f"discount = {config.discount}; the environment shapes its rewards for a discount of {shaped_for}, "
            f"so give PPOConfig(discount={shaped_for})"
        )


def _uses(sizes: Sequence[int], heads: Mapping[str, Sequence[int]] | None) -> tuple[tuple[str, ...], Tensor | None]:
    """Names of the heads, and which of them are used under each choice of the first."""
    if heads is None:
        return tuple(f"head{place}" for place in range(len(sizes))), None
    if len(heads) != len(sizes):
        raise WrongShape(f"heads names {len(heads)} heads; the action space has {len(sizes)}")
    uses = torch.zeros(sizes[0], len(sizes), dtype=torch.bool)
    uses[:, 0] = True
    for place, (name, under) in enumerate(heads.items()):
        if place and any(not 0 <= choice < sizes[0] for choice in under):
            raise RLError(f"head '{name}' is used under {list(under)}; the first head has choices 0 to {sizes[0] - 1}")
        if place:
            uses[list(under), place] = True
    return tuple(heads), uses
