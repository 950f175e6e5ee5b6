"""`esper play`."""

from pathlib import Path

import tyro

from esper.cli.console import DONE, out
from esper.environment import DEFAULT_TASK
from esper.runs import Game, narrate_episode


def play(argv: list[str]) -> int:
    """Play one episode."""

    def play(
        policy: str = "heuristic",
        task: str = DEFAULT_TASK,
        seed: int = 0,
        reward: str = "twin",
        rent: float | None = None,
        data_dir: str = "",
        picture: Path | None = None,
    ) -> None:
        """Play one episode with any policy, told epoch by epoch.

        Args:
            policy: none, random, heuristic, schedule:FILE, a shipped controller such as tamiyo-small, the directory of
                a run, or a checkpoint file; sampled:CONTROLLER draws its actions.
            task: Name of a task or a .toml file; of a family such as family:small, its task of that seed.
            seed: Of the episode: first weights, data order, and everything that is drawn.
            reward: Reward mode.
            rent: Quality that growing by a factor e must bring to pay; by default the task's own.
            data_dir: Where data sets lie that are not part of this package.
            picture: Where to draw the episode, as a PNG.
        """
        game = Game(reward=reward, rent=rent, data_dir=data_dir or None)
        narrate_episode(policy, task, seed, game, out, picture)

    tyro.cli(play, args=argv, prog="esper play")
    return DONE
