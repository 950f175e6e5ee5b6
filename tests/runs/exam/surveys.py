"""Surveys that were never made: three structures beside the host alone, by what they gain."""

import numpy as np

from esper.environment import FIELDS, find_task
from esper.runs.survey import Course, SurveyRow, SurveyTable

STRUCTURES = ("layer0:mlp", "layer0:norm", "layer1:mlp", "layer0:norm+layer1:mlp")


def made_table(qualities, seeds=(0, 1)):
    """A survey of tasks by the qualities of the host alone and of `STRUCTURES`, evaluation and test, on every seed."""
    rows = [
        SurveyRow(task, seed, name, find_task(task).rent, *pair[place], 100, 200 if name else 100)
        for task, structures in qualities.items()
        for name, pair in zip(("", *STRUCTURES), structures, strict=False)
        for place, seed in enumerate(seeds)
    ]
    return SurveyTable(FIELDS, tuple(rows), tuple(_course(task, seed) for task in qualities for seed in seeds))


def _course(task, seed):
    traits = dict(find_task(task).traits)
    shapes = {
        "host": (1, len(FIELDS.host)),
        "slot_features": (1, 2, len(FIELDS.slots)),
        "offers": (1, 2, 2, len(FIELDS.blueprints)),
        "qualities": (1,),
    }
    arrays = {name: np.zeros(shape) for name, shape in shapes.items()}
    return Course(task, seed, ("layer0", "layer1"), ("mlp", "norm"), traits, **arrays)
