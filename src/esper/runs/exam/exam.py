"""How an exam is held: every policy on the same held-out seeds, on any backend, and on from where it was stopped."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from esper.controller import Schedule
from esper.environment import stem_of
from esper.runs.backends import Backend, make_backend, one_thread
from esper.runs.directory import Unwritable, write_whole
from esper.runs.exam.config import SEARCH, ExamConfig, budget_of, control_of
from esper.runs.exam.deciding import summarise_families
from esper.runs.exam.deciding_report import write_deciding
from esper.runs.exam.directory import claimed
from esper.runs.exam.exam_status import ExamProgress
from esper.runs.exam.examiner import Examined, Examiner, ScheduledJob, StaticJob, TrialJob
from esper.runs.exam.identity import ExamIdentity
from esper.runs.exam.report import write_report
from esper.runs.exam.results import ExamResults
from esper.runs.exam.search import rungs, search
from esper.runs.interrupts import Interrupts
from esper.runs.player import Job, Played, Purpose
from esper.runs.recordings import RECORDING, RecordingDirectory, RecordingSchema
from esper.runs.watcher import Watcher
from esper.telemetry import WorkerReplaced
from esper.telemetry.exam_row import ExamRow

Found = Mapping[tuple[str, str], Schedule]
"""The schedule of a search, by task and policy."""


class Exam:
    """One exam in one directory."""

    def __init__(self, config: ExamConfig, directory: Path, watcher: Watcher) -> None:
        self.config, self.directory = config, directory
        self._watcher = ExamProgress(directory, config.command(), watcher)
        self._interrupts = Interrupts()

    @cached_property
    def _recording(self) -> RecordingDirectory:
        """Episodes that are kept, if that was asked for."""
        return RecordingDirectory(self.directory / RECORDING, RecordingSchema.of(self.config.game()))

    def hold(self) -> list[ExamRow]:
        """Play what has not been played, write the report, and return the rows that were asked for.

        SIGINT and SIGTERM raise `KeyboardInterrupt`; what was played until then is kept.
        """
        config = self.config
        with self._interrupts, claimed(self.directory, ExamIdentity.of(config)), one_thread(), self._watcher:
            self._results = ExamResults(self.directory / "rows.jsonl")
            if self._results.left_out:
                self._watcher.note(
                    f"left out of rows.jsonl: {self._results.left_out} lines that cannot be read; "
                    "episodes that are missing are played again"
                )
            where = (config.backend, config.game(), config.workers, config.timeout, config.ray_address)
            with make_backend(*where, player=Examiner) as backend:
                for title, tasks in config.stages().items():
                    self._examine(backend, title, tasks)
            self._recording.clean()
            rows = [
                self._results.rows[task, policy, seed][0]
                for task in config.task_names()
                for policy in config.policy
                for seed in config.seed_range()
            ]
            self._report(rows)
        return rows

    def _report(self, rows: Sequence[ExamRow]) -> None:
        config, terms = self.config, self.config.terms()
        if config.tasks:
            families = summarise_families(rows, config.stages(), terms, config.surveyed())
            write_deciding(families, rows, self.directory, terms, config.command())
        else:
            write_report(rows, self.directory, terms, config.command())

    def _examine(self, backend: Backend, title: str, tasks: Sequence[str]) -> None:
        """The searches first, then who plays, then the controls that are made after them."""
        grown = [policy for policy in self.config.policy if control_of(policy)[0] is None]
        searches = [policy for policy in grown if policy.startswith(SEARCH)]
        found = {(task, policy): self._search(backend, task, policy) for task in tasks for policy in searches}
        self._play(backend, title, tasks, grown, found)
        self._play(backend, title, tasks, [policy for policy in self.config.policy if policy not in grown], {})

    def _search(self, backend: Backend, task: str, policy: str) -> Schedule:
        """The best schedule, which is left in the directory as well; trials that are known are not played again."""
        budget = budget_of(policy)
        played = sum(count * seeds for count, seeds in rungs(budget))
        known = sum(1 for key in self._results.trials if key[0] == task)
        self._watcher.stage(f"{task}: search", played, min(played, known))
        best = search(task, self.config.game().build_env(task), budget, lambda jobs: self._try(backend, jobs))
        names = self.config.task_names()
        stems = [stem_of(each) for each in names[: names.index(task) + 1]]
        namesakes = stems.count(stems[-1]) - 1
        path = self.directory / f"schedule-{stems[-1]}-{budget}{f'-{namesakes}' if namesakes else ''}.toml"
        try:
            write_whole(path, best.to_toml())
        except OSError as error:
            raise Unwritable.because(path, error, "; the same command goes on") from error
        return best

    def _try(self, backend: Backend, jobs: Sequence[TrialJob]) -> list[float]:
        trials = self._results.trials

        def done(played: Played) -> None:
            job = played.job
            with self._interrupts.deferred():
                self._results.add_trial(job.task, job.policy, job.seed, played.finished.total)
            self._watcher.advance()

        missing = [job for job in jobs if (job.task, job.policy, job.seed) not in trials]
        backend.map(None, missing, done, self._replaced)
        return [trials[job.task, job.policy, job.seed] for job in jobs]

    def _play(self, backend: Backend, title: str, tasks: Sequence[str], policies: Sequence[str], found: Found) -> None:
        seeds = self.config.seed_range()
        wanted = [(task, policy, seed) for task in tasks for seed in seeds for policy in policies]
        missing = [each for each in wanted if each not in self._results.rows]
        if not wanted:
            return
        self._watcher.stage(f"{title}: {', '.join(policies)}", len(wanted), len(wanted) - len(missing))

        def done(played: Played) -> None:
            assert isinstance(played, Examined)
            with self._interrupts.deferred():
                if played.trajectory is not None:
                    self._recording.add(played.trajectory)
                self._results.add_row(played.row, played.fossils)
            self._watcher.advance()

        jobs = [self._job(task, policy, seed, found) for task, policy, seed in missing]
        backend.map(None, jobs, done, self._replaced)
        with self._interrupts.deferred():
            self._recording.gather(Job(task, seed, policy, Purpose.COMPARE) for task, policy, seed in wanted)

    def _job(self, task: str, policy: str, seed: int, found: Found) -> Job:
        if (task, policy) in found:
            return ScheduledJob(task, seed, policy, Purpose.COMPARE, found[task, policy])
        control, model = control_of(policy)
        if control is None:
            return Job(task, seed, policy, Purpose.COMPARE)
        row, fossils = self._results.rows[task, model, seed]
        return StaticJob(task, seed, policy, Purpose.COMPARE, control, fossils, row.parameters)

    def _replaced(self, event: WorkerReplaced) -> None:
        self._watcher.note(f"a worker was replaced: {event.reason}")
