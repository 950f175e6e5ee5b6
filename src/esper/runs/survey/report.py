"""What a survey says, line by line: what there is to win, what constants get of it, and what features are worth."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from esper.contracts import ObservationFields
from esper.controller import GROUPS, INPUTS, GainNetworks, inputs_of
from esper.runs.survey.analysis import (
    Choose,
    ConstantChoice,
    Interval,
    best_by_host,
    best_by_rent,
    best_constant,
    gains_of,
    oracle,
    over_tasks,
    search_gain,
)
from esper.runs.survey.fitting import FitConfig, fit_gain_networks, shown_at
from esper.runs.survey.table import Array, SurveyTable, TaskSurvey

SEARCHES = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class ChoiceGain:
    """Who chose how, and what that gains in score over the host alone."""

    choice: str
    how: str
    gain: Interval


def findings_of(survey: SurveyTable, learned_from: SurveyTable | None = None) -> Iterator[ChoiceGain]:
    """What is to be had in the tasks of a survey.

    Constants are chosen, and regressions fitted, on `learned_from`; without it constants are chosen on the survey
    itself, which flatters them, and there are no regressions.
    """
    tasks = survey.tasks
    yield ChoiceGain("oracle", "the best of all that was trained", over_tasks(gains_of(tasks, oracle)))
    for count in SEARCHES:
        gains = [search_gain(task, count) for task in tasks]
        yield ChoiceGain(f"search {count}", f"the best of {count} random single seeds", over_tasks(gains))
    yield from _constants(tasks, (learned_from or survey).tasks)
    if learned_from is not None:
        yield from _regressions(survey, learned_from)


def _constants(tasks: Sequence[TaskSurvey], known: Sequence[TaskSurvey]) -> Iterator[ChoiceGain]:
    one, by_rent, by_host = best_constant(known), best_by_rent(known), best_by_host(known)
    choices: dict[str, ConstantChoice | Choose | None] = {"one": one, "by rent": by_rent, "by host": by_host}
    for name, choose in choices.items():
        if choose is not None:
            yield ChoiceGain(f"constant, {name}", str(choose), over_tasks(gains_of(tasks, choose)))


def _regressions(survey: SurveyTable, learned_from: SurveyTable) -> Iterator[ChoiceGain]:
    """With everything that is observed, and without each group of it."""
    for group in ("", *GROUPS):
        names = [name for name in INPUTS if name not in GROUPS.get(group, ())]
        networks = fit_gain_networks(learned_from.tasks, learned_from.fields, FitConfig(), names)
        gains = [ranked_gains(task, networks, survey.fields).mean() for task in survey.tasks]
        how = f"without {', '.join(name.partition('.')[2] for name in GROUPS[group])}" if group else "with everything"
        yield ChoiceGain(f"ranker without {group}" if group else "ranker", how, over_tasks(gains))


def ranked_gains(task: TaskSurvey, networks: GainNetworks, fields: ObservationFields) -> Array:
    """What the best by prediction gains on each seed, by what the host alone showed there after its first epoch."""
    gained = task.gains(task.test)
    structures = np.array(list(task.singles.values()))
    costs = task.growth_log.mean(axis=1)[structures]

    def gain(seed: int) -> float:
        course = task.courses[seed]
        predicted = networks.predict(inputs_of(shown_at(course, 0), networks.names, fields))
        at = [(course.slots.index(slot), course.blueprints.index(blueprint)) for slot, blueprint in task.singles]
        scores = np.array([predicted[place] for place in at]) - task.rent * costs
        best = int(np.argmax(scores))
        return float(gained[structures[best], seed]) if scores[best] > 0 else 0.0

    return np.array([gain(seed) for seed in range(len(task.seeds))])
