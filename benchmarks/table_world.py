"""A world of tables: episodes as `GrowEnv` plays them, filled from a survey instead of trained, thousands a minute.

    python benchmarks/table_world.py                 # speed, and what controls gain in it: a minute
    python benchmarks/table_world.py --live 20       # and the same tasks played live: 3 minutes more

    tasks = table_tasks(Path("surveys/small.parquet"))
    env = TableEnv(tasks, rents=(0.01, 0.3))         # spaces, observations and infos are those of `GrowEnv`
    observation, _ = env.reset(seed=7)               # task, rent and noise are those of episode 7, always
    observation, reward, _, over, info = env.step(choices)    # at the end info["score"] is exact, without noise

Slots live by the real lifecycle, gates, masks and observer. The host shows what the surveyed host alone showed; after
the epochs that the survey kept it repeats the last one, with quality and loss carried on. What a seed gains is what the
survey measured for it, in logits of quality, where gains add up: on the pairs that both surveys of `small` and
`small-dev` kept whole, sums of singles rank qualities with Spearman 0.96 and gains over the host with 0.87 and 0.94.
A seed that was refused on every seed of the survey gains nothing. A seed that is removed leaves the host as it was.

The numbers in capitals below were calibrated on live episodes: 24 tasks of `small`, two seeds each, planted after
epoch 1, a third, half and two thirds of the horizon.
"""

import argparse
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from scipy.stats import spearmanr
from table import write_csv

from esper.contracts import (
    WAIT,
    Action,
    Check,
    Choices,
    Gain,
    HostSnapshot,
    ObservationFields,
    Op,
    Operator,
    SlotSnapshot,
    Snapshot,
    Stage,
    Topology,
    Verdict,
)
from esper.controller import NoGrowth, Policy
from esper.environment import Observation, Observer, stream
from esper.environment.env import _observation_space
from esper.growth import Thresholds, find_blueprint, judge
from esper.growth.body import _NEXT
from esper.growth.lifecycle import SlotState
from esper.runs import Purpose
from esper.runs.player import Game, Job, Player
from esper.runs.policies import find_policy
from esper.runs.survey import Course, TaskSurvey, gains_of, oracle, over_tasks, read_survey

Array = NDArray[np.float64]
Gains = tuple[Gain, ...]

RISE = 0.2
"""Share of the horizon in which a seed comes to 63 % of what it will gain."""
LATENESS = 1.0
"""Power of the share of the horizon that is left at birth, by which a seed gains less than one of the first epoch."""
RELIANCE = 1.6
"""Logits by which a contribution exceeds the gain after a whole horizon, on average: a host comes to rely on a seed."""
QUALITY_NOISE = 0.0125
"""Deviation of quality from epoch to epoch."""
CONTRIBUTION_NOISE = 0.008
LUCK = (0.1, 0.4)
"""Deviation between seeds of the survey of what a seed gains, in logits: this, and this times its gain up to 1."""
LOSS_POWER = 0.7
"""By how much the logarithm of the loss falls when the logit of quality rises by 1."""
GRADIENT_SHARE = 0.43
"""A seed's gradient norm over that of the host."""
CLEAR_OF_CERTAINTY = 0.005
"""Qualities are taken as at least so far from 0 and 1, where logits are infinite."""


def logit(quality: Any) -> Any:
    """Of a quality or an array of them."""
    inside = np.clip(quality, CLEAR_OF_CERTAINTY, 1.0 - CLEAR_OF_CERTAINTY)
    return np.log(inside / (1.0 - inside))


def moved(quality: float, by: float) -> float:
    """The quality whose logit is higher by so much; the same if that is nothing."""
    return quality if by == 0.0 else 1.0 / (1.0 + math.exp(-(logit(quality) + by)))


