"""Where environments come from, and the rows of them that an agent plays in.

A name or a function makes as many environments as are wanted. An instance is one environment; it is multiplied only
through its `spec`, because rows that share an instance would play each other's episodes. A vector environment brings
its own rows.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from esper.rl.actions import Actions
from esper.rl.errors import NonFinite, RLError
from esper.rl.network import Observation
from esper.rl.observations import Observations

Env = gymnasium.Env[Any, Any]
MakeEnv = Callable[[], Env]
ROWS = 8
"""Of environments that can be made at will, if nobody says how many."""
ASKED = ("observation_space", "action_space", "reset", "step")

TRAINING, EVALUATION = 0, 1
"""What an episode is for is the first part of its seed, so that no agent is evaluated on what it was trained on."""


class SharedEnvironment(RLError):
    """One environment for several rows, which would play each other's episodes."""


class NoEnvironment(RLError):
    """An agent that was loaded without an environment, and is asked to play."""


class Interface(NamedTuple):
    """Between an environment's arrays and the network's tensors."""

    observations: Observations
    actions: Actions


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


class Source:
    """What makes environments: a registered name, a function, or an instance."""

    def __init__(self, env: Any) -> None:
        self.name = env if isinstance(env, str) else None
        self.in_use: list[Env] = []
        """Those that an agent is trained in, and nobody else may have."""
        if isinstance(env, str):
            self._make: MakeEnv = lambda: gymnasium.make(env)
        elif isinstance(env, gymnasium.Env):
            self._make = lambda: _copy_of(env)
        elif callable(env):
            self._make = env
        else:
            raise RLError(
                f"env is {env!r}; give a registered name, a function that makes an environment, a gymnasium.Env "
                "or a gymnasium.vector.VectorEnv"
            )
        self._waiting = [_checked(env if isinstance(env, gymnasium.Env) else self._make())]

        first = self._waiting[0]
        self.observation_space, self.action_space = first.observation_space, first.action_space
        self.discount = getattr(first.unwrapped, "discount", None)
        """For which its rewards are shaped; None if it does not say."""

    def count(self, asked: int | None) -> int:
        """How many rows there are to be."""
        return ROWS if asked is None else asked

    def rows(self, count: int, interface: Interface, seed: int) -> Rows:
        """The rows that an agent is trained in."""
        self.in_use = self.take(count)
        return Seats(self.in_use, interface, [(TRAINING, seed, place) for place in range(count)])

    def take(self, count: int) -> list[Env]:
        """Environments that nobody else has."""
        taken: list[Env] = []
        for _ in range(count):
            env = self._waiting.pop() if self._waiting else _checked(self._make())
            if any(env.unwrapped is other.unwrapped for other in (*self.in_use, *taken)):
                raise SharedEnvironment(
                    "the function gave the same environment twice, and rows that share one would play each other's "
                    "episodes; make a new one in every call, as in lambda: gymnasium.make('CartPole-v1')"
                )
            taken.append(env)
        return taken


class Absent:
    """The spaces of an environment that is not there."""

    name = discount = None

    def __init__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = observation_space, action_space

    def count(self, asked: int | None) -> int:
        return ROWS if asked is None else asked

    def rows(self, count: int, interface: Interface, seed: int) -> Rows | None:
        return None

    def take(self, count: int) -> list[Env]:
        raise NoEnvironment("the agent was loaded without an environment; give one, as in PPO.load(path, env=...)")


def _copy_of(env: Env) -> Env:
    """Another environment like this one, through its spec."""
    advice = (
        "give a function that makes a new environment in every call, as in PPO(lambda: MyWrapper(MyEnv())); "
        "or environments=1, and a function to evaluate(env=...)"
    )
    try:
        spec = env.spec
        if spec is None:
            raise SharedEnvironment(
                f"{env} was given as an instance, and there is no spec to make another by; {advice}"
            )
        return gymnasium.make(spec)
    except SharedEnvironment:
        raise
    except Exception as error:  # what a spec or a constructor stumbles over is not ours to know
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise SharedEnvironment(
            f"{env} was given as an instance, and its spec cannot make another ({reason}); {advice}"
        ) from None


def _checked(env: Any) -> Env:
    missing = [name for name in ASKED if not hasattr(env, name)]
    if missing:
        raise RLError(f"the function that makes environments gave {env!r}, which has no {' and no '.join(missing)}")
    for name in ASKED[:2]:
        if not isinstance(getattr(env, name), spaces.Space):
            raise RLError(f"{env} has {name} = {getattr(env, name)!r}; it must be a space of gymnasium")
    return env  # type: ignore[no-any-return] # anything that has what is asked for


def masking(env: Env) -> Callable[[], Any] | None:
    """The method `action_masks` of an environment or of a wrapper around it, if there is one."""
    known = hasattr(env, "has_wrapper_attr") and env.has_wrapper_attr("action_masks")
    return env.get_wrapper_attr("action_masks") if known else None


def episode_seed(stream: Sequence[int], episode: int) -> int:
    """A seed for one episode of one environment."""
    return int(np.random.SeedSequence([*stream, episode]).generate_state(1)[0]) & 0x7FFFFFFF


