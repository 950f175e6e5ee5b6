"""A `gymnasium.vector.VectorEnv` as rows of environments, whatever it does where an episode ends."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Tensor

from esper.rl.environments import EnvSource, MakeEnv, NoEnvironment
from esper.rl.errors import NonFinite, RLError
from esper.rl.network import Observation
from esper.rl.rows import TRAINING, Env, Interface, Rows, Stepped, episode_seed, masking


def autoreset_of(envs: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    """What a vector environment does where an episode ends."""
    mode = (envs.metadata or {}).get("autoreset_mode")
    try:
        return AutoresetMode(mode)
    except ValueError:
        raise RLError(
            f"{envs} has metadata['autoreset_mode'] = {mode!r}; set it to one of "
            f"{', '.join(str(each) for each in AutoresetMode)}, for what it does where an episode ends"
        ) from None


class VectorSource:
    """What an agent asks of a source of environments, of a vector environment."""

    name = None

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        self.envs = envs
        self.observation_space, self.action_space = envs.single_observation_space, envs.single_action_space
        functions = getattr(envs.unwrapped, "env_fns", None)
        self._make = functions[0] if functions else _maker_by_spec(envs)
        example = self._make() if self._make else None
        self.discount = None if example is None else getattr(example.unwrapped, "discount", None)
        self.masking = bool(functions) and example is not None and masking(example) is not None
        if example is not None:
            example.close()

    def count(self, asked: int | None) -> int:
        own = int(self.envs.num_envs)
        if asked is not None and asked != own:
            raise RLError(f"environments = {asked}, but the vector environment has {own}; leave it out, or say {own}")
        return own

    def rows(self, count: int, interface: Interface, seed: int) -> Rows:
        return VectorRows(self.envs, interface, seed, self.masking)

    def take(self, count: int) -> list[Env]:
        """Single environments as those in the vector are, if it tells how they are made."""
        if self._make is None:
            raise NoEnvironment(
                f"{self.envs} does not tell how its environments are made; give one, as in "
                "evaluate(env=lambda: MyEnv())"
            )
        return EnvSource(self._make).take(count)


def _maker_by_spec(envs: VectorEnv[Any, Any, Any]) -> MakeEnv | None:
    """Makes one environment of the kind of which a registered vector has many."""
    spec = envs.spec
    if spec is None or spec.entry_point is None:
        return None
    kwargs = {name: value for name, value in spec.kwargs.items() if name not in {"num_envs", "vectorization_mode"}}
    return partial(gymnasium.make, spec.id, **kwargs)


class VectorRows:
    """All rows are stepped together; episodes follow each other as the vector environment wills.

    In its mode NEXT_STEP the step behind an episode's last one does nothing but begin the next: that step is not valid.
    """

    def __init__(self, envs: VectorEnv[Any, Any, Any], interface: Interface, seed: int, asks: bool) -> None:
        """With `asks` the environments have a method `action_masks`."""
        self.envs, self.interface, self.seed, self.asks = envs, interface, seed, asks
        self.mode = autoreset_of(envs)
        self.count = int(envs.num_envs)
        self.totals = np.zeros(self.count)
        self.over = np.zeros(self.count, bool)
        self.restarts = -1
        self.observation: Observation = {}

    def restart(self) -> None:
        self.restarts += 1
        seen, infos = self.envs.reset(seed=episode_seed((TRAINING, self.seed), self.restarts))
        self.totals[:], self.over[:] = 0.0, False
        self._look(seen, self._masks(infos))

    def step(self, choices: Tensor) -> Stepped:
        beginning = self.over & (self.mode == AutoresetMode.NEXT_STEP)
        seen, rewards, terminated, truncated, infos = self.envs.step(
            self.interface.actions.all(choices.numpy(force=True))
        )
        rewards = np.where(beginning, 0.0, rewards)
        if not np.isfinite(rewards).all():
            raise NonFinite(f"the environments gave rewards {rewards}; rewards must be finite")
        self.over = np.asarray(terminated | truncated)
        self.totals += rewards
        returns = self.totals[self.over].tolist()
        self.totals[self.over] = 0.0
        cut = np.asarray(truncated & ~terminated)
        final = self._final(seen, infos, cut) if cut.any() else None
        masks = self._masks(infos)
        if self.mode == AutoresetMode.DISABLED and self.over.any():
            seen, infos = self.envs.reset(options={"reset_mask": self.over.copy()})
            masks = [new if over else old for over, new, old in zip(self.over, self._masks(infos), masks, strict=True)]
        elif self.mode == AutoresetMode.NEXT_STEP:
            # Nothing may be legal when an episode is over, and what is chosen then is not done.
            masks = [None if over else mask for over, mask in zip(self.over, masks, strict=True)]
        self._look(seen, masks)
        device = self.interface.device
        valid = torch.tensor(~beginning, device=device) if beginning.any() else None
        done, cut_off = (torch.tensor(np.asarray(part, bool), device=device) for part in (terminated, truncated))
        paid = torch.tensor(rewards, dtype=torch.float32, device=device)
        return Stepped(paid, done, cut_off, valid, final, returns)

    def plain(self) -> dict[str, Any]:
        """How often all rows were begun: what they are in the middle of cannot be written down."""
        return {"restarts": self.restarts}

    def rebuild(self, plain: Mapping[str, Any], exact: bool) -> bool:
        """New episodes, of other seeds than before."""
        self.restarts = int(plain.get("restarts", 0))
        self.restart()
        return False

    def close(self) -> None:
        self.envs.close()

    def _final(self, seen: Any, infos: Mapping[str, Any], cut: Any) -> Observation:
        observations = self.interface.observations
        if self.mode != AutoresetMode.SAME_STEP:
            return observations.of_all(seen)
        finals = infos.get("final_obs")
        if finals is None:
            raise RLError(
                f"{self.envs} resets in the same step and its infos have no 'final_obs', so what a truncated episode "
                "would have been worth is unknown; use AutoresetMode.NEXT_STEP"
            )
        if isinstance(finals, dict):
            return observations.of_all(finals)
        last = {name: value.clone() for name, value in observations.of_all(seen).items()}
        for row in np.flatnonzero(cut):
            for name, value in observations.of_each([finals[row]]).items():
                last[name][row] = value[0]
        return last

    def _look(self, seen: Any, masks: list[Any]) -> None:
        self.observation = self.interface.observations.of_all(seen) | self.interface.actions.masks(masks)

    def _masks(self, infos: Mapping[str, Any]) -> list[Any]:
        """What each row says is legal; None where it says nothing."""
        given = infos.get("action_mask")
        if given is not None:
            told = infos.get("_action_mask", np.ones(self.count, bool))
            return [mask if there else None for mask, there in zip(given, told, strict=True)]
        # Vectors that tell how their environments are made can call them, too.
        envs: Any = self.envs.unwrapped
        return list(envs.call("action_masks")) if self.asks else [None] * self.count
