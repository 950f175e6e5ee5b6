"""The configuration of a run: one frozen class that is the flags of `esper train` and the run's `config.toml`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import tomli_w

from esper.checked import BadValue, checked, read_toml, require_ranges
from esper.contracts import ACCURACY, EsperError, Head, Metric, nearest
from esper.controller import NetworkConfig
from esper.environment import DEFAULT_TASK, Compute, Precision, is_family, task_in_episode
from esper.rewards import RewardConfig, find_mode
from esper.rl import PPOConfig, RLError
from esper.runs.backends import usable_cores
from esper.runs.player import Game
from esper.telemetry import AnomalyConfig, Expectations, Level, TelemetryConfig, check_sinks

LEAST_EPISODES = 16
"""Where the episodes of a round follow the workers: with fewer, updates are mostly noise."""


class InvalidConfig(EsperError):
    """A setting that is unknown, of the wrong type or out of range."""


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides how a run goes."""

    task: tuple[str, ...] = (DEFAULT_TASK,)
    """What to grow: task names, families (family:small) or .toml files. Several share the episodes of every round."""
    rounds: int = 60
    """Updates of the controller."""
    episodes: int = 16
    """Episodes per round; 0 for one per worker, at least 16, decided once and kept in config.toml."""
    repeats: int = 1
    """Episodes of a round in each world, a task and a seed; each of several is judged by comparison with the others."""
    init: str = ""
    """A checkpoint whose weights to begin with; empty for newborn ones."""
    seed: int = 0
    """Of the whole run: first weights, episodes, and everything that is drawn."""
    reward: str = "frugal"
    """Reward mode: shaped, simplified, sparse, minimal, loss, twin, solo or frugal."""
    rent: float | None = None
    """Quality that growing by a factor e must bring to pay; by default each task's own."""
    backend: Literal["serial", "process", "ray"] = "process"
    """Where episodes are played. All give the same results."""
    workers: int = 0
    """Episodes played at the same time; 0 for one per core."""
    ray_address: str = ""
    """Of a running ray cluster; empty starts ray on this machine."""
    gpus_per_worker: float = 0.0
    """Of the ray workers on a GPU: 0 for one each, a fraction to share one."""
    timeout: float = 600.0
    """Seconds after which a worker that does not answer is replaced."""
    device: str = "cpu"
    """Where hosts train: cpu, cuda, mps. The controller itself runs on the CPU."""
    precision: Precision = "float32"
    """Of the hosts' training passes: float32 or bfloat16; weights and evaluation are always float32."""
    compile: bool = False
    """Compile the hosts' forward pass; worth it for large hosts only."""
    data_dir: str = ""
    """Where data sets lie that are not part of this package; empty for the usual cache."""
    evaluate_every: int = 5
    """Rounds between evaluations with greedy actions on fixed seeds; the best checkpoint is chosen on them."""
    evaluation_episodes: int = 8
    """Per evaluation and task."""
    evaluation_task: tuple[str, ...] = ()
    """What evaluations play; by default what is trained on."""
    compare: int = 0
    """Held-out seeds on which the finished controller is compared with no growth, heuristic and random; 0 for none."""
    keep: int = 3
    """How many of the latest checkpoints are kept, beside the best one."""
    trajectories: bool = False
    """Keep all episodes whole in recording/, for learners that do not play; some 3 kB each."""
    profile: bool = False
    """Profile an update and an episode of an early round; what takes the time is then in profile/."""
    bootstrap_at_horizon: bool = False
    """Expect rewards beyond the horizon. Right only for rewards that do not settle everything at the end."""
    moods: float = 0.0
    """Deviation of what is added to the logits of ops for a whole training episode; 0 draws every epoch alike."""
    ppo: PPOConfig = field(
        default_factory=lambda: PPOConfig(
            discount=1.0,
            smoothing=0.95,
            epochs=5,
            minibatches=8,
            reuse=8,
            learning_rate=1e-3,
            final_learning_rate=3e-4,
            entropy_weight=0.01,
            final_entropy_weight=0.002,
            target_kl=0.08,
            max_gradient_norm=0.5,
            exploration=0.05,
        )
    )
    """How the controller learns."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    """How large the controller is."""
    anomalies: AnomalyConfig = field(default_factory=AnomalyConfig)
    """When the run says that something looks wrong."""
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)
    """What the run tells, and to whom."""

    def __post_init__(self) -> None:
        require_ranges(self, RANGES, InvalidConfig)
        if not self.task:
            raise InvalidConfig("task names nothing; give at least one task, 'esper tasks' lists them")
        if self.episodes % self.repeats:
            raise InvalidConfig(
                f"episodes = {self.episodes} cannot be repeats = {self.repeats} of each task; give a multiple of it"
            )
        find_mode(self.reward)

    def settled(self) -> "TrainConfig":
        """With a number of episodes, so that the run is the same wherever it is gone on with."""
        if self.episodes:
            return self
        if self.backend == "ray" and not self.workers:
            raise InvalidConfig("episodes = 0 follows the workers; say with workers how many ray shall have")
        workers = 1 if self.backend == "serial" else self.workers or usable_cores()
        return replace(self, episodes=max(LEAST_EPISODES, workers))

    def check(self) -> None:
        """Find everything that could go wrong only later: tasks, device, data, heads, sinks. Loads the data."""
        self.ppo.require_heads([head.value for head in Head])
        check_sinks(self.telemetry.sinks)
        self.compute()
        for name in dict.fromkeys((*self.task, *self.evaluation_task)):
            task = task_in_episode(name, self.seed)
            RewardConfig.at_rent(task.rent if self.rent is None else self.rent, task.classes, self.ppo.discount)
            task.load(Path(self.data_dir) if self.data_dir else None)

    def metric(self) -> Metric | None:
        """What all its networks are judged by; None if tasks differ in that."""
        found = {self._metric(name) for name in (*self.task, *self.evaluation_task)}
        return found.pop() if len(found) == 1 else None

    def _metric(self, name: str) -> Metric | None:
        """Of a family that is not judged by accuracies, tasks differ in what guessing loses."""
        task = task_in_episode(name, self.seed)
        metric = task.metric_on(task.load(Path(self.data_dir) if self.data_dir else None).evaluation)
        return None if is_family(name) and metric != ACCURACY else metric

    def compute(self) -> Compute:
        """Where and how hosts train."""
        return Compute(self.device, self.compile, self.precision)

    def game(self) -> Game:
        """The rules that the run's episodes have in common."""
        return Game(
            reward=self.reward,
            discount=self.ppo.discount,
            rent=self.rent,
            network=self.network,
            exploration=self.ppo.exploration,
            moods=self.moods,
            bootstrap_at_horizon=self.bootstrap_at_horizon,
            compute=self.compute(),
            data_dir=self.data_dir or None,
            record=self.telemetry.level not in (Level.OFF, Level.BRIEF),
            trajectories=self.trajectories,
        )

    def expectations(self) -> Expectations:
        """What the anomaly detector must know of the other settings."""
        ppo = self.ppo
        return Expectations(self.rounds, ppo.exploration, ppo.max_gradient_norm, ppo.target_kl)

    def to_toml(self) -> str:
        """All settings, also those left at their defaults; only those that are None are left out."""
        return tomli_w.dumps(_plain(asdict(self)))


