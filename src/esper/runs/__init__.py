"""Rounds of episodes, the backends that play them, the training loop and the run directory."""

from esper.runs.config import PRESETS, InvalidConfig, TrainConfig, find_preset, load_config
from esper.runs.directory import NoRun, RunBusy, RunDirectory, RunExists, State, Status, Unwritable, find_runs
from esper.runs.loop import Run
from esper.runs.narrator import narrate_episode
from esper.runs.picture import draw_run
from esper.runs.policies import UnknownPolicy, find_policy
from esper.runs.progress import Lines, Panel, Quiet, comparison_table
from esper.runs.rollout import Game, Job, Played, Player, Purpose

__all__ = [
    "PRESETS",
    "Game",
    "InvalidConfig",
    "Job",
    "Lines",
    "NoRun",
    "Panel",
    "Played",
    "Player",
    "Purpose",
    "Quiet",
    "Run",
    "RunBusy",
    "RunDirectory",
    "RunExists",
    "State",
    "Status",
    "TrainConfig",
    "UnknownPolicy",
    "Unwritable",
    "comparison_table",
    "draw_run",
    "find_policy",
    "find_preset",
    "find_runs",
    "load_config",
    "narrate_episode",
]