def risen(start: int, epochs: int, horizon: int) -> float:
    """What a seed born in epoch `start` gains after `epochs`, as a share of its gain when born in epoch 1 and grown."""

    def rise(share: float) -> float:
        return 1.0 - math.exp(-share / RISE)

    left = 1.0 - (start - 1) / horizon
    return min(1.0, float(left**LATENESS) * rise(epochs / horizon) / rise(1.0 - 1.0 / horizon))


def delivered(slots: Sequence[SlotSnapshot], thresholds: Thresholds) -> list[int]:
    """The seeds that count at the horizon: fossils, and held ones that would become fossils if they were asked."""

    def passes(slot: SlotSnapshot) -> bool:
        return slot.stage is Stage.HOLDING and bool(judge(Action(Op.FOSSILIZE, slot.slot), slot, thresholds))

    return [place for place, slot in enumerate(slots) if slot.stage is Stage.FOSSILIZED or passes(slot)]


@dataclass(frozen=True)
class Worths:
    """What everything is worth on a task: the host's quality, and the logits that each seed adds, (slots, blueprints)."""

    host: float
    gains: Array


@dataclass(frozen=True)
class TableTask:
    """One task on one seed of its survey, as far as episodes need it."""

    name: str
    rent: float
    horizon: int
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

    @cached_property
    def thresholds(self) -> Thresholds:
        return Thresholds(horizon=self.horizon)

    @cached_property
    def observer(self) -> Observer:
        return Observer(self.slots, self.thresholds)

    @cached_property
    def spaces(self) -> tuple[spaces.MultiDiscrete, spaces.Space[Observation]]:
        """Of actions and of observations."""
        example = self.observer.observe(Snapshot(self.hosts[0], self.slots))
        return spaces.MultiDiscrete(list(self.observer.codec.sizes)), _observation_space(example)


