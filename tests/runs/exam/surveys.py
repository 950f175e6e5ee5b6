"""Surveys that were never made: four structures beside the host alone, by their qualities."""

from dataclasses import replace

import numpy as np

from esper.environment import FIELDS, find_task
from esper.runs.survey import HostCourse, SurveyRow, SurveyTable

STRUCTURES = ("layer0:mlp", "layer0:norm", "layer1:mlp", "layer0:norm+layer1:mlp")
HOST = [(0.5, 0.5), (0.5, 0.5)]
UNSURE = [
    HOST,
    [(0.6, 0.7), (0.4, 0.45)],
    [(0.55, 0.52), (0.7, 0.6)],
    [(0.3, 0.9), (0.45, 0.8)],
    [(0.58, 0.56), (0.9, 0.4)],
]
"""On seed 0 the first single seems best, on seed 1 the pair; neither is, on the other seed."""
SURE = [HOST, [(0.7, 0.7)] * 2, [(0.4, 0.4)] * 2, [(0.4, 0.4)] * 2, [(0.6, 0.6)] * 2]
"""The first single gains 0.2 on both seeds, the other two lose."""


def made_table(qualities, seeds=(0, 1)):
    """A survey of tasks by the qualities of the host alone and of `STRUCTURES`: evaluation and test on every seed."""
    rows = [
        SurveyRow(task, seed, name, find_task(task).rent, *pairs[place], 100, 200 if name else 100)
        for task, structures in qualities.items()
        for name, pairs in zip(("", *STRUCTURES), structures, strict=True)
        for place, seed in enumerate(seeds)
    ]
    return SurveyTable(FIELDS, tuple(rows), tuple(_course(task, seed) for task in qualities for seed in seeds))


def made_tasks(names, qualities, rent=0.0):
    """What such a survey says about tasks that are all alike, at a rent of its own."""
    return {task.task: replace(task, rent=rent) for task in made_table(dict.fromkeys(names, qualities)).tasks}


def _course(task, seed):
    traits = dict(find_task(task).traits)
    shapes = {
        "host": (1, len(FIELDS.host)),
        "slot_features": (1, 2, len(FIELDS.slots)),
        "offers": (1, 2, 2, len(FIELDS.blueprints)),
        "qualities": (1,),
    }
    arrays = {name: np.zeros(shape) for name, shape in shapes.items()}
    return HostCourse(task, seed, ("layer0", "layer1"), ("mlp", "norm"), traits, **arrays)
