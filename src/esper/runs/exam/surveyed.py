"""Surveys that an exam is compared with: of the same tasks, on the same seeds, at the same rents."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from esper.contracts import EsperError
from esper.environment import FAMILY, find_task
from esper.runs.survey import TaskSurvey, read_survey


class UnfitSurvey(EsperError):
    """A survey of other tasks or seeds than those of the exam."""


def surveyed(files: Sequence[str], rents: Mapping[str, float], seeds: range) -> dict[str, TaskSurvey]:
    """What the files say about the tasks of `rents`, at those rents: about all tasks of a family, or none."""
    if len(seeds) < 2:
        raise UnfitSurvey("with a survey, who chooses on one seed is scored on another; give --seeds 2 or more")
    known: dict[str, TaskSurvey] = {}
    for file in files:
        known |= _read(file, _families(rents))
    wanted = [name for name in rents if _family(name) in _families(known)]
    for name in wanted:
        if name not in known:
            raise _too_short(name, [each for each in wanted if _family(each) == _family(name)], len(seeds))
        _check(known[name], seeds)
    return {name: replace(known[name], rent=rents[name]) for name in wanted}


def _read(file: str, families: Sequence[str]) -> dict[str, TaskSurvey]:
    """The survey of one of the families, by task."""
    found = {task.task: task for task in read_survey(Path(file)).tasks}
    if not set(families).intersection(_families(found)):
        raise UnfitSurvey(
            f"--survey {file} is of {_and(_families(found))}, and the exam is on {_and(families)}; "
            "give a survey of that, or leave it out"
        )
    return found


def _too_short(name: str, tasks: Sequence[str], seeds: int) -> UnfitSurvey:
    """Without the first one of the family's tasks that is missing."""
    return UnfitSurvey(
        f"--survey has no task '{name}'; give --tasks {tasks.index(name)}, or make a survey of more: "
        f"esper survey {_family(name).removeprefix(FAMILY)} --tasks {len(tasks)} --seeds {seeds}"
    )


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


def _family(task: str) -> str:
    return task.partition("/")[0]


def _families(tasks: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(map(_family, tasks)))


def _and(families: Sequence[str]) -> str:
    return " and ".join(families) or "nothing"
