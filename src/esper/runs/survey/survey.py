"""How a survey is made: every structure on every seed, on any backend, and on from where it was stopped."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from esper.environment import FAMILY, derive
from esper.runs.backends import make_backend, one_thread
from esper.runs.interrupts import Interrupts
from esper.runs.player import Played
from esper.runs.survey.config import SurveyConfig
from esper.runs.survey.file import write_survey
from esper.runs.survey.lines import SurveyLines
from esper.runs.survey.surveyor import StructureJob, Surveyed, Surveyor, job_of
from esper.runs.survey.table import Seed, SurveyTable
from esper.runs.watcher import Watcher
from esper.telemetry import WorkerReplaced

TASKS_AT_ONCE = 10


class Survey:
    """One survey in one file, to which more can be added; until it is done, lines beside it keep what was trained."""

    def __init__(self, family: str, config: SurveyConfig, path: Path, watcher: Watcher) -> None:
        self.family, self.config, self.path, self._watcher = family, config, path, watcher
        self._interrupts = Interrupts()

    def make(self) -> SurveyTable:
        """Train what has not been trained, and write the file.

        SIGINT and SIGTERM raise `KeyboardInterrupt`; what was trained until then is kept.
        """
        config = self.config
        with self._interrupts, SurveyLines(self.path, self.family) as self._lines, one_thread():
            where = (config.backend, config.game(), config.workers, config.timeout)
            with make_backend(*where, player=Surveyor) as backend:
                names = config.task_names(self.family)
                self._watcher.stage(f"{FAMILY}{self.family}", len(names), 0)
                for first in range(0, len(names), TASKS_AT_ONCE):
                    some = names[first : first + TASKS_AT_ONCE]
                    jobs = [job for task in some for job in self._jobs(task) if not self._lines.has(job)]
                    backend.map(None, jobs, self._done, self._replaced)
                    for _ in some:
                        self._watcher.advance()
            table = self._lines.table({*names, *self._lines.in_file})
            write_survey(table, self.path)
            self._lines.discard()
        return table

    def _jobs(self, task: str) -> Iterator[StructureJob]:
        """The host alone, every single seed, and some pairs; seed by seed, so that what is cut short is whole."""
        structures = structures_of(self.config, task)
        for seed in self.config.seed_range():
            yield from (job_of(task, seed, structure) for structure in structures)

    def _done(self, played: Played) -> None:
        assert isinstance(played, Surveyed)
        with self._interrupts.deferred():
            self._lines.add(played)

    def _replaced(self, event: WorkerReplaced) -> None:
        self._watcher.note(f"a worker was replaced: {event.reason}")


def structures_of(config: SurveyConfig, task: str) -> list[tuple[Seed, ...]]:
    """What is trained on a task."""
    env = config.game().build_env(task)
    observation, _ = env.reset(seed=config.seed_range()[0])
    fits = observation["mask_slot_blueprint"]
    singles = [
        (slot, blueprint)
        for place, slot in enumerate(env.codec.slots)
        for index, blueprint in enumerate(env.codec.blueprints)
        if fits[place, index]
    ]
    pairs = [pair for pair in itertools.combinations(singles, 2) if pair[0][0] != pair[1][0]]
    alone = [(single,) for single in singles]
    return [
        (),
        *_some(alone, config.singles or len(alone), task, "singles"),
        *_some(pairs, config.pairs, task, "pairs"),
    ]


def _some(structures: Sequence[tuple[Seed, ...]], count: int, task: str, purpose: str) -> list[tuple[Seed, ...]]:
    """So many of them, drawn for the task, in their order."""
    draw = np.random.Generator(np.random.PCG64(derive(0, purpose, task)))
    chosen = draw.permutation(len(structures))[:count].tolist()
    return [structures[index] for index in sorted(chosen)]
