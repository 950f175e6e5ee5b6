"""Where environments come from.

A name or a function makes as many environments as are wanted. An instance is one environment; it is multiplied only
through its `spec`, because rows that share an instance would play each other's episodes. A vector environment brings
its own rows.
"""

from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium import spaces

from esper.rl.errors import RLError
from esper.rl.rows import TRAINING, Env, Interface, Rows
from esper.rl.seats import Seats

MakeEnv = Callable[[], Env]
ROWS = 8
"""Of environments that can be made at will, if nobody says how many."""
ASKED = ("observation_space", "action_space", "reset", "step")


class SharedEnvironment(RLError):
    """One environment for several rows, which would play each other's episodes."""


class NoEnvironment(RLError):
    """An agent that was loaded without an environment, and is asked to play."""


class EnvSource:
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
    if not isinstance(env, gymnasium.Env):
        raise RLError(
            f"the function that makes environments gave {env!r}, which is no gymnasium.Env; derive its class from "
            "gymnasium.Env, and give a vector environment itself instead of a function"
        )
    for name in ASKED[:2]:
        if not isinstance(getattr(env, name), spaces.Space):
            raise RLError(f"{env} has {name} = {getattr(env, name)!r}; it must be a space of gymnasium")
    return env
