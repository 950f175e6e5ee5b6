"""Controllers that learn from recordings, without playing; what they give is a checkpoint like any other."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import torch

from esper.checked import require_ranges
from esper.contracts import EsperError
from esper.controller import ControllerNetwork, NetworkConfig
from esper.environment import derive
from esper.rl import (
    IQL,
    DecisionJudge,
    Imitation,
    ImitationConfig,
    ImitationPass,
    ImportanceEstimate,
    IQLConfig,
    IQLStep,
    Learner,
    Likeness,
    Moments,
    Network,
    importance_estimate,
    likeness,
    save_checkpoint,
)
from esper.runs.config import TrainConfig
from esper.runs.directory import Unwritable
from esper.runs.recordings import Recording, RecordingSchema

Drawn = TypeVar("Drawn")


class InvalidOfflineFit(EsperError):
    """Settings with which nothing can be learned from recordings."""


@dataclass(frozen=True)
class OfflineConfig:
    """What is learned from, and what learns."""

    policies: tuple[str, ...] = ()
    """Learn from episodes of these alone; by default of all that were recorded."""
    tasks: tuple[str, ...] = ()
    """Learn from episodes on these alone; by default on all."""
    held_out: float = 0.1
    """Share of the worlds, each a task and a seed, that is not learned from."""
    seed: int = 0
    """Of first weights, the split and the order of episodes."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    """How large the controller is."""

    def __post_init__(self) -> None:
        require_ranges(self, RANGES, InvalidOfflineFit)


RANGES = {"held_out": (0.001, 0.9), "seed": (0, 2**31 - 1)}


@dataclass(frozen=True)
class Fitted:
    """What came of learning from a recording."""

    learner: Learner
    """With the weights, ready to go on by PPO."""
    method: str
    settings: ImitationConfig | IQLConfig
    likeness: Likeness
    """With the decisions of held-out episodes."""
    estimate: ImportanceEstimate
    """Of the return in drawn play, from held-out episodes: a hint, never a result."""

    def save(self, path: Path) -> None:
        """As a checkpoint: the old file or the new one."""
        try:
            save_checkpoint(path, self.learner, {"learned_by": self.method, "settings": asdict(self.settings)})
        except OSError as error:
            raise Unwritable.because(path, error, "; give another --out") from error


class Offline:
    """A recording that is open and split, and the controllers that learn from it."""

    def __init__(self, paths: Sequence[Path], config: OfflineConfig) -> None:
        self.config = config
        recording = Recording.open(*paths).only(config.policies, config.tasks)
        self.schema: RecordingSchema = recording.schema
        self.training, self.held_out = recording.split(config.held_out, config.seed)

    def imitate(self, settings: ImitationConfig, watch: Callable[[ImitationPass], object]) -> Fitted:
        """A controller that decides as the recorded policies do."""
        settings = replace(settings, seed=self.config.seed)
        network = self._newborn("controller", self._network)
        found = Imitation(network, settings).learn(self.training, self.held_out, watch)
        return self._fitted(network, "imitation", settings, found, Moments())

    def implicit_q(self, settings: IQLConfig, watch: Callable[[IQLStep], object]) -> Fitted:
        """A controller that makes the best of what the recorded policies did."""
        settings = replace(settings, seed=self.config.seed, discount=self.schema.discount)
        network = self._newborn("controller", self._network)
        judges = self._newborn("first judge", self._judge), self._newborn("second judge", self._judge)
        learner = IQL(network, judges, settings)
        learner.learn(self.training, watch)
        return self._fitted(network, "iql", settings, likeness(network, self.held_out), learner.moments)

    def _newborn(self, name: str, make: Callable[[], Drawn]) -> Drawn:
        """With first weights of its own."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(derive(self.config.seed, name))
            return make()

    def _network(self) -> ControllerNetwork:
        return ControllerNetwork(self.schema.fields, self.config.network)

    def _judge(self) -> DecisionJudge:
        return DecisionJudge(self._network())

    def _fitted(
        self, network: Network, method: str, settings: ImitationConfig | IQLConfig, alike: Likeness, moments: Moments
    ) -> Fitted:
        ppo = replace(TrainConfig().ppo, discount=self.schema.discount)
        learner = Learner(network, ppo)
        learner.moments = moments
        estimate = importance_estimate(network, self.held_out, ppo.exploration)
        return Fitted(learner, method, settings, alike, estimate)


def require_writable(path: Path) -> None:
    """Find out before hours of learning whether the result can be written."""
    if path.is_dir():
        raise Unwritable(f"{path} is a directory; give a file with --out")
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.touch()
        part.unlink()
    except OSError as error:
        raise Unwritable.because(path, error, "; give another --out") from None
