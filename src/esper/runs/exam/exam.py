"""How an exam is held: every policy on the same held-out seeds, on any backend, and on from where it was stopped."""

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from esper.contracts import EsperError, nearest
from esper.controller import Schedule, load_schedule
from esper.environment import DEFAULT_TASK, Compute, find_task
from esper.rewards import Mode, RewardConfig
from esper.runs.backends import Backend, make_backend, one_thread
from esper.runs.directory import Unwritable, write_whole
from esper.runs.exam.examiner import Control, Examined, Examiner, ScheduledJob, StaticJob, TrialJob
from esper.runs.exam.report import write_report
from esper.runs.exam.results import ExamResults
from esper.runs.exam.row import ExamRow
from esper.runs.exam.search import rungs, search
from esper.runs.exam.static import widened
from esper.runs.player import Game, Job, Played, Purpose
from esper.runs.policies import SCHEDULE, file_of, find_policy
from esper.runs.seeds import EXAM_SEEDS
from esper.telemetry import WorkerReplaced

SEARCH = "search:"
LEARNED = "tamiyo-small"


class InvalidExam(EsperError):
    """An exam that cannot be held as it was asked for."""


class OtherExam(EsperError):
    """The directory holds another exam."""


@dataclass(frozen=True)
class ExamConfig:
    """What is examined, on what, and where it runs."""

    task: tuple[str, ...] = (DEFAULT_TASK,)
    """Task names or .toml files."""
    policy: tuple[str, ...] = ("none", "random", "heuristic", LEARNED, f"scratch:{LEARNED}", f"widened:{LEARNED}")
    """none, random, heuristic, schedule:FILE, a shipped controller, a run or a checkpoint; sampled:CONTROLLER draws its
    actions; search:K is the best schedule that K host trainings find; scratch:POLICY is that policy's final topology
    trained from scratch, widened:POLICY the host widened to its parameters."""
    seeds: int = 50
    """Episodes of every policy."""
    first_seed: int = 0
    """The first of them."""
    rent: float = 0.08
    """Accuracy that growing by a factor e must bring to pay: the score is accuracy minus that."""
    reference: str = ""
    """The policy that is compared with all others; by default the first that is read from a checkpoint."""
    backend: Literal["serial", "process", "ray"] = "process"
    """Where episodes are played. All give the same results."""
    workers: int = 0
    """Episodes played at the same time; 0 for one per core."""
    ray_address: str = ""
    """Of a running ray cluster; empty starts ray on this machine."""
    timeout: float = 600.0
    """Seconds after which a worker that does not answer is replaced."""
    device: str = "cpu"
    """Where hosts train: cpu, cuda, mps."""
    data_dir: str = ""
    """Where data sets lie that are not part of this package; empty for the usual cache."""

    def check(self) -> None:
        """Find everything that could go wrong only later. Loads the data."""
        if not self.task or not self.policy:
            raise InvalidExam("an exam needs at least one --task and one --policy")
        for what, names in (("task", self.task), ("policy", self.policy)):
            for name in names:
                if names.count(name) > 1:
                    raise InvalidExam(f"--{what} names '{name}' {names.count(name)} times; name it once")
        if self.seeds < 1 or self.first_seed < 0 or self.first_seed + self.seeds > len(EXAM_SEEDS):
            raise InvalidExam(
                f"seeds {self.first_seed} to {self.first_seed + self.seeds - 1} are not held out from training; "
                f"give --first-seed and --seeds within 0 to {EXAM_SEEDS[-1]}"
            )
        if not 1.0 <= self.timeout <= 1e6:
            raise InvalidExam(f"timeout = {self.timeout:g}; give a number of seconds from 1 to 1,000,000")
        Compute(device=self.device)
        for name in self.task:
            task = find_task(name)
            RewardConfig.at_rent(self.rent, task.classes)
            task.load(Path(self.data_dir) if self.data_dir else None)
        for name in self.policy:
            self._check_policy(name)
        if self.reference and self.reference not in self.policy:
            raise InvalidExam(f"--reference '{self.reference}' sits no exam; {nearest(self.reference, self.policy)}")

    def _check_policy(self, name: str) -> None:
        control, model = _control_of(name)
        if control is not None:
            if model not in self.policy or _control_of(model)[0] is not None:
                grown = [each for each in self.policy if _control_of(each)[0] is None]
                raise InvalidExam(f"'{name}' needs '{model}' in the same exam; {nearest(model, grown)}")
            if control is Control.WIDENED:
                for task in self.task:
                    widened(find_task(task), 1)
        elif name.startswith(SEARCH):
            rungs(_budget(name))
        else:
            find_policy(name)

    def seed_range(self) -> range:
        """The held-out seeds."""
        return EXAM_SEEDS[self.first_seed : self.first_seed + self.seeds]

    def compared(self) -> str:
        """The policy that is compared with all others."""
        learned = (each for each in self.policy if _is_controller(each))
        return self.reference or next(learned, self.policy[-1])

    def game(self) -> Game:
        """The rules of all episodes; no twin is needed, because no growth is one of the policies."""
        return Game(reward=Mode.SOLO, rent=self.rent, device=self.device, data_dir=self.data_dir or None, record=False)

    def identity(self) -> str:
        """All that decides the results, down to the bytes of the tasks' and the policies' files, as text."""
        decisive = {name: getattr(self, name) for name in ("task", "policy", "seeds", "first_seed", "rent")}
        files = {name: file_of(name) for name in self.policy}
        files |= {name: Path(name) for name in self.task if name.lower().endswith(".toml")}
        sums = {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items() if file is not None}
        return json.dumps({**decisive, "sums": sums}, indent=1)

    def command(self) -> str:
        """The command that holds this exam."""
        numbers = ["--seeds", self.seeds, "--first-seed", self.first_seed, "--rent", self.rent]
        words = ["esper", "exam", "--task", *self.task, "--policy", *self.policy, *map(str, numbers)]
        return shlex.join([*words, "--reference", self.reference] if self.reference else words)


