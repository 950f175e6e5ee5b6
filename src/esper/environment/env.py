"""The world as a `gymnasium.Env`: one step is one epoch of one host."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from esper.contracts import WAIT, Choices, NullSink, Sink
from esper.environment.data import Splits
from esper.environment.episode import Episode, Outcome, World
from esper.environment.observation import BLUEPRINT_FEATURES, HOST_FEATURES, SLOT_FEATURES, Feature
from esper.environment.observer import Observation, Observer
from esper.environment.task_names import find_task, is_family, task_in_episode
from esper.environment.tasks import DEFAULT_TASK, Task
from esper.environment.training import Probe
from esper.environment.twins import twin_curve
from esper.rewards import Ending, Mode, Reward, RewardConfig, Transition, Twin, find_mode, needs_twin, reward

Indices = NDArray[np.int64]
Drawn = Callable[[int], Task]
"""The task of the episode of a seed."""
RewardsOf = Callable[[Task], RewardConfig]


def usual_rewards(task: Task) -> RewardConfig:
    """The usual weights at the task's rent."""
    return RewardConfig.at_rent(task.rent, task.classes, grain=task.grain)


class GrowEnv(gymnasium.Env[Observation, Sequence[int] | Indices]):
    """Grow the host of a task. Terminated only by the governor, truncated at the horizon.

    `reset(seed=s)` plays the episode of seed s. An action that is not legal is refused, with the reasons in
    `info["refused"]`, and the epoch passes as if waiting. `sink` takes the events of the episodes that are started
    after it is set, and `probe` is shown their gradients. `splits` is the task's data, if it has been loaded already.

    A whole family (`family:small`), or a function from seeds to tasks, has another task in every episode. `reset` then
    loads its data, forgets that of the task before, and sets both spaces anew: they are those of the present task.

    The rewards follow the task, or are those of `reward_config`, whose rent is then the task's.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  # gymnasium declares it so

    def __init__(
        self,
        task: str | Task | Drawn = DEFAULT_TASK,
        reward_mode: str = Mode.TWIN,
        reward_config: RewardConfig | RewardsOf = usual_rewards,
        data_dir: str | Path | None = None,
        world: World | None = None,
        sink: Sink | None = None,
        splits: Splits | None = None,
    ) -> None:
        if isinstance(task, str):
            task = partial(task_in_episode, task) if is_family(task) else find_task(task)
        self._drawn = None if isinstance(task, Task) else task
        self._rewards = reward_config
        self._data_dir = None if data_dir is None else Path(data_dir)
        self.reward_mode = find_mode(reward_mode)
        self.world = world or World()
        self.sink = sink or NullSink()
        self.probe: Probe | None = None
        self._enter(task if isinstance(task, Task) else task(0), splits)

    def _enter(self, task: Task, splits: Splits | None = None) -> None:
        """Make this the present task, with its data, rewards and spaces."""
        self.episode: Episode | None = None
        if isinstance(self._rewards, RewardConfig):
            self.reward_config = replace(self._rewards, outcomes=task.classes)
            task = replace(task, rent=self.reward_config.rent_weight)
        else:
            self.reward_config = self._rewards(task)
        self.task = task
        self.splits = (splits or task.load(self._data_dir)).to(torch.device(self.world.compute.device))
        probe = Episode(task, self.splits, 0, self.world)
        self.observer = Observer(probe.snapshot.slots, self.world.thresholds_for(task), task.grain)
        self.codec = self.observer.codec
        self.action_space = spaces.MultiDiscrete(list(self.codec.sizes))
        self.observation_space = _observation_space(self.observer.observe(probe.snapshot))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start the episode of `seed`, or of a seed drawn from the environment's own random numbers."""
        super().reset(seed=seed)
        episode_seed = seed if seed is not None else int(self.np_random.integers(2**31))
        if self._drawn is not None:
            self._enter(self._drawn(episode_seed))
        self.episode = Episode(self.task, self.splits, episode_seed, self.world, self.sink, self.probe)
        self._twins: tuple[Twin, ...] | None = None
        if needs_twin(self.reward_mode):
            self._twins = twin_curve(self.task, self.splits, episode_seed, self.world)
        return self.observer.observe(self.episode.snapshot), {"episode_seed": episode_seed}

    def step(self, action: Sequence[int] | Indices) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """One epoch. `Choices` that were made for another body are an error; mere numbers are taken at their word."""
        episode = self._started()
        if isinstance(action, Choices):
            self.codec.require(action.codec)
        before, table_before = episode.snapshot, episode.evaluation.table
        indices = np.asarray(action)
        wanted = self.codec.decode(indices.tolist()) if self.action_space.contains(indices) else None
        outcome = episode.step(wanted or WAIT)
        terminated = outcome.panic is not None
        truncated = not terminated and episode.done
        ending = Ending.TERMINATED if terminated else Ending.TRUNCATED if truncated else Ending.RUNNING
        value = reward(
            Transition(
                before=before,
                after=episode.snapshot,
                action=outcome.executed,
                table_before=table_before,
                table_after=outcome.evaluation.table,
                twin_before=self._twin(before.host.epoch),
                twin_after=self._twin(episode.snapshot.host.epoch),
                ending=ending,
                kept_loss_after=outcome.evaluation.worths[episode.snapshot.delivered].loss,
            ),
            self.reward_mode,
            self.reward_config,
        )
        for alert in value.alerts:
            self.sink.write(alert)
        refused = ("not in the action space",) if wanted is None else () if outcome.verdict else outcome.verdict.reasons
        seen = self.observer.observe(episode.snapshot)
        return seen, value.total, terminated, truncated, _info(outcome, value, refused)

    def _started(self) -> Episode:
        if self.episode is None:
            raise gymnasium.error.ResetNeeded("call reset() before step()")
        return self.episode

    @property
    def discount(self) -> float:
        """The one for which the rewards are shaped, so that of whoever learns from them."""
        return self.reward_config.discount

    @property
    def twin_quality(self) -> float | None:
        """Of the twin in the present epoch; None in reward modes that need no twin."""
        twin = self._twin(self._started().snapshot.host.epoch)
        return None if twin is None else twin.quality

    def _twin(self, epoch: int) -> Twin | None:
        """The twin at `epoch`; a twin that ended early stays as it was."""
        return None if self._twins is None else self._twins[min(epoch, len(self._twins) - 1)]


def _info(outcome: Outcome, value: Reward, refused: tuple[str, ...]) -> dict[str, Any]:
    return {
        "executed": outcome.executed,
        "refused": refused,
        "reward_terms": dict(value.terms),
        "alerts": value.alerts,
        "quality": outcome.evaluation.quality,
        "loss": outcome.evaluation.loss,
        "panic": outcome.panic,
    }


def _bounds(features: Sequence[Feature[Any]], shape: tuple[int, ...]) -> spaces.Box:
    low = np.broadcast_to(np.array([feature.low for feature in features], dtype=np.float32), shape)
    high = np.broadcast_to(np.array([feature.high for feature in features], dtype=np.float32), shape)
    return spaces.Box(low, high, dtype=np.float32)


def _observation_space(example: Observation) -> spaces.Space[Observation]:
    tables: dict[str, Sequence[Feature[Any]]] = {
        "host": HOST_FEATURES,
        "slots": SLOT_FEATURES,
        "blueprints": BLUEPRINT_FEATURES,
    }
    space: spaces.Space[Any] = spaces.Dict(
        {
            name: _bounds(tables[name], array.shape) if name in tables else spaces.MultiBinary(array.shape)
            for name, array in example.items()
        }
    )
    return space
