"""A task that takes milliseconds, as a file that any process can read, and small runs of it."""

from dataclasses import replace
from io import StringIO
from pathlib import Path

from rich.console import Console

from esper.controller import NetworkConfig
from esper.runs import Quiet, Run, RunDirectory, RunState, TrainConfig

TINY = """
name = "tiny"
data = "spirals"
slots = ["layer0", "layer1"]
horizon = 6
batch_size = 256
learning_rate = 0.01
seed_learning_rate = 0.01

[host]
kind = "dense"
widths = [4, 4]
"""


def tiny_task(directory: Path, horizon: int = 6) -> str:
    """From 12 epochs on the heuristic keeps a seed now and then."""
    path = directory / "tiny.toml"
    path.write_text(TINY.replace("horizon = 6", f"horizon = {horizon}"))
    return str(path)


def small_config(directory: Path, **changes) -> TrainConfig:
    """Three rounds of three episodes, in this process, with the cheapest update that does all that updates do."""
    config = TrainConfig(
        task=(tiny_task(directory),),
        rounds=3,
        episodes=3,
        backend="serial",
        evaluate_every=2,
        evaluation_episodes=2,
        network=NetworkConfig(slot=8, trunk=16, memory=16),
    )
    return replace(config, **{"ppo": replace(config.ppo, epochs=2, minibatches=2, reuse=2), **changes})


def silent() -> Quiet:
    """Nobody listens."""
    return Quiet(Console(file=StringIO()))


def trained(path: Path, config: TrainConfig) -> tuple[RunDirectory, Run]:
    """A run that was trained to its end."""
    directory = RunDirectory.create(path, config)
    run = Run(directory, config, silent())
    assert run.start() is RunState.FINISHED
    return directory, run