class Seat:
    """One environment and the episode that is being played in it; can be rebuilt by playing the episode again."""

    def __init__(self, env: Env, actions: Actions, stream: tuple[int, ...]) -> None:
        self.env, self.actions, self.stream = env, actions, stream
        self.masking = masking(env)
        self.episode = -1
        self.played: list[list[float]] = []
        self.total = 0.0
        self.observation: Any = None
        self.mask: Any = None

    def restart(self) -> None:
        """Begin the next episode, from a seed of its own."""
        self.episode += 1
        self.played, self.total = [], 0.0
        given = self.env.reset(seed=episode_seed(self.stream, self.episode))
        if not isinstance(given, tuple) or len(given) != 2 or not isinstance(given[1], dict):
            raise RLError(
                f"reset() of {self.env} gave {_told(given)}; it must give an observation and an info dictionary"
            )
        self._see(*given)

    def step(self, choices: Tensor) -> tuple[float, bool, bool]:
        self.played.append(choices.tolist())
        given = self.env.step(self.actions.action(choices))
        if not isinstance(given, tuple) or len(given) != 5:
            raise RLError(
                f"step() of {self.env} gave {_told(given)}; it must give five things: "
                "observation, reward, terminated, truncated, info"
            )
        observation, reward, terminated, truncated, info = given
        self._see(observation, info)
        if not np.isfinite(float(reward)):
            raise NonFinite(f"the environment gave a reward of {reward}; rewards must be finite")
        self.total += float(reward)
        return float(reward), bool(terminated), bool(truncated)

    def replay(self, episode: int, played: Sequence[Sequence[float]]) -> None:
        """Play an unfinished episode again up to where it was."""
        self.episode = episode - 1
        self.restart()
        for choices in played:
            self.step(torch.tensor(choices))

    def _see(self, observation: Any, info: Mapping[str, Any]) -> None:
        self.observation, self.mask = observation, info.get("action_mask")
        if self.mask is None and self.masking is not None:
            self.mask = self.masking()


def _told(given: Any) -> str:
    return f"{len(given)} things" if isinstance(given, tuple) else f"a {type(given).__name__}"


class Seats:
    """A row for each of several environments that are stepped one after the other."""

    def __init__(self, envs: Sequence[Env], interface: Interface, streams: Sequence[tuple[int, ...]]) -> None:
        self.interface = interface
        self.seats = [Seat(env, interface.actions, stream) for env, stream in zip(envs, streams, strict=True)]
        self.observation: Observation = {}

    def restart(self) -> None:
        for seat in self.seats:
            seat.restart()
        self._look()

    def step(self, choices: Tensor) -> Stepped:
        outcomes = [seat.step(own) for seat, own in zip(self.seats, choices.cpu(), strict=True)]
        rewards, terminated, truncated = (torch.tensor(column) for column in zip(*outcomes, strict=True))
        ended = [seat for seat, (_, done, cut) in zip(self.seats, outcomes, strict=True) if done or cut]
        returns = [seat.total for seat in ended]
        # What is seen after the last step is still on the seat: it is read before the next episode begins.
        final = self._seen() if bool((truncated & ~terminated).any()) else None
        for seat in ended:
            seat.restart()
        self._look()
        return Stepped(rewards, terminated, truncated, None, final, returns)

    def play(self, choices: Tensor) -> list[bool]:
        """One step in seats that are left when their episode is over; says which go on."""
        outcomes = [seat.step(own) for seat, own in zip(self.seats, choices.cpu(), strict=True)]
        going = [not (terminated or truncated) for _, terminated, truncated in outcomes]
        self.seats = [seat for seat, goes_on in zip(self.seats, going, strict=True) if goes_on]
        if self.seats:
            self._look()
        return going

    def plain(self) -> dict[str, Any]:
        """The unfinished episodes: their numbers and what was done in them, and what is seen now."""
        seats = [{"episode": seat.episode, "played": seat.played} for seat in self.seats]
        return {"seats": seats, "observation": dict(self.observation)}

    def rebuild(self, plain: Mapping[str, Any], exact: bool) -> bool:
        if not exact or "seats" not in plain:
            for seat, saved in zip(self.seats, plain.get("seats", []), strict=False):
                seat.episode = saved["episode"]
            self.restart()
            return False
        for seat, saved in zip(self.seats, plain["seats"], strict=True):
            seat.replay(saved["episode"], saved["played"])
        self._look()
        seen = self.observation
        if not all(name in seen and torch.equal(seen[name], saved) for name, saved in plain["observation"].items()):
            raise RLError(
                "the environment does not repeat itself from its seed, so training cannot be resumed exactly; "
                "make reset(seed=...) and step() deterministic, or begin new episodes with PPO.load(..., exact=False)"
            )
        return True

    def close(self) -> None:
        for seat in self.seats:
            seat.env.close()

    def _seen(self) -> Observation:
        return self.interface.observations.of_each([seat.observation for seat in self.seats])

    def _look(self) -> None:
        masks = self.interface.actions.masks([seat.mask for seat in self.seats])
        self.observation = self._seen() | masks
