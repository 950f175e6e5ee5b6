"""Rounds of episodes, the backends that play them, the training loop and the run directory."""

from esper.runs.config import PRESETS, InvalidConfig, TrainConfig, find_preset, load_config
from esper.runs.directory import (
    NoDirectory,
    RunBusy,
    RunDirectory,
    RunExists,
    SystemRefused,
    Unwritable,
    find_runs,
    write_whole,
)
from esper.runs.narrator import narrate_episode
from esper.runs.player import Game, Job, Played, Player, Purpose
from esper.runs.policies import find_policy
from esper.runs.progress import Panel, Quiet, RoundLines, comparison_table
from esper.runs.run import Run, check_first_weights
from esper.runs.run_picture import draw_run
from esper.telemetry import NoRun, RunState
