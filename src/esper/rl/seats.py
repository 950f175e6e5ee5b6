"""Environments that are stepped one after the other, and whose unfinished episodes can be played again."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from esper.rl.actions import Actions
from esper.rl.errors import NonFinite, RLError
from esper.rl.network import Observation
from esper.rl.rows import Env, Interface, Stepped, episode_seed, masking


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

    def step(self, choices: NDArray[Any]) -> tuple[float, bool, bool]:
        self.played.append(choices.tolist())
        given = self.env.step(self.actions.action(choices))
        if not isinstance(given, tuple) or len(given) != 5:
            raise RLError(
                f"step() of {self.env} gave {_told(given)}; it must give five things: "
                "observation, reward, terminated, truncated, info"
            )
        observation, reward, terminated, truncated, info = given
        self._see(observation, info)
        try:
            paid = float(reward)
        except (TypeError, ValueError):
            raise RLError(f"step() of {self.env} gave a reward of {reward!r}; it must be a number") from None
        if not np.isfinite(paid):
            raise NonFinite(f"the environment gave a reward of {reward}; rewards must be finite")
        self.total += paid
        return paid, bool(terminated), bool(truncated)

    def replay(self, episode: int, played: Sequence[Sequence[float]]) -> None:
        """Play an unfinished episode again up to where it was."""
        self.episode = episode - 1
        self.restart()
        for choices in played:
            self.step(np.array(choices, np.float32 if self.actions.continuous else np.int64))

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
        outcomes = [seat.step(own) for seat, own in zip(self.seats, choices.numpy(force=True), strict=True)]
        columns = zip(*outcomes, strict=True)
        rewards, terminated, truncated = (torch.tensor(column, device=self.interface.device) for column in columns)
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
        outcomes = [seat.step(own) for seat, own in zip(self.seats, choices.numpy(force=True), strict=True)]
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
        saved_seen = {name: saved.to(self.interface.device) for name, saved in plain["observation"].items()}
        if not all(name in seen and torch.equal(seen[name], saved) for name, saved in saved_seen.items()):
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
