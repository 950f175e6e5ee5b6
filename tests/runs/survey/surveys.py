"""A survey of the cheapest task of a family: four seeds in one slot, 13 epochs."""

import pytest

from esper.runs.survey import Survey, SurveyConfig
from tests.runs.exam.exams import Witness

FAMILY, NUMBER = "small-dev", 1
TASK = f"family:{FAMILY}/{NUMBER}"


def make(config, path, family=FAMILY):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SurveyConfig, "task_names", lambda self, family: [f"family:{family}/{NUMBER}"])
        return Survey(family, config, path, Witness()).make()