class TableEnv(gymnasium.Env[Observation, Sequence[int] | NDArray[np.int64]]):
    """Episodes of the tasks, one drawn for each; `reset(seed=s)` is a pure function of s.

    `rents` are the lowest and the highest rent to draw from, log-uniformly; None for each task's own. `noise` scales
    luck and noise; at 0 every seed gains what was surveyed and is seen without error.

    Rewards are differences of quality less rent; in the last one only what is delivered counts. When an episode is over
    `info` has `score`, which is what was delivered over the host alone, in points and without noise, and `growth`.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  # gymnasium declares it so
    discount = 1.0

    def __init__(
        self, tasks: Sequence[TableTask], rents: tuple[float, float] | None = None, noise: float = 1.0
    ) -> None:
        self.tasks, self.rents, self.noise = tuple(tasks), rents, noise
        self._enter(self.tasks[0])

    def _enter(self, task: TableTask) -> None:
        self.task = task
        self.observer, self.codec = task.observer, task.observer.codec
        self.action_space, self.observation_space = task.spaces

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        episode_seed = seed if seed is not None else int(self.np_random.integers(2**31))
        self._draws = np.random.default_rng(episode_seed)
        task = self.tasks[int(self._draws.integers(len(self.tasks)))]
        rent = task.rent if self.rents is None else math.exp(self._draws.uniform(*map(math.log, self.rents)))
        self._enter(task)
        self.rent = rent
        size = task.seen.gains.shape
        spread = LUCK[0] + LUCK[1] * np.minimum(1.0, abs(task.seen.gains))
        self._gains = task.seen.gains + self.noise * spread * self._draws.standard_normal(size)
        self._reliance = RELIANCE * self._draws.standard_exponential(size) ** 2 / 2.0  # rarely much, often hardly any
        self._states = [SlotState()] * len(task.slots)
        self._born = [0] * len(task.slots)
        self._offers: list[Gains] = [()] * len(task.slots)
        self._epoch = 0
        self._host = replace(task.hosts[0], rent=rent)
        self.snapshot = self._look()
        self._potential = self._potential_of(float(self._host.evaluation_quality or 0.0), range(0))
        return self.observer.observe(self.snapshot), {"episode_seed": episode_seed}

    def step(self, action: Sequence[int] | NDArray[np.int64]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        if isinstance(action, Choices):
            self.codec.require(action.codec)
        indices = np.asarray(action)
        wanted = self.codec.decode(indices.tolist()) if self.action_space.contains(indices) else None
        verdict = self._execute(wanted or WAIT)
        self._train()
        refused = ("not in the action space",) if wanted is None else () if verdict else verdict.reasons
        over = self._epoch >= self.task.horizon
        terms = self._reward(over)
        info = {
            "executed": wanted if wanted is not None and verdict else WAIT,
            "refused": refused,
            "reward_terms": terms,
            "alerts": (),
            "quality": self._host.evaluation_quality,
            "loss": self._host.evaluation_loss,
            "panic": None,
        }
        if over:
            info |= self._result()
        return self.observer.observe(self.snapshot), sum(terms.values()), False, over, info

    @property
    def twin_quality(self) -> float:
        """Of the host alone in the present epoch."""
        return float(self.task.hosts[self._epoch].evaluation_quality or 0.0)

    # One epoch

    def _execute(self, action: Action) -> Verdict:
        if action.slot is None:
            return Verdict((Check("nothing to do", True),))
        place = self.codec.slots.index(action.slot)
        verdict = judge(action, self.snapshot.slots[place], self.task.thresholds)
        if verdict:
            state = _NEXT[action.op](self._states[place], action)
            if action.op is Op.GERMINATE:
                state = replace(state, quality_at_birth=self._host.evaluation_quality)
                self._born[place] = self._epoch
            self._states[place] = state
        return verdict

    def _train(self) -> None:
        """What an epoch of training, the evaluation after it and the tick bring about."""
        task, before = self.task, self._host
        self._epoch += 1
        alone, living = task.hosts[self._epoch], self._living()
        relied = self._blend(living)
        added = self._added(self._gains)
        quality = moved(self.twin_quality, added.sum())
        self._error = self.noise * QUALITY_NOISE * float(self._draws.standard_normal())
        for place, state in enumerate(self._states):
            if place in living:
                error = self.noise * CONTRIBUTION_NOISE * float(self._draws.standard_normal())
                contribution = quality - _fraction(moved(quality, -added[place] - relied[place]) + error)
                norm = _times(alone.gradient_norm, GRADIENT_SHARE)
                state = replace(state, contribution=contribution, gradient_norm=norm)
            self._offers[place] = () if place in living else task.offers[self._epoch][place]
            self._states[place] = state.ticked(task.thresholds)
        fall = math.exp(-LOSS_POWER * added.sum())
        self._host = replace(
            alone,
            rent=self.rent,
            evaluation_quality=_fraction(quality + self._error),
            evaluation_loss=_times(alone.evaluation_loss, fall),
            train_loss=_times(alone.train_loss, fall),
            previous_quality=before.evaluation_quality,
            previous_loss=before.evaluation_loss,
        )
        self.snapshot = self._look()

    def _living(self) -> list[int]:
        return [place for place, state in enumerate(self._states) if state.plan is not None]

    def _blend(self, living: Iterable[int]) -> Array:
        """Sets how much each seed brings now of what it gains when grown; returns the logits that are mere reliance."""
        self._strength = np.zeros_like(self._gains)
        relied = np.zeros(len(self._states))
        for place in living:
            state, epochs = self._states[place], self._epoch - self._born[place]
            assert state.plan is not None
            planted = place, self.codec.blueprints.index(state.plan.blueprint)
            self._strength[planted] = state.schedule.alpha * risen(self._born[place], epochs, self.task.horizon)
            relied[place] = state.schedule.alpha * epochs / self.task.horizon * self._reliance[planted]
        return relied

    def _added(self, gains: Array) -> Array:
        """The logits that each slot adds, if these are the gains of grown seeds."""
        added: Array = (self._strength * gains).sum(axis=1)
        return added

    # What is seen, and what it is worth

    def _look(self) -> Snapshot:
        slots = tuple(map(self._slot, range(len(self._states))))
        total = self._host.parameters + sum(slot.parameters for slot in slots)
        return Snapshot(replace(self._host, total_parameters=total), slots)

    def _slot(self, place: int) -> SlotSnapshot:
        empty, state, plan = self.task.slots[place], self._states[place], self._states[place].plan
        if plan is None:
            return replace(empty, stage=state.stage, age=state.age, gains=self._offers[place])
        born, quality = state.quality_at_birth, self._host.evaluation_quality
        gate = empty.channels + 1 if plan.style.operator is Operator.GATE else 0
        return replace(
            empty,
            stage=state.stage,
            age=state.age,
            blueprint=plan.blueprint,
            style=plan.style,
            tempo=plan.tempo,
            alpha=state.schedule.alpha,
            alpha_target=state.alpha_target,
            alpha_mode=state.schedule.mode,
            parameters=find_blueprint(plan.blueprint, empty.topology).parameters(empty.channels) + gate,
            gradient_norm=state.gradient_norm,
            contribution=state.contribution,
            improvement=None if born is None or quality is None else quality - born,
        )

    def _growth_log(self, counted: Iterable[int]) -> float:
        return math.log1p(sum(self.snapshot.slots[place].parameters for place in counted) / self._host.parameters)

    def _potential_of(self, quality: float, counted: Iterable[int]) -> dict[str, float]:
        return {"quality": quality, "rent": -self.rent * self._growth_log(counted)}

    def _reward(self, over: bool) -> dict[str, float]:
        """The terms of `solo`: what is there is worth, in the end what is delivered, less that of one epoch before."""
        quality, counted = float(self._host.evaluation_quality or 0.0), self._living()
        if over:
            counted = delivered(self.snapshot.slots, self.task.thresholds)
            quality = _fraction(moved(self.twin_quality, self._added(self._gains)[counted].sum()) + self._error)
        before, self._potential = self._potential, self._potential_of(quality, counted)
        return {name: self._potential[name] - before[name] for name in before}

    def _result(self) -> dict[str, float]:
        """What was delivered: its score over the host alone in points, and its growth."""
        counted, true = delivered(self.snapshot.slots, self.task.thresholds), self.task.true
        gain = moved(true.host, self._added(true.gains)[counted].sum()) - true.host
        growth_log = self._growth_log(counted)
        return {"score": 100.0 * (gain - self.rent * growth_log), "growth": math.exp(growth_log)}


def _fraction(quality: float) -> float:
    return min(1.0, max(0.0, quality))


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


# From a survey


def table_tasks(path: Path) -> list[TableTask]:
    """All tasks of a survey, on each of its seeds."""
    survey = read_survey(path)
    return [_table(task, seed, survey.fields) for task in survey.tasks for seed in range(len(task.seeds))]


def _table(task: TaskSurvey, seed: int, fields: ObservationFields) -> TableTask:
    course = task.courses[seed]
    others = [other for other in range(len(task.seeds)) if other != seed] or [seed]
    slots = _slots(course, fields)
    shown = [_gains(course, epoch, fields) for epoch in range(len(course.offers))]
    horizon = len(course.qualities)
    return TableTask(
        name=task.task,
        rent=task.rent,
        horizon=horizon,
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
    return round(10.0**value)


def _hosts(course: Course, fields: ObservationFields) -> tuple[HostSnapshot, ...]:
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
                train_loss=_times(_number(last["train_loss"], _unsymlog), fall),
                evaluation_loss=_times(_number(last["evaluation_loss"], _unsymlog), fall),
                evaluation_quality=quality,
                gradient_norm=_number(last["gradient_norm"], _unsymlog),
            )
        )
    return tuple(hosts)


def _slots(course: Course, fields: ObservationFields) -> tuple[SlotSnapshot, ...]:
    """The slots when they are empty."""
    slots, offers = course.slot_features[0], course.offers[0]
    column = {name: slots[:, place] for place, name in enumerate(fields.slots)}
    fits = offers[..., fields.blueprints.index("fits")] == 1.0
    topologies = {topology: fields.blueprints.index(f"topology_{topology.value}") for topology in Topology}
    found = []
    for place, name in enumerate(course.slots):
        (topology,) = (each for each, at in topologies.items() if (offers[place, fits[place], at] == 1.0).any())
        reach = _number(column["reach"][place], _unlog)
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
            )
        )
    return tuple(found)


def _gains(course: Course, epoch: int, fields: ObservationFields) -> tuple[Gains, ...]:
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


# The check


@dataclass(frozen=True)
class Episode:
    """What came of one."""

    score: float
    total: float
    growth: float


def play(env: TableEnv, policy: Policy, seed: int) -> Episode:
    """The whole episode of that seed."""
    observation, _ = env.reset(seed=seed)
    state, generator = policy.start(env.codec), stream(seed, "actions")
    total, over, info = 0.0, False, {}
    while not over:
        decision, state = policy.act(observation, state, generator)
        observation, reward, _, over, info = env.step(decision.choices)
        total += reward
    return Episode(info["score"], total, info["growth"])


POLICIES = ("none", "constant", "ranker", "heuristic")
EPISODES = 5
"""Of every task and seed of the survey, by each policy."""


def table_scores(tasks: Sequence[TableTask], policy: str) -> list[float]:
    """The mean score of each task."""
    player = find_policy(policy)
    return [fmean(play(TableEnv([task]), player, seed).score for seed in range(EPISODES)) for task in tasks]


def live_scores(tasks: Sequence[TaskSurvey], policy: str) -> list[float]:
    """The score of each task, trained on its first survey seed, over the host alone of that seed."""
    player, scores = Player(Game(reward="solo", record=False)), []
    for task in tasks:
        ended = player.play(Job(task.task, task.seeds[0], policy, Purpose.COMPARE)).finished
        gain = ended.quality - float(task.evaluation[0, 0])
        scores.append(100.0 * (gain - task.rent * math.log(ended.growth)))
    return scores


def episodes_per_minute(tasks: Sequence[TableTask], seconds: float = 5.0) -> float:
    """By a policy that costs next to nothing: one that waits."""
    env, policy, started, played = TableEnv(tasks), NoGrowth(), time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        play(env, policy, played)
        played += 1
    return 60.0 * played / (time.perf_counter() - started)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Play controls in the world of tables.")
    parser.add_argument("--survey", type=Path, default=Path("surveys/small-dev.parquet"))
    parser.add_argument("--live", type=int, default=0, help="tasks to be played live by constant and ranker, too")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/table_world.csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    tasks, surveyed = table_tasks(options.survey), read_survey(options.survey).tasks
    print(
        f"{episodes_per_minute(tasks):,.0f} episodes a minute; oracle of the survey {over_tasks(gains_of(surveyed, oracle))}"
    )
    print("| policy | table | tasks | table | live | Spearman |\n|---|---|---|---|---|---|")
    rows = []
    for policy in POLICIES:
        scores = table_scores(tasks, policy)
        row: list[object] = [options.survey.stem, policy, round(fmean(scores), 2)]
        if options.live and policy in ("constant", "ranker"):
            chosen = surveyed[: options.live]
            live = live_scores(chosen, policy)
            by_task = {
                task.task: fmean(s for each, s in zip(tasks, scores, strict=True) if each.name == task.task)
                for task in chosen
            }
            table = list(by_task.values())
            row += [
                len(chosen),
                round(fmean(table), 2),
                round(fmean(live), 2),
                round(float(spearmanr(table, live)[0]), 2),
            ]
        rows.append(row + [""] * (7 - len(row)))
        print("| " + " | ".join(map(str, rows[-1][1:])) + " |", flush=True)
    header = ("survey", "policy", "table_score", "live_tasks", "table_score_there", "live_score_there", "spearman")
    write_csv(options.out, header, rows)


if __name__ == "__main__":
    main()
