"""What is recorded, and where it is played; found out to be possible before anything is played."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

import esper
from esper.checked import require_ranges
from esper.contracts import EsperError
from esper.controller import file_of
from esper.environment import DEFAULT_TASK, Compute, task_in_episode
from esper.rewards import RewardConfig, find_mode
from esper.runs.player import Game, Job, Purpose
from esper.runs.policies import find_policy
from esper.runs.recordings.schema import RecordingSchema
from esper.runs.seeds import TRAINING_SEEDS


class InvalidRecording(EsperError):
    """A recording that cannot be made as it was asked for."""


@dataclass(frozen=True)
class RecordConfig:
    """What is recorded, and where it is played."""

    task: tuple[str, ...] = (DEFAULT_TASK,)
    """Task names, .toml files, or families such as family:small, of which every episode plays another task."""
    policy: tuple[str, ...] = ("random",)
    """Whoever 'esper play' knows: none, random, heuristic, constant, a shipped controller, a run, a checkpoint;
    sampled:CONTROLLER draws its actions, and their probabilities are recorded."""
    episodes: int = 100
    """Of every policy on every task; more of them go on with what is there."""
    first: int = 0
    """How many seeds for training are left out before the first episode."""
    reward: str = "frugal"
    """Reward mode; learners learn from the rewards that are recorded."""
    discount: float = 1.0
    """That rewards are shaped for."""
    rent: float | None = None
    """Quality that growing by a factor e must bring to pay; by default each task's own."""
    backend: Literal["serial", "process", "ray"] = "process"
    """Where episodes are played. All give the same files, bit for bit."""
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
        require_ranges(self, RANGES, InvalidRecording)
        find_mode(self.reward)
        Compute(device=self.device)
        for what, names in (("task", self.task), ("policy", self.policy)):
            if not names or len(set(names)) < len(names):
                raise InvalidRecording(f"--{what} names {', '.join(names) or 'nothing'}; name at least one, each once")
        for name in self.task:
            task = task_in_episode(name, self.seeds()[0])
            RewardConfig.at_rent(task.rent if self.rent is None else self.rent, task.classes, self.discount)
            task.load(Path(self.data_dir) if self.data_dir else None)
        for name in self.policy:
            find_policy(name)

    def seeds(self) -> range:
        """No exam and no evaluation plays them."""
        return TRAINING_SEEDS[self.first : self.first + self.episodes]

    def jobs(self) -> list[Job]:
        """World by world, so that every file has something of all policies and tasks."""
        return [
            Job(task, seed, policy, Purpose.TRAIN)
            for seed in self.seeds()
            for task in self.task
            for policy in self.policy
        ]

    def game(self) -> Game:
        """The rules of all episodes."""
        return Game(
            reward=self.reward,
            discount=self.discount,
            rent=self.rent,
            compute=Compute(device=self.device),
            data_dir=self.data_dir or None,
            record=False,
            trajectories=True,
        )


RANGES: dict[str, tuple[float, float]] = {
    "episodes": (1, 10_000_000),
    "first": (0, 10**9),
    "discount": (0.0, 1.0),
    "rent": (0.0, 1.0),
    "workers": (0, 10_000),
    "timeout": (1.0, 1e6),
}


@dataclass(frozen=True)
class RecordingIdentity:
    """What decides the episodes of a recording beside tasks, policies and seeds: `recording.json` says it."""

    schema: RecordingSchema
    device: str
    esper: str
    torch: str
    files: dict[str, str]
    """SHA-256 of the file behind a policy or a task."""

    @classmethod
    def of(cls, config: RecordConfig) -> "RecordingIdentity":
        """As it is here and now."""
        files = {name: file_of(name) for name in config.policy}
        files |= {name: Path(name) for name in config.task if name.lower().endswith(".toml")}
        found = {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items() if file}
        versions = esper.__version__, str(torch.__version__)
        return cls(RecordingSchema.of(config.game()), config.device, *versions, found)

    def changes(self, now: "RecordingIdentity") -> str:
        """What keeps episodes of then and now apart, in words; empty if nothing does."""
        found = [f"is of other rules: {self.schema.differences(now.schema)}"] * (self.schema != now.schema)
        for name in ("device", "esper", "torch"):
            before, after = getattr(self, name), getattr(now, name)
            found += [f"was made with {name} {before}, not {after}"] * (before != after)
        found += [
            f"knows '{name}' with other contents"
            for name, contents in now.files.items()
            if self.files.get(name, contents) != contents
        ]
        return " and ".join(found)
