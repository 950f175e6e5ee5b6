"""An episode as a pure function of a policy, a task and a seed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from esper.contracts import Event, Head, Op
from esper.controller import (
    Arrays,
    ControllerNetwork,
    Decision,
    Learned,
    NetworkConfig,
    Policy,
    tensors,
)
from esper.environment import (
    FIELDS,
    Compute,
    GrowEnv,
    Splits,
    Task,
    World,
    find_task,
    is_family,
    stream,
    task_in_episode,
)
from esper.rewards import RewardConfig
from esper.rl import MOOD, Buffer, MemoryState, Observation, Sequences, value_of
from esper.runs.episode_recorder import EpisodeRecorder
from esper.runs.policies import find_policy
from esper.runs.trajectory import About, Trajectory, TrajectoryKeeper
from esper.telemetry import EpisodeFinished, LiveFile, SeedLife
from esper.telemetry.profiler import now


class Purpose(StrEnum):
    """What an episode is played for."""

    TRAIN = "train"
    EVALUATE = "evaluate"
    COMPARE = "compare"


@dataclass(frozen=True)
class Job:
    """One episode to play. `policy` is `learned` or `greedy` for the run's own network, or what `find_policy` finds."""

    task: str
    seed: int
    policy: str
    purpose: Purpose
    world: int | None = field(default=None, kw_only=True)
    """The seed of what is played, if not the episode's own: episodes of one world differ in their actions only."""
    detailed: bool = field(default=False, kw_only=True)
    """Whether gradients and memories are looked at along the way."""
    round: int = field(default=0, kw_only=True)
    """Of the run that it belongs to."""


@dataclass(frozen=True)
class Played:
    """What came of a job."""

    job: Job
    finished: EpisodeFinished
    events: tuple[Event, ...] = field(repr=False)
    """In the order in which they happened; empty if they were not asked for."""
    sequences: Sequences | None = field(repr=False)
    """What a learner learns from; None unless a learned policy played."""
    trajectory: Trajectory | None = field(default=None, repr=False, kw_only=True)
    """The whole episode, if episodes are kept."""


@dataclass(frozen=True)
class Game:
    """The rules that all episodes of a run have in common, whoever plays them."""

    reward: str = "twin"
    discount: float = 1.0
    rent: float | None = None
    """Quality that growing by a factor e must bring to pay; None for each task's own."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    exploration: float = 0.0
    moods: float = 0.0
    bootstrap_at_horizon: bool = False
    """The horizon is the end of the task and the last reward settles everything, so nothing is expected after it."""
    compute: Compute = field(default_factory=Compute)
    """Where and how hosts train."""
    data_dir: str | None = None
    record: bool = True
    """Whether decisions, rewards and changes of stage are kept as events."""
    trajectories: bool = False
    """Whether whole episodes are kept, to be written to a recording."""
    live: str = ""
    """The folder in which episodes are shown while they are played; empty for nowhere."""

    def build_env(self, task: str | Task, splits: Splits | None = None) -> GrowEnv:
        """The environment of a task or a family; loads its data unless it is given."""
        played = partial(self._task, task)
        family = isinstance(task, str) and is_family(task)
        world = World(compute=self.compute)
        return GrowEnv(played if family else played(0), self.reward, self._rewards, self.data_dir, world, splits=splits)

    def _task(self, task: str | Task, seed: int) -> Task:
        """What the episode of that seed plays, at the rent of the game."""
        found = task_in_episode(task, seed) if isinstance(task, str) else task
        return found if self.rent is None else replace(found, rent=self.rent)

    def _rewards(self, task: Task) -> RewardConfig:
        return RewardConfig.at_rent(task.rent, task.classes, self.discount, task.grain)

    def load_data(self, task: str) -> Splits:
        """What `build_env` would load."""
        return find_task(task).load(None if self.data_dir is None else Path(self.data_dir))


LEARNED = ("learned", "greedy")
"""The run's own network: drawn as in training, or its likeliest course."""


ENVS_KEPT = 8
"""By a player. Those of more tasks are built anew, so that old data does not fill the memory."""