RANGES: dict[str, tuple[float, float]] = {
    "rounds": (1, 1_000_000),
    "episodes": (0, 10_000),
    "repeats": (1, 1_000),
    "seed": (0, 2**31 - 1),
    "rent": (0.0, 1.0),
    "moods": (0.0, 10.0),
    "workers": (0, 10_000),
    "gpus_per_worker": (0.0, 1.0),
    "timeout": (1.0, 1e6),
    "evaluate_every": (1, 1_000_000),
    "evaluation_episodes": (1, 10_000),
    "compare": (0, 10_000),
    "keep": (1, 10_000),
}

REMOVED = {"persistence": "ops are drawn anew in every epoch"}
"""Settings of older files that are gone, with how it is without them."""

PRESETS: dict[str, TrainConfig] = {
    "quick": TrainConfig(rounds=8, episodes=12, evaluate_every=4, evaluation_episodes=4, compare=4),
    "default": TrainConfig(),
    "thorough": TrainConfig(rounds=300, episodes=32, evaluate_every=10, evaluation_episodes=24, compare=24),
}
"""Configurations by name: a few minutes, about an hour and many hours on two cores."""


def find_preset(name: str) -> TrainConfig:
    """The preset of that name."""
    if name not in PRESETS:
        raise InvalidConfig(f"no preset '{name}'; {nearest(name, PRESETS)}")
    return PRESETS[name]


def load_config(path: Path, base: TrainConfig | None = None) -> TrainConfig:
    """Read a `config.toml`; settings that it leaves out are those of `base`, or the defaults.

    Unknown settings, wrong types and values out of range are refused.
    """
    try:
        table = read_toml(path)
        _refuse_removed(table)
        return checked(TrainConfig, table, base or TrainConfig())
    except BadValue as error:
        raise InvalidConfig(f"{path}: {error}") from None
    except RLError as error:
        raise InvalidConfig(f"{path}: ppo.{error}") from None


def _refuse_removed(table: Mapping[str, Any]) -> None:
    for name in REMOVED.keys() & table:
        raise BadValue(
            f"{name} = {table[name]} is of an older version and cannot be set any more, since {REMOVED[name]}; "
            "delete the line to go on without it, or use the version that wrote it"
        )


def _plain(value: Any) -> Any:
    """What TOML can hold."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items() if each is not None}
    return [_plain(each) for each in value] if isinstance(value, tuple | list) else value
