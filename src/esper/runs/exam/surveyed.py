"""Surveys that an exam is compared with: of the same tasks, on the same seeds, at the same rents."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from esper.contracts import EsperError
from esper.environment import FAMILY, find_task
from esper.runs.survey import TaskSurvey, read_survey


class UnfitSurvey(EsperError):
    """A survey of other tasks or seeds than those of the exam."""


def surveyed(files: Sequence[str], rents: Mapping[str, float], seeds: range) -> dict[str, TaskSurvey]:
    """What the files say about every task of `rents`, at those rents."""
    if len(seeds) < 2:
        raise UnfitSurvey("with a survey, who chooses on one seed is scored on another; give --seeds 2 or more")
    known = {task.task: task for file in files for task in read_survey(Path(file)).tasks}
    for name in rents:
        if name not in known:
            raise UnfitSurvey(
                f"no --survey has the task '{name}'; give that of its family, with as many tasks as the exam has, or "
                f"make it: esper survey {name.removeprefix(FAMILY).partition('/')[0]} --tasks N --seeds {len(seeds)}"
            )
        _check(known[name], seeds)
    return {name: replace(known[name], rent=rent) for name, rent in rents.items()}


def _check(known: TaskSurvey, seeds: range) -> None:
    task = find_task(known.task)
    if known.seeds != tuple(seeds):
        raise UnfitSurvey(
            f"--survey has '{known.task}' on the seeds {_listed(known.seeds)}, and the exam is on {_listed(seeds)}; "
            f"give --seeds {len(known.seeds)} --first-seed {known.seeds[0]}, or make a survey on more seeds"
        )
    if known.rent != task.rent or any(course.traits != task.traits for course in known.courses):
        raise UnfitSurvey(
            f"--survey has another task of the name '{known.task}', because it was made by another esper; make it anew"
        )


def _listed(seeds: Sequence[int]) -> str:
    return f"{seeds[0]} to {seeds[-1]}"
