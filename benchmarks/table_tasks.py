"""Tasks of a survey as tables: what the host alone showed epoch by epoch, and what every single seed gains.

What the survey kept is turned back into the snapshots that it was seen from, so that the real observer can show it
again. After the epochs that it kept, losses follow quality, and everything else stays as it was last.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from esper.contracts import ACCURACY_GRAIN, Gain, HostSnapshot, ObservationFields, SlotSnapshot, Snapshot, Topology
from esper.environment import Observation, Observer, World, find_task
from esper.environment.env import _observation_space
from esper.growth import Thresholds
from esper.runs.survey import HostCourse, TaskSurvey, read_survey, unit_of

Array = NDArray[np.float64]
Gains = tuple[Gain, ...]

LOSS_POWER = 0.7
"""By how much the logarithm of the loss falls when the logit of quality rises by 1; see `table_calibration`."""
CLEAR_OF_CERTAINTY = 0.002
"""Qualities are taken as at least so far from 0 and 1, where logits are infinite."""


def logit(quality: Any) -> Any:
    """Of a quality or an array of them."""
    inside = np.clip(quality, CLEAR_OF_CERTAINTY, 1.0 - CLEAR_OF_CERTAINTY)
    return np.log(inside / (1.0 - inside))


def moved(quality: float, by: float) -> float:
    """The quality whose logit is higher by so much."""
    inside = min(1.0 - CLEAR_OF_CERTAINTY, max(CLEAR_OF_CERTAINTY, quality))
    there = 1.0 / (1.0 + (1.0 - inside) / inside * math.exp(-by))
    return min(1.0, max(0.0, quality + there - inside))


def times(value: float | None, factor: float) -> float | None:
    """The product, if there is a value."""
    return None if value is None else value * factor


@dataclass(frozen=True)
class Worths:
    """What a task is made of: the quality of the host alone, and the logits that seeds add, (slots, blueprints)."""

    host: float
    gains: Array


@dataclass(frozen=True)
class TableTask:
    """One task on one seed of its survey, as far as episodes need it."""

    name: str
    rent: float
    unit: float
    """What counts as much as a quality of 1 on a task of naming classes; rents that are drawn are in it."""
    thresholds: Thresholds
    hosts: tuple[HostSnapshot, ...]
    """The host alone, from before the first epoch to the horizon."""
    offers: tuple[tuple[Gains, ...], ...]
    """First-order gains by epoch and slot."""
    slots: tuple[SlotSnapshot, ...]
    """Empty."""
    seen: Worths
    """By the evaluation split, over all seeds: what episodes are made of."""
    true: Worths
    """By evaluation and test split of the other seeds: what scores are made of."""

    @property
    def horizon(self) -> int:
        return self.thresholds.horizon

    @cached_property
    def observer(self) -> Observer:
        return Observer(self.slots, self.thresholds, self.unit * ACCURACY_GRAIN)

    @cached_property
    def spaces(self) -> tuple[spaces.MultiDiscrete, spaces.Space[Observation]]:
        """Of actions and of observations."""
        example = self.observer.observe(Snapshot(self.hosts[0], self.slots))
        return spaces.MultiDiscrete(list(self.observer.codec.sizes)), _observation_space(example)


def table_tasks(path: Path) -> list[TableTask]:
    """All tasks of a survey, on each of its seeds."""
    survey = read_survey(path)
    return [_table(task, seed, survey.fields) for task in survey.tasks for seed in range(len(task.seeds))]


def _table(task: TaskSurvey, seed: int, fields: ObservationFields) -> TableTask:
    course = task.courses[seed]
    others = [other for other in range(len(task.seeds)) if other != seed] or [seed]
    slots = _slots(course, fields)
    shown = [_gains(course, epoch, fields) for epoch in range(len(course.offers))]
    horizon, found = len(course.qualities), find_task(task.task)
    return TableTask(
        name=task.task,
        rent=task.rent,
        unit=unit_of(found),
        thresholds=World().thresholds_for(replace(found, horizon=horizon)),
        hosts=_hosts(course, fields),
        offers=(((),) * len(slots), *(shown[min(epoch, len(shown) - 1)] for epoch in range(horizon))),
        slots=slots,
        seen=_worths(task, task.evaluation, range(len(task.seeds))),
        true=_worths(task, (task.evaluation + task.test) / 2.0, others),
    )


def _worths(task: TaskSurvey, qualities: Array, seeds: Sequence[int]) -> Worths:
    """Of the seeds that were kept; where these survey seeds kept none, any that did."""
    course = task.courses[0]
    gains = np.zeros((len(course.slots), len(course.blueprints)))
    for (slot, blueprint), index in task.singles.items():
        kept = [seed for seed in range(len(task.seeds)) if task.growth_log[index, seed] > 0.0]
        used = [seed for seed in kept if seed in seeds] or kept
        if used:
            gained = logit(qualities[index, used].mean()) - logit(qualities[0, used].mean())
            gains[course.slots.index(slot), course.blueprints.index(blueprint)] = gained
    return Worths(float(qualities[0, seeds].mean()), gains)


def _number(value: float, scale: Callable[[float], float]) -> float | None:
    """A feature before it was scaled; None if it was not measured."""
    return None if math.isnan(value) else scale(float(value))


def _unsymlog(value: float) -> float:
    return math.copysign(math.expm1(abs(value)), value)


def _unlog(value: float) -> float:
    return float(10.0**value)


def _count(value: float) -> int:
    return round(_unlog(value))


def _hosts(course: HostCourse, fields: ObservationFields) -> tuple[HostSnapshot, ...]:
    """The host alone at every epoch. Before the first it is evaluated, but not yet trained."""
    shown = [dict(zip(fields.host, row, strict=True)) for row in course.host]
    first, horizon = shown[0], len(course.qualities)
    born = HostSnapshot(
        epoch=0,
        horizon=horizon,
        parameters=_count(first["parameters"]),
        total_parameters=_count(first["parameters"]),
        evaluation_loss=_number(first["evaluation_loss"] - first["loss_slope"], _unsymlog),
        evaluation_quality=float(first["quality"] - first["quality_slope"]),
        depth=_count(first["depth"]),
        outcomes=_count(first["outcomes"]),
        rows=_count(first["rows"]),
    )
    hosts = [born]
    for epoch, quality in enumerate(course.qualities.tolist(), start=1):
        last = shown[min(epoch, len(shown)) - 1]
        fall = math.exp(-LOSS_POWER * (logit(quality) - logit(last["quality"]))) if epoch > len(shown) else 1.0
        hosts.append(
            replace(
                born,
                epoch=epoch,
                train_loss=times(_number(last["train_loss"], _unsymlog), fall),
                evaluation_loss=times(_number(last["evaluation_loss"], _unsymlog), fall),
                evaluation_quality=quality,
                gradient_norm=_number(last["gradient_norm"], _unsymlog),
            )
        )
    return tuple(hosts)


def _slots(course: HostCourse, fields: ObservationFields) -> tuple[SlotSnapshot, ...]:
    """The slots when they are empty."""
    slots, offers = course.slot_features[0], course.offers[0]
    column = {name: slots[:, place] for place, name in enumerate(fields.slots)}
    fits = offers[..., fields.blueprints.index("fits")] == 1.0
    cost, kind = fields.blueprints.index("cost"), fields.blueprints.index("kind_repeat")
    host = _count(course.host[0][fields.host.index("parameters")])
    topologies = {topology: fields.blueprints.index(f"topology_{topology.value}") for topology in Topology}
    found = []
    for place, name in enumerate(course.slots):
        (topology,) = (each for each, at in topologies.items() if (offers[place, fits[place], at] == 1.0).any())
        reach = _number(column["reach"][place], _unlog)
        copied = offers[place, fits[place] & (offers[place, :, kind] == 1.0), cost]
        found.append(
            SlotSnapshot(
                slot=name,
                topology=topology,
                channels=_count(column["channels"][place]),
                position=round(column["position"][place] * max(1, len(course.slots) - 1)),
                blueprints=tuple(each for each, fit in zip(course.blueprints, fits[place], strict=True) if fit),
                resolution=_count(column["resolution"][place]),
                reach=None if reach is None else round(reach),
                reach_share=_number(column["reach_share"][place], float),
                front_parameters=round(host * math.expm1(copied.max(initial=0.0))),
            )
        )
    return tuple(found)


def _gains(course: HostCourse, epoch: int, fields: ObservationFields) -> tuple[Gains, ...]:
    """What newborns were found to gain after that epoch, slot by slot."""
    column = {name: course.offers[epoch, ..., place] for place, name in enumerate(fields.blueprints)}

    def gain(slot: int, blueprint: int) -> Gain:
        return Gain(
            course.blueprints[blueprint],
            _unlog(column["gain_norm"][slot, blueprint]),
            _unlog(column["gain_push"][slot, blueprint]),
            _number(column["gain_agreed"][slot, blueprint], _unlog),
            _number(column["gain_steadiness"][slot, blueprint], _unsymlog),
        )

    return tuple(
        tuple(gain(slot, each) for each in range(len(course.blueprints)) if not math.isnan(norms[each]))
        for slot, norms in enumerate(column["gain_norm"])
    )
