"""`esper play`."""

from pathlib import Path

import tyro

from esper.cli.console import DONE, out
from esper.environment import DEFAULT_TASK
from esper.runs import narrate_episode


def play(argv: list[str]) -> int:
    """Play one episode."""

    def play(
        policy: str = "heuristic",
        task: str = DEFAULT_TASK,
        seed: int = 0,
        reward: str = "twin",
        data_dir: str = "",
        picture: Path | None = None,
    ) -> None:
        """Play one episode with any policy, told epoch by epoch.

        Args:
            policy: none, random, heuristic, schedule:FILE, a shipped controller such as tamiyo-small, the directory of
                a run, or a checkpoint file; sampled:CONTROLLER draws its actions.
            task: Name of a task, or a .toml file.
            seed: Of the episode: first weights, data order, and everything that is drawn.
            reward: Reward mode.
            data_dir: Where data sets lie that are not part of this package.
            picture: Where to draw the episode, as a PNG.
        """
        narrate_episode(policy, task, seed, reward, data_dir or None, out, picture)

    tyro.cli(play, args=argv, prog="esper play")
    return DONE
