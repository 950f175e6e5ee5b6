"""Trains one structure on one seed of a task, and notes what came of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from esper.controller import Decision, NoGrowth, Policy, Schedule, ScheduledSeed, measured
from esper.environment import GrowEnv, SplitJudge
from esper.runs.episode_recorder import EpisodeRecorder
from esper.runs.player import Job, Played, Player, Purpose
from esper.runs.survey.table import Array, HostCourse, Seed, SurveyRow, named

PLANTED_AFTER = 1
"""Epochs of the host alone. By then it has shown the gradients that newborns would get."""
SHOWN_EPOCHS = 6
"""Epochs after which observations of the host alone are kept."""


@dataclass(frozen=True)
class StructureJob(Job):
    """A structure to be grown as fast as the gates allow."""

    structure: tuple[Seed, ...]


def job_of(task: str, seed: int, structure: Sequence[Seed]) -> StructureJob:
    """The structure on that seed; its policy is named after it."""
    return StructureJob(task, seed, named(structure) or "none", Purpose.COMPARE, tuple(structure))


@dataclass(frozen=True)
class Surveyed(Played):
    """What came of a structure; the course is that of a host alone."""

    row: SurveyRow
    course: HostCourse | None


class CourseRecorder(EpisodeRecorder):
    """Keeps what is seen while nothing grows."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Mapping[str, Any]] = []
        self.qualities: list[float] = []

    def narrate(self, env: GrowEnv, decision: Decision, forced: bool, reward: float, info: Mapping[str, Any]) -> None:
        super().narrate(env, decision, forced, reward, info)
        self.qualities.append(info["quality"])
        if len(self.seen) < SHOWN_EPOCHS:
            assert env.episode is not None
            self.seen.append(env.observer.observe(env.episode.snapshot))


class Surveyor(Player):
    """A player of structures."""

    def policy_for(self, job: Job) -> Policy:
        assert isinstance(job, StructureJob)
        if not job.structure:
            return NoGrowth()
        return Schedule(tuple(ScheduledSeed(PLANTED_AFTER, slot, blueprint) for slot, blueprint in job.structure))

    def play_in(self, env: GrowEnv, job: Job, recorder: EpisodeRecorder) -> Played:
        """The whole episode, then what is delivered, on the test split too."""
        assert isinstance(job, StructureJob)
        seen = CourseRecorder()
        played = super().play_in(env, job, seen)
        assert env.episode is not None
        body, task, kept = env.episode.body, env.task, env.episode.snapshot.delivered
        (tested,) = SplitJudge(env.splits.test, task.classes, task.judged_by).worths(body, [kept])
        row = SurveyRow(
            task=job.task,
            seed=job.seed,
            structure=named(job.structure),
            rent=task.rent,
            evaluation_quality=played.finished.quality,
            quality=tested.quality,
            host_parameters=body.host_parameters,
            parameters=body.costs().kept.parameters,
        )
        return Surveyed(job, played.finished, (), None, row, None if job.structure else _course(env, job, seen))


def _course(env: GrowEnv, job: Job, seen: CourseRecorder) -> HostCourse:
    def array(name: str) -> Array:
        return np.stack([measured(each)[name] for each in seen.seen])

    return HostCourse(
        task=job.task,
        seed=job.seed,
        slots=env.codec.slots,
        blueprints=env.codec.blueprints,
        traits=dict(env.task.traits),
        host=array("host"),
        slot_features=array("slots"),
        offers=array("blueprints"),
        qualities=np.array(seen.qualities),
    )
