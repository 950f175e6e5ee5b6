"""What is surveyed, and where it runs."""

from dataclasses import dataclass
from typing import Literal

from esper.contracts import EsperError
from esper.environment import FAMILY, Compute, find_task, is_family
from esper.runs.player import Game
from esper.runs.seeds import EXAM_SEEDS


class InvalidSurvey(EsperError):
    """A survey that cannot be made as it was asked for."""


@dataclass(frozen=True)
class SurveyConfig:
    """What is surveyed, and where it runs."""

    tasks: int = 50
    """Tasks of the family, one after the other."""
    first: int = 0
    """The number of the first of them."""
    singles: int = 0
    """Single seeds of every task, drawn at random; 0 for all. For learning, a few on many tasks teach more."""
    seeds: int = 2
    """Episodes of every structure."""
    pairs: int = 6
    """Structures of two seeds, drawn at random for every task."""
    backend: Literal["serial", "process", "ray"] = "process"
    """Where episodes are played. All give the same results."""
    workers: int = 0
    """Episodes played at the same time; 0 for one per core."""
    timeout: float = 600.0
    """Seconds after which a worker that does not answer is replaced."""
    device: str = "cpu"
    """Where hosts train: cpu, cuda, mps."""
    data_dir: str = ""
    """Where data sets lie that are not part of this package; empty for the usual cache."""

    def check(self, family: str) -> None:
        """Find everything that could go wrong only later, in that family."""
        for name, value, least, most in (
            ("tasks", self.tasks, 1, 100_000),
            ("first", self.first, 0, 10**12),
            ("singles", self.singles, 0, 10_000),
            ("seeds", self.seeds, 1, len(EXAM_SEEDS)),
            ("pairs", self.pairs, 0, 1_000),
        ):
            if not least <= value <= most:
                raise InvalidSurvey(f"{name} is {value}; give a number from {least} to {most:,}")
        Compute(device=self.device)
        if not is_family(f"{FAMILY}{family}"):
            raise InvalidSurvey(
                f"'{family}' is a task; give a family, such as small, or a file that ends with .parquet"
            )
        find_task(self.task_names(family)[0])

    def task_names(self, family: str) -> list[str]:
        return [f"{FAMILY}{family}/{number}" for number in range(self.first, self.first + self.tasks)]

    def seed_range(self) -> range:
        return EXAM_SEEDS[: self.seeds]

    def game(self) -> Game:
        """The rules of all episodes."""
        return Game(reward="solo", compute=Compute(device=self.device), data_dir=self.data_dir or None, record=False)