class Player:
    """Plays jobs. Environments are kept for the tasks played last; the weights are those last loaded."""

    def __init__(self, game: Game) -> None:
        self.game = game
        self.data: dict[str, Splits] = {}
        """Of tasks that need not load theirs, because somebody has."""
        self._envs: dict[str, GrowEnv] = {}
        self._network = ControllerNetwork(FIELDS, game.network)

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Take over the weights of the learned policies."""
        self._network.load_state_dict(dict(weights))

    def env(self, task: str) -> GrowEnv:
        """The environment of a task."""
        env = self._envs.pop(task, None) or self.game.build_env(task, self.data.get(task))
        self._envs[task] = env
        if len(self._envs) > ENVS_KEPT:
            del self._envs[next(iter(self._envs))]
        return env

    def play(self, job: Job, recorder: EpisodeRecorder | None = None) -> Played:
        """The whole episode. The same job under the same weights gives the same result in any process."""
        return self.play_in(self.env_for(job), job, recorder or EpisodeRecorder(job.detailed, self._live(job)))

    def play_in(self, env: GrowEnv, job: Job, recorder: EpisodeRecorder) -> Played:
        """The whole episode in this environment."""
        env.sink, env.probe = recorder, recorder.probe
        sequences, finished, trajectory = self._episode(env, job, recorder)
        told = tuple(recorder.events) if self.game.record or job.detailed else ()
        return Played(job, finished, told, sequences, trajectory=trajectory)

    def _live(self, job: Job) -> LiveFile | None:
        return LiveFile(Path(self.game.live), job.round, job.seed) if self.game.live else None

    def env_for(self, job: Job) -> GrowEnv:
        """Where a job is played."""
        return self.env(job.task)

    def policy_for(self, job: Job) -> Policy:
        """Who plays a job."""
        if job.policy in LEARNED:
            game, greedy = self.game, job.policy == "greedy"
            return Learned(self._network, greedy, game.exploration, game.moods, name=job.policy)
        return find_policy(job.policy)

    def _episode(
        self, env: GrowEnv, job: Job, recorder: EpisodeRecorder
    ) -> tuple[Sequences | None, EpisodeFinished, Trajectory | None]:
        started = now(self.game.compute.device)
        policy, generator = self.policy_for(job), stream(job.seed, "actions")
        observation, _ = env.reset(seed=job.seed if job.world is None else job.world)
        recorder.begin(env, job.task, job.policy, job.purpose.value)
        state = policy.start(env.codec)
        row = (
            Row(env.task.horizon, observation, state.memory, policy.moods > 0) if isinstance(policy, Learned) else None
        )
        keeper = TrajectoryKeeper(env.codec, observation) if self.game.trajectories else None
        tally, over = EpisodeTally(), False
        while not over:
            seen = observation
            decision, state = policy.act(seen, state, generator)
            observation, reward, terminated, truncated, info = env.step(decision.choices)
            over = terminated or truncated
            tally.add(decision, seen, reward, info)
            recorder.narrate(env, decision, tally.forced_now, reward, info)
            if row is not None:
                expected = self._expected(observation, state.memory) if truncated else 0.0
                row.add(tensors(seen), decision, reward, over, expected, state.mood)
                recorder.remember(state.memory)
            if keeper is not None:
                keeper.add(decision, reward, observation)
        recorder.conclude()
        seconds = now(self.game.compute.device) - started
        finished = tally.finished(env, job, recorder.seeds(), seconds)
        kept = None if keeper is None else keeper.trajectory(about(env, job, finished, keeper.drawn))
        return None if row is None else row.sequences(), finished, kept

    def _expected(self, observation: Arrays, state: MemoryState) -> float:
        """Of the state after the horizon, with the masks and the memory that the last action left."""
        if not self.game.bootstrap_at_horizon:
            return 0.0
        return value_of(self._network, tensors(observation), state, torch.tensor([False])).item()


def about(env: GrowEnv, job: Job, finished: EpisodeFinished, drawn: bool) -> About:
    """What a kept episode is about."""
    return About(
        task=job.task,
        policy=job.policy,
        seed=job.seed,
        world=job.seed if job.world is None else job.world,
        round=job.round,
        score=finished.quality - env.reward_config.rent_weight * math.log(finished.growth),
        terminated=finished.panic is not None,
        drawn=drawn,
    )


class Row:
    """One episode of a learned policy, as it will be learned from."""

    def __init__(self, horizon: int, observation: Arrays, state: MemoryState, moods: bool) -> None:
        example = {name: torch.from_numpy(array) for name, array in observation.items()}
        if moods:
            example[MOOD] = torch.zeros(len(Op))
        self._buffer = Buffer(1, horizon, example, len(Head))
        self._buffer.begin(state)
        self._starts = torch.tensor([True])

    def add(
        self, seen: Observation, decision: Decision, reward: float, over: bool, expected: float, mood: Tensor | None
    ) -> None:
        acted = decision.acted
        assert acted is not None
        seen = seen if mood is None else seen | {MOOD: mood}
        self._buffer.decide(seen, self._starts, acted.choices, acted.log_probs, acted.free)
        ends, bootstrap = torch.tensor([over]), torch.tensor([expected])
        self._buffer.conclude(acted.values, torch.tensor([reward], dtype=torch.float32), ends, bootstrap)
        self._starts = torch.tensor([False])

    def sequences(self) -> Sequences:
        return self._buffer.sequences()


class EpisodeTally:
    """Counts along an episode."""

    def __init__(self) -> None:
        self.total, self.epochs, self.forced = 0.0, 0, 0
        self.forced_now = False
        self.ops: dict[str, int] = {}
        self.info: Mapping[str, Any] = {}

    def add(self, decision: Decision, seen: Arrays, reward: float, info: Mapping[str, Any]) -> None:
        self.forced_now = int(seen["mask_op"].sum()) == 1
        self.total, self.epochs, self.forced = self.total + reward, self.epochs + 1, self.forced + self.forced_now
        self.info = info
        if not self.forced_now:
            op = info["executed"].op.name
            self.ops[op] = self.ops.get(op, 0) + 1

    def finished(self, env: GrowEnv, job: Job, seeds: tuple[SeedLife, ...], seconds: float) -> EpisodeFinished:
        assert env.episode is not None
        body, kept = env.episode.body, env.episode.snapshot.delivered
        panic = self.info["panic"]
        return EpisodeFinished(
            task=job.task,
            policy=job.policy,
            purpose=job.purpose.value,
            total=self.total,
            quality=env.episode.evaluation.table[kept] if panic is None else self.info["quality"],
            twin_quality=env.twin_quality,
            growth=body.costs().kept.parameters / body.host_parameters,
            fossilized=len(kept),
            epochs=self.epochs,
            forced=self.forced,
            ops=self.ops,
            panic=panic,
            seconds=seconds,
            seeds=seeds,
        )
