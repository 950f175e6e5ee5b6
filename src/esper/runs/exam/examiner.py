"""One candidate sits one paper: an episode on a held-out seed, measured on the test split at its end."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean
from typing import Any

from esper.contracts import UNITS
from esper.controller import Decision, NoGrowth, Policy, Schedule
from esper.environment import Episode, GrowEnv, SplitJudge, Task, find_task
from esper.growth import Fossil, count_flops, count_parameters
from esper.runs.episode_recorder import EpisodeRecorder
from esper.runs.exam.static import from_scratch, widened
from esper.runs.player import Job, Played, Player
from esper.telemetry.exam_row import ExamRow

PASSES = 3
"""A training step counts as three forward passes: one forward, two backward."""


class Control(StrEnum):
    """What a grown network is compared with, by the prefix of its name."""

    SCRATCH = "scratch"
    """Its final topology, trained from scratch for the same epochs."""
    WIDENED = "widened"
    """The host widened to as many parameters."""


@dataclass(frozen=True)
class StaticJob(Job):
    """A network that does not grow, made after one that did."""

    control: Control
    fossils: tuple[Fossil, ...]
    parameters: int

    def build_task(self) -> Task:
        """The task with that network as its host."""
        task = find_task(self.task)
        return from_scratch(task, self.fossils) if self.control is Control.SCRATCH else widened(task, self.parameters)


@dataclass(frozen=True)
class ScheduledJob(Job):
    """A schedule that a search has found; `policy` is the search's name."""

    schedule: Schedule


@dataclass(frozen=True)
class TrialJob(ScheduledJob):
    """A schedule on trial, played without a look at the test split."""


@dataclass(frozen=True)
class Examined(Played):
    """What came of a job, with its row of the exam and the architecture that was delivered."""

    row: ExamRow
    fossils: tuple[Fossil, ...]


class Meter(EpisodeRecorder):
    """Adds up quality and operations, epoch by epoch, as an episode goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.qualities: list[float] = []
        self.flops = 0.0

    def narrate(self, env: GrowEnv, decision: Decision, forced: bool, reward: float, info: Mapping[str, Any]) -> None:
        super().narrate(env, decision, forced, reward, info)
        assert env.episode is not None
        self.qualities.append(env.episode.evaluation.quality)
        self.flops += epoch_flops(env.episode)


class Examiner(Player):
    """A player that measures what an episode leaves: the network that `harvest()` gives, on the test split."""

    def env_for(self, job: Job) -> GrowEnv:
        """A static network has an environment of its own, in which nothing is ever grown."""
        if isinstance(job, StaticJob):
            return self.game.build_env(job.build_task(), self.data.get(job.task))
        return super().env_for(job)

    def policy_for(self, job: Job) -> Policy:
        if isinstance(job, StaticJob):
            return NoGrowth()
        return job.schedule if isinstance(job, ScheduledJob) else super().policy_for(job)

    def play_in(self, env: GrowEnv, job: Job, recorder: EpisodeRecorder) -> Played:
        """The whole episode, then the test split, once; a trial goes without."""
        if isinstance(job, TrialJob):
            return super().play_in(env, job, recorder)
        meter = Meter()
        played = super().play_in(env, job, meter)
        assert env.episode is not None
        body, test = env.episode.body, env.splits.test
        kept, fossils = body.harvest(), body.delivered()
        tested = SplitJudge(test, env.task.classes, env.task.judged_by).worth(kept)
        unit = UNITS.get(env.task.judged_by)
        row = ExamRow(
            task=job.task,
            policy=job.policy,
            seed=job.seed,
            rent=env.reward_config.rent_weight,
            judged_by=env.task.judged_by,
            quality=tested.quality,
            loss=min(tested.loss, sys.float_info.max),
            evaluation_quality=env.episode.judge.worth(kept).quality,
            area=fmean(meter.qualities),
            host_parameters=find_task(job.task).host_parameters(),
            parameters=count_parameters(kept.parameters()),
            training_flops=meter.flops,
            inference_flops=float(count_flops(kept.eval(), test.x[:1])),
            rollbacks=int(played.finished.panic is not None),
            seconds=played.finished.seconds,
            kept=", ".join(f"{fossil.slot} {fossil.blueprint}" for fossil in fossils),
            token_size=1.0 if unit is None else unit.size_of(test.token),
        )
        trajectory = None if isinstance(job, StaticJob) else played.trajectory
        return Examined(job, played.finished, (), None, row, fossils, trajectory=trajectory)


def epoch_flops(episode: Episode) -> float:
    """Operations of training one epoch, by the network at its end."""
    return float(PASSES * episode.body.costs().live.flops * episode.task.samples_of(episode.train))
