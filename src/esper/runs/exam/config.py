"""What is examined, on what, and where it runs; found out to be possible before anything is played."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from esper.contracts import EsperError, nearest
from esper.controller import file_of
from esper.environment import DEFAULT_TASK, FAMILY, Compute, find_task, is_family
from esper.rewards import Mode, RewardConfig
from esper.runs.exam.examiner import Control
from esper.runs.exam.search import rungs
from esper.runs.exam.static import widened
from esper.runs.exam.summary import CONTROL, Terms
from esper.runs.exam.surveyed import surveyed
from esper.runs.player import Game
from esper.runs.policies import find_policy
from esper.runs.seeds import EXAM_SEEDS
from esper.runs.survey import TaskSurvey

SEARCH = "search:"
LEARNED = "tamiyo-small"
MOST_TASKS = 10_000
"""Of a family."""
SEEDS, FAMILY_SEEDS = 50, 2
"""Of every task, if nothing is said: many tasks need fewer seeds each."""


class InvalidExam(EsperError):
    """An exam that cannot be held as it was asked for."""


@dataclass(frozen=True)
class ExamConfig:
    """What is examined, on what, and where it runs."""

    task: tuple[str, ...] = (DEFAULT_TASK,)
    """Task names, .toml files, or families such as family:small-exam."""
    tasks: int = 0
    """How many tasks of every family are played, from its first on."""
    survey: tuple[str, ...] = ()
    """What 'esper survey' wrote about families, on the same seeds: shows what there was to win in them."""
    policy: tuple[str, ...] = ("none", "random", "heuristic", LEARNED, f"scratch:{LEARNED}", f"widened:{LEARNED}")
    """none, random, heuristic, constant, constant:SLOT:BLUEPRINT, schedule:FILE, ranker, ranker:FILE, or a controller:
    a shipped one, a run or a checkpoint; sampled:CONTROLLER draws its actions; search:K is the best schedule that K
    host trainings find; scratch:POLICY is that policy's final topology trained from scratch, widened:POLICY the host
    widened to its parameters."""
    seeds: int | None = None
    """Episodes of every policy on every task; by default 50, and 2 on the tasks of families."""
    first_seed: int = 0
    """The first of them."""
    rent: float | None = None
    """Quality that growing by a factor e must bring to pay, and the score is quality minus that; by default each
    task's own."""
    reference: str = ""
    """The policy that is compared with all others; by default the first that is read from a checkpoint."""
    trajectories: bool = False
    """Keep the episodes of all that grow whole in recording/; some 3 kB each. What is known is not played again."""
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
        count = self._seed_count()
        if count < 1 or self.first_seed < 0 or self.first_seed + count > len(EXAM_SEEDS):
            raise InvalidExam(
                f"seeds {self.first_seed} to {self.first_seed + count - 1} are not held out from training; "
                f"give --first-seed and --seeds within 0 to {EXAM_SEEDS[-1]}"
            )
        if not 1.0 <= self.timeout <= 1e6:
            raise InvalidExam(f"timeout = {self.timeout:g}; give a number of seconds from 1 to 1,000,000")
        Compute(device=self.device)
        self._check_families()
        self.surveyed()
        for name in self.task_names():
            task = find_task(name)
            RewardConfig.at_rent(task.rent if self.rent is None else self.rent, task.classes)
            task.load(Path(self.data_dir) if self.data_dir else None)
        for name in self.policy:
            self._check_policy(name)
        if self.reference and self.reference not in self.policy:
            raise InvalidExam(f"--reference '{self.reference}' sits no exam; {nearest(self.reference, self.policy)}")

    def _check_families(self) -> None:
        families = [name for name in self.task if is_family(name)]
        name = next(iter(families), "")
        for is_wrong, words in (
            (not 0 <= self.tasks <= MOST_TASKS, f"tasks is {self.tasks}; give a number from 1 to {MOST_TASKS:,}"),
            (
                families and not self.tasks,
                f"'{name}' is a family; say with --tasks 60 how many of its tasks are played, or name one: {name}/17",
            ),
            (
                (self.tasks or self.survey) and not families,
                f"--tasks and --survey belong to families; add --task {FAMILY}small-exam, or leave them out",
            ),
            (
                0 < len(families) < len(self.task),
                f"'{name}' is a family and is reported otherwise than single tasks; hold an exam of each kind",
            ),
            (
                families and CONTROL not in self.policy,
                f"gains on a family are above no growth; add '{CONTROL}' to --policy",
            ),
        ):
            if is_wrong:
                raise InvalidExam(words)

    def _check_policy(self, name: str) -> None:
        control, model = control_of(name)
        if control is not None:
            if model not in self.policy or control_of(model)[0] is not None:
                grown = [each for each in self.policy if control_of(each)[0] is None]
                raise InvalidExam(f"'{name}' needs '{model}' in the same exam; {nearest(model, grown)}")
            if control is Control.WIDENED:
                for task in self.task_names():
                    widened(find_task(task), 1)
        elif name.startswith(SEARCH):
            rungs(budget_of(name))
        else:
            find_policy(name)

    def stages(self) -> dict[str, tuple[str, ...]]:
        """The tasks that each name of `task` stands for: the first ones of a family, or the task itself."""
        numbers = range(self.tasks)
        return {name: tuple(f"{name}/{at}" for at in numbers) if is_family(name) else (name,) for name in self.task}

    def task_names(self) -> tuple[str, ...]:
        """All tasks."""
        return tuple(task for tasks in self.stages().values() for task in tasks)

    def surveyed(self) -> dict[str, TaskSurvey]:
        """What the surveys say about every task of the families that they are of."""
        return surveyed(self.survey, self.rents(), self.seed_range()) if self.survey else {}

    def seed_range(self) -> range:
        """The held-out seeds."""
        return EXAM_SEEDS[self.first_seed : self.first_seed + self._seed_count()]

    def _seed_count(self) -> int:
        usual = FAMILY_SEEDS if self.tasks else SEEDS
        return usual if self.seeds is None else self.seeds

    def compared(self) -> str:
        """The policy that is compared with all others."""
        learned = (each for each in self.policy if _is_controller(each))
        return self.reference or next(learned, self.policy[-1])

    def terms(self) -> Terms:
        """What the policies are judged by."""
        return Terms(self.compared())

    def rents(self) -> dict[str, float]:
        """Of every task."""
        return {name: find_task(name).rent if self.rent is None else self.rent for name in self.task_names()}

    def game(self) -> Game:
        """The rules of all episodes; no twin is needed, because no growth is one of the policies."""
        compute, data = Compute(device=self.device), self.data_dir or None
        kept = self.trajectories
        return Game(reward=Mode.SOLO, rent=self.rent, compute=compute, data_dir=data, record=False, trajectories=kept)

    def command(self) -> str:
        """The command that holds this exam."""
        numbers = ["--seeds", self._seed_count(), "--first-seed", self.first_seed]
        numbers += [] if self.rent is None else ["--rent", self.rent]
        numbers += ["--tasks", self.tasks] if self.tasks else []
        surveys = ["--survey", *self.survey] if self.survey else []
        words = ["esper", "exam", "--task", *self.task, "--policy", *self.policy, *map(str, numbers), *surveys]
        return shlex.join([*words, "--reference", self.reference] if self.reference else words)


def _is_controller(name: str) -> bool:
    file = None if name.startswith(SEARCH) or control_of(name)[0] else file_of(name)
    return file is not None and file.suffix == ".pt"


def control_of(name: str) -> tuple[Control | None, str]:
    """Which control a policy's name stands for, and of which other policy."""
    for control in Control:
        if name.startswith(f"{control}:"):
            return control, name.removeprefix(f"{control}:")
    return None, name


def budget_of(name: str) -> int:
    """How many host trainings `search:K` may cost."""
    text = name.removeprefix(SEARCH)
    if not text.isdecimal() or len(text) > 9 or text != str(int(text)):
        raise InvalidExam(f"'{name}' names no number of host trainings; write {SEARCH}500")
    return int(text)
