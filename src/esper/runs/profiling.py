"""Where the time of an episode goes."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from esper.controller import Decision
from esper.environment import GrowEnv, task_in_episode
from esper.rl import Network
from esper.runs.episode_recorder import EpisodeRecorder
from esper.runs.player import Game, Job, Player
from esper.telemetry.profiler import profiled

EPOCHS = 2
"""That are recorded; a whole episode would be too much to look at."""


class Metronome(EpisodeRecorder):
    """A recorder that says when an epoch is over."""

    def __init__(self, tick: Callable[[], None]) -> None:
        super().__init__()
        self._tick = tick

    def narrate(self, env: GrowEnv, decision: Decision, forced: bool, reward: float, info: Mapping[str, Any]) -> None:
        super().narrate(env, decision, forced, reward, info)
        self._tick()


def profile_episode(directory: Path, game: Game, network: Network, job: Job) -> None:
    """Play a job once more in this process, and record two epochs in the middle of it. Nothing comes of the episode."""
    player = Player(game)
    player.load(network.state_dict())
    middle = task_in_episode(job.task, job.seed).horizon // 2
    with profiled(directory, "episode", game.compute.device, range(middle, middle + EPOCHS)) as recorder:
        player.play(job, Metronome(recorder.step))
