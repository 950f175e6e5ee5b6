"""`esper train` and `esper resume`."""

import argparse
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from esper.cli.console import DONE, HALTED, INTERRUPTED, err, out
from esper.controller import NetworkConfig
from esper.environment import stem_of
from esper.rl import PPOConfig
from esper.runs import (
    Panel,
    Quiet,
    RoundLines,
    Run,
    RunDirectory,
    RunState,
    TrainConfig,
    check_first_weights,
    comparison_table,
    draw_run,
    find_preset,
    load_config,
)
from esper.telemetry import AnomalyConfig, Level, TelemetryConfig

EXIT_CODES = {RunState.FINISHED: DONE, RunState.INTERRUPTED: INTERRUPTED, RunState.HALTED: HALTED}


@dataclass(frozen=True)
class TrainArguments:
    """Train a controller; the run's directory keeps everything, also after Ctrl-C or a crash."""

    settings: Annotated[TrainConfig, tyro.conf.arg(name="")]
    preset: str = "default"
    """Where settings start from: quick (a few minutes on 2 cores), default (about an hour), thorough."""
    config: Path | None = None
    """A config.toml whose settings replace those of the preset; flags replace both."""
    out: Path | None = None
    """Directory of the run, new or empty; by default below runs/."""
    quiet: bool = False
    """Say nothing unless something goes wrong."""


@dataclass(frozen=True)
class FirstSettings(TrainConfig):
    """Those that people reach for first."""

    moods: Annotated[float, tyro.conf.Suppress] = 0.0
    bootstrap_at_horizon: Annotated[bool, tyro.conf.Suppress] = False
    evaluation_task: Annotated[tuple[str, ...], tyro.conf.Suppress] = ()
    ppo: Annotated[PPOConfig, tyro.conf.Suppress] = field(default_factory=PPOConfig)
    network: Annotated[NetworkConfig, tyro.conf.Suppress] = field(default_factory=NetworkConfig)
    anomalies: Annotated[AnomalyConfig, tyro.conf.Suppress] = field(default_factory=AnomalyConfig)
    telemetry: Annotated[TelemetryConfig, tyro.conf.Suppress] = field(default_factory=TelemetryConfig)


@dataclass(frozen=True)
class FirstArguments(TrainArguments):
    """Train a controller; the run's directory keeps everything, also after Ctrl-C or a crash.

    Rarer settings, as flags or as tables of a config file, are listed by --help-all: ppo.*, network.*, anomalies.*,
    telemetry.level, telemetry.sinks and others.
    """

    settings: Annotated[FirstSettings, tyro.conf.arg(name="")]


def train(argv: list[str]) -> int:
    """Train a new run."""
    given = _arguments(argv)
    settings = given.settings
    settings.check()
    check_first_weights(settings)
    name = f"{stem_of(settings.task[0])}-{time.strftime('%Y%m%d-%H%M%S')}"
    directory = RunDirectory.create(given.out or Path("runs") / name, settings)
    return _finish(directory, settings, given.quiet, goes_on=False)


def _arguments(argv: list[str]) -> TrainArguments:
    words = (tyro.conf.EnumChoicesFromValues,)
    if "--help" in argv or "-h" in argv:
        tyro.cli(FirstArguments, args=argv, default=FirstArguments(FirstSettings()), prog="esper train", config=words)
    argv = ["--help" if word == "--help-all" else word for word in argv]
    default = TrainArguments(_base_settings(argv))
    return tyro.cli(TrainArguments, args=argv, default=default, prog="esper train", config=words)


def _base_settings(argv: list[str]) -> TrainConfig:
    """What the flags change: the preset, with the settings of a config file in place of its own."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--preset", default="default")
    parser.add_argument("--config", type=Path)
    known, _ = parser.parse_known_args(argv)
    preset = find_preset(known.preset)
    return preset if known.config is None else load_config(known.config, preset)


def resume(argv: list[str]) -> int:
    """Go on with a run."""

    def resume(run: tyro.conf.Positional[Path], quiet: bool = False) -> tuple[Path, bool]:
        """Go on with a run from its newest checkpoint; the end is the same as without the interruption.

        Args:
            run: Directory of the run.
            quiet: Say nothing unless something goes wrong.
        """
        return run, quiet

    path, quiet = tyro.cli(resume, args=argv, prog="esper resume")
    directory = RunDirectory.open(path)
    config = directory.config()
    config.check()
    if directory.state() is RunState.FINISHED:
        out.print(f"{path} is finished: all {config.rounds} rounds are done. 'esper show {path}' shows it.")
        return DONE
    return _finish(directory, config, quiet, goes_on=True)


def _finish(directory: RunDirectory, config: TrainConfig, quiet: bool, goes_on: bool) -> int:
    """Train to the end and say how it went and what to do next."""
    progress = Quiet(err) if quiet else Panel(out) if out.is_terminal else RoundLines(out)
    run = Run(directory, config, progress)
    try:
        state = run.resume() if goes_on else run.start()
    finally:
        if isinstance(progress, Panel):
            progress.close()
    path = directory.path
    if state is RunState.FINISHED and not quiet:
        if run.compared:
            out.print(comparison_table(run.compared))
        picture = path / "summary.png"
        if config.telemetry.level is not Level.OFF and draw_run(directory.events_file, picture):
            out.print(f"picture: {picture}")
        out.print(f"done: {path}\nnext: esper play --policy {path} --task {config.task[0]}")
    elif state is RunState.INTERRUPTED:
        err.print(f"interrupted after {run.counters.round} rounds; go on with: esper resume {path}")
    elif state is RunState.HALTED:
        status = directory.status()
        err.print(f"esper: halted: {status.reason if status else ''}")
    return EXIT_CODES[state]