def _is_controller(name: str) -> bool:
    return not name.startswith((SCHEDULE, SEARCH)) and _control_of(name)[0] is None and file_of(name) is not None


def _control_of(name: str) -> tuple[Control | None, str]:
    """Which control a policy's name stands for, and of which other policy."""
    for control in Control:
        if name.startswith(f"{control}:"):
            return control, name.removeprefix(f"{control}:")
    return None, name


def _budget(name: str) -> int:
    text = name.removeprefix(SEARCH)
    if not text.isdecimal() or len(text) > 9 or text != str(int(text)):
        raise InvalidExam(f"'{name}' names no number of host trainings; write {SEARCH}500")
    return int(text)


class Watcher(Protocol):
    """Is told how an exam goes on."""

    def stage(self, title: str, total: int, done: int) -> None: ...
    def advance(self) -> None: ...
    def note(self, sentence: str) -> None: ...


class Exam:
    """One exam in one directory."""

    def __init__(self, config: ExamConfig, directory: Path, watcher: Watcher) -> None:
        self.config, self.directory, self._watcher = config, directory, watcher
        self._ledger = ExamResults(_claimed(directory, config.identity()) / "rows.jsonl")

    def hold(self) -> list[ExamRow]:
        """Play what has not been played, write the report, and return all rows."""
        config = self.config
        where = (config.backend, config.game(), config.workers, config.timeout, config.ray_address)
        with one_thread(), make_backend(*where, player=Examiner) as backend:
            for task in config.task:
                self._examine(backend, task)
        rows = [
            self._ledger.rows[task, policy, seed][0]
            for task in config.task
            for policy in config.policy
            for seed in config.seed_range()
        ]
        write_report(rows, self.directory, rent=config.rent, reference=config.compared(), command=config.command())
        return rows

    def _examine(self, backend: Backend, task: str) -> None:
        """The searches first, then who plays, then the controls that are made after them."""
        grown = [policy for policy in self.config.policy if _control_of(policy)[0] is None]
        found = {policy: self._search(backend, task, policy) for policy in grown if policy.startswith(SEARCH)}
        self._play(backend, task, grown, found)
        self._play(backend, task, [policy for policy in self.config.policy if policy not in grown], {})

    def _search(self, backend: Backend, task: str, policy: str) -> Schedule:
        """The best schedule, searched for if its file is not there yet."""
        budget = _budget(policy)
        stems = [Path(each).stem for each in self.config.task[: self.config.task.index(task) + 1]]
        namesakes = stems.count(stems[-1]) - 1
        path = self.directory / f"schedule-{stems[-1]}-{budget}{f'-{namesakes}' if namesakes else ''}.toml"
        if not path.exists():
            played = sum(count * seeds for count, seeds in rungs(budget))
            known = sum(1 for key in self._ledger.trials if key[0] == task)
            self._watcher.stage(f"{task}: search", played, min(played, known))
            env = self.config.game().build_env(task)
            best = search(task, env, budget, lambda jobs: self._try(backend, jobs))
            write_whole(path, best.to_toml())
        return load_schedule(path)

    def _try(self, backend: Backend, jobs: Sequence[TrialJob]) -> list[float]:
        trials = self._ledger.trials

        def done(played: Played) -> None:
            job = played.job
            self._ledger.add_trial(job.task, job.policy, job.seed, played.finished.total)
            self._watcher.advance()

        missing = [job for job in jobs if (job.task, job.policy, job.seed) not in trials]
        backend.map(None, missing, done, self._replaced)
        return [trials[job.task, job.policy, job.seed] for job in jobs]

    def _play(self, backend: Backend, task: str, policies: Sequence[str], found: Mapping[str, Schedule]) -> None:
        wanted = [(policy, seed) for seed in self.config.seed_range() for policy in policies]
        missing = [(policy, seed) for policy, seed in wanted if (task, policy, seed) not in self._ledger.rows]
        if not wanted:
            return
        self._watcher.stage(f"{task}: {', '.join(policies)}", len(wanted), len(wanted) - len(missing))

        def done(played: Played) -> None:
            assert isinstance(played, Examined)
            self._ledger.add_row(played.row, played.fossils)
            self._watcher.advance()

        jobs = [self._job(task, policy, seed, found) for policy, seed in missing]
        backend.map(None, jobs, done, self._replaced)

    def _job(self, task: str, policy: str, seed: int, found: Mapping[str, Schedule]) -> Job:
        if policy in found:
            return ScheduledJob(task, seed, policy, Purpose.COMPARE, found[policy])
        control, model = _control_of(policy)
        if control is None:
            return Job(task, seed, policy, Purpose.COMPARE)
        row, fossils = self._ledger.rows[task, model, seed]
        return StaticJob(task, seed, policy, Purpose.COMPARE, control, fossils, row.parameters)

    def _replaced(self, event: WorkerReplaced) -> None:
        self._watcher.note(f"a worker was replaced: {event.reason}")


def _claimed(directory: Path, identity: str) -> Path:
    """The directory, marked as this exam's; refused if it is another's."""
    mark = directory / "exam.json"
    try:
        if mark.exists():
            if mark.read_bytes() != identity.encode():
                raise OtherExam(
                    f"{directory} holds an exam of other tasks, policies (or weights), seeds or rent; "
                    "give another --out, or the same arguments to go on"
                )
        elif directory.exists() and any(directory.iterdir()):
            raise OtherExam(f"{directory} is not empty and holds no exam; give an --out that is new or empty")
        else:
            directory.mkdir(parents=True, exist_ok=True)
            write_whole(mark, identity)
    except OSError as error:
        raise Unwritable(f"{directory} cannot be used ({error.strerror}); give an --out that can be written") from None
    return directory
