"""A world of tables: episodes as `GrowEnv` plays them, filled from a survey instead of trained, thousands a minute.

    python benchmarks/table_world.py                 # speed, and what controls gain in it: half a minute
    python benchmarks/table_world.py --live 20       # and some of the tasks played live: 1.7 minutes of a core

    tasks = table_tasks(Path("surveys/small.parquet"))
    env = TableEnv(tasks, rents=(0.01, 0.3))         # spaces, observations and infos are those of `GrowEnv`
    observation, _ = env.reset(seed=7)               # task, rent and noise are those of episode 7, always
    observation, reward, _, over, info = env.step(choices)    # at the end info["score"] is exact, without noise

Slots live by the real lifecycle, gates, masks and observer. The host shows what the surveyed host alone showed, and
`table_tasks` says how that goes on after the epochs that the survey kept. What a seed gains is what the survey measured
for it, in logits of quality, where the gains of several seeds are added. A seed that was refused on every seed of the
survey gains nothing, and one that is removed leaves the host as it was.

The numbers in capitals below are those that `table_calibration` measured, rounded.
"""

import argparse
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from table import write_csv
from table_tasks import LOSS_POWER, Array, Gains, TableTask, moved, table_tasks, times

from esper.contracts import WAIT, Action, Check, Choices, Op, Operator, SlotSnapshot, Snapshot, Stage, Verdict
from esper.controller import Policy
from esper.environment import Observation, stream
from esper.growth import find_blueprint, judge, ready
from esper.growth.body import _NEXT
from esper.growth.lifecycle import SlotState
from esper.runs import Purpose
from esper.runs.player import Game, Job, Player
from esper.runs.policies import find_policy
from esper.runs.survey import TaskSurvey, gains_of, oracle, over_tasks, read_survey

RISE = 0.5
"""Share of the horizon in which a seed comes to 63 % of what it could gain in any time."""
LATENESS = 0.5
"""Power of the share of the horizon that is left at birth, by which a seed gains less than one of the first epoch."""
RELIANCE = 1.8
"""Logits by which a contribution exceeds the gain after a whole horizon, on average: a host comes to rely on a seed."""
QUALITY_NOISE = 0.012
"""Deviation of quality from epoch to epoch."""
CONTRIBUTION_NOISE = 0.012
LUCK = (0.1, 0.5)
"""Deviation of a seed's gain between episodes, in logits: the first, and the second times the gain, or times 1."""
GRADIENT_SHARE = 0.4
"""A seed's gradient norm over that of the host."""


def risen(start: int, epochs: int, horizon: int) -> float:
    """What a seed born in epoch `start` gains after `epochs`, as a share of its gain when born in epoch 1 and grown."""

    def rise(share: float) -> float:
        return 1.0 - math.exp(-share / RISE)

    left = 1.0 - (start - 1) / horizon
    return min(1.0, float(left**LATENESS) * rise(epochs / horizon) / rise(1.0 - 1.0 / horizon))


class TableEnv(gymnasium.Env[Observation, Sequence[int] | NDArray[np.int64]]):
    """Episodes of the tasks, one drawn for each; `reset(seed=s)` is a pure function of s.

    `rents` are the lowest and the highest rent to draw from, log-uniformly and in the task's unit; None for each
    task's own. `noise` scales luck and noise; at 0 every seed gains what was surveyed and is seen without error.

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
        self._epoch = self.task.horizon
        """None is left before the first reset."""

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
        rent = task.rent if self.rents is None else task.unit * math.exp(self._draws.uniform(*np.log(self.rents)))
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
        if self._epoch >= self.task.horizon:
            raise gymnasium.error.ResetNeeded("call reset() before step(), and after the end of an episode")
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
            state = _NEXT[action.op](self._states[place], action, self.snapshot.slots[place].topology)
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
                norm = times(alone.gradient_norm, GRADIENT_SHARE)
                state = replace(state, contribution=contribution, gradient_norm=norm)
            self._offers[place] = () if place in living else task.offers[self._epoch][place]
            self._states[place] = state.ticked(task.thresholds)
        fall = math.exp(-LOSS_POWER * added.sum())
        self._host = replace(
            alone,
            rent=self.rent,
            evaluation_quality=_fraction(quality + self._error),
            evaluation_loss=times(alone.evaluation_loss, fall),
            train_loss=times(alone.train_loss, fall),
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
        held = replace(
            empty,
            stage=state.stage,
            age=state.age,
            blueprint=plan.blueprint,
            style=plan.style,
            tempo=plan.tempo,
            alpha=state.schedule.alpha,
            alpha_target=state.alpha_target,
            alpha_mode=state.schedule.mode,
            parameters=find_blueprint(plan.blueprint, empty.topology).parameters(empty.channels, empty.front_parameters)
            + gate,
            gradient_norm=state.gradient_norm,
            contribution=state.contribution,
            improvement=None if born is None or quality is None else quality - born,
        )
        return replace(held, ready=ready(held, self.task.thresholds)) if state.stage is Stage.HOLDING else held

    def _delivered(self) -> list[int]:
        return [place for place, slot in enumerate(self.snapshot.slots) if slot.delivered]

    def _growth_log(self, counted: Iterable[int]) -> float:
        return math.log1p(sum(self.snapshot.slots[place].parameters for place in counted) / self._host.parameters)

    def _potential_of(self, quality: float, counted: Iterable[int]) -> dict[str, float]:
        return {"quality": quality, "rent": -self.rent * self._growth_log(counted)}

    def _reward(self, over: bool) -> dict[str, float]:
        """The terms of `solo`: the worth of what is there, in the end of what is delivered, less that of before."""
        quality, counted = float(self._host.evaluation_quality or 0.0), self._living()
        if over:
            counted = self._delivered()
            quality = _fraction(moved(self.twin_quality, self._added(self._gains)[counted].sum()) + self._error)
        before, self._potential = self._potential, self._potential_of(quality, counted)
        return {name: self._potential[name] - before[name] for name in before}

    def _result(self) -> dict[str, float]:
        """What was delivered: its score over the host alone in points, and its growth."""
        counted, true = self._delivered(), self.task.true
        gain = moved(true.host, self._added(true.gains)[counted].sum()) - true.host
        growth_log = self._growth_log(counted)
        return {"score": 100.0 * (gain - self.rent * growth_log), "growth": math.exp(growth_log)}


def _fraction(quality: float) -> float:
    return min(1.0, max(0.0, quality))


# The check


@dataclass(frozen=True)
class Ended:
    """What came of an episode: its score in points, the sum of its rewards, and the growth that was delivered."""

    score: float
    total: float
    growth: float


def play(env: TableEnv, policy: Policy, seed: int) -> Ended:
    """The whole episode of that seed."""
    observation, _ = env.reset(seed=seed)
    state, generator = policy.start(env.codec), stream(seed, "actions")
    total, over = 0.0, False
    info: dict[str, Any] = {}
    while not over:
        decision, state = policy.act(observation, state, generator)
        observation, reward, _, over, info = env.step(decision.choices)
        total += reward
    return Ended(info["score"], total, info["growth"])


POLICIES = ("none", "constant", "ranker", "heuristic")
COMPARED = ("constant", "ranker", "heuristic")
"""Those that are played live, too."""
EPISODES = 5
"""Of every task and seed of the survey, by each policy."""


def table_scores(tasks: Sequence[TableTask], policy: str) -> list[float]:
    """The mean score of each task."""
    player = find_policy(policy)
    return [fmean(play(TableEnv([task]), player, seed).score for seed in range(EPISODES)) for task in tasks]


def live_scores(tasks: Sequence[TaskSurvey], policy: str) -> list[float]:
    """The score of each task when it is trained on a seed that the survey does not have, over its twin."""
    player, scores = Player(Game(record=False)), []
    for task in tasks:
        ended = player.play(Job(task.task, max(task.seeds) + 1, policy, Purpose.COMPARE)).finished
        assert ended.twin_quality is not None
        gain = ended.quality - ended.twin_quality
        scores.append(100.0 * (gain - task.rent * math.log(ended.growth)))
    return scores


def episodes_per_minute(tasks: Sequence[TableTask], policy: Policy, seconds: float = 5.0) -> float:
    """Of processor time."""
    env, started, played = TableEnv(tasks), time.process_time(), 0
    while time.process_time() - started < seconds:
        play(env, policy, played)
        played += 1
    return 60.0 * played / (time.process_time() - started)


def row_of(policy: str, tasks: Sequence[TableTask], compared: Sequence[TaskSurvey]) -> tuple[object, ...]:
    """Its score over all tasks; then of some tasks the number, the score here and live, and Spearman over them."""
    scores, row = table_scores(tasks, policy), ("",) * 4
    if compared and policy in COMPARED:
        named = [
            [score for each, score in zip(tasks, scores, strict=True) if each.name == task.task] for task in compared
        ]
        table, live = list(map(fmean, named)), live_scores(compared, policy)
        agreed = float(spearmanr(table, live)[0])
        row = (str(len(compared)), f"{fmean(table):.2f}", f"{fmean(live):.2f}", f"{agreed:.2f}")
    print(f"| {policy} | {fmean(scores):.2f} | {' | '.join(row)} |", flush=True)
    return policy, f"{fmean(scores):.2f}", *row


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Play controls in the world of tables.")
    parser.add_argument("--survey", type=Path, default=Path("surveys/small-dev.parquet"))
    parser.add_argument("--live", type=int, default=0, help="tasks to be played live, too (default %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/table_world.csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    tasks, surveyed = table_tasks(options.survey), read_survey(options.survey).tasks
    print(f"the oracle of the survey: {over_tasks(gains_of(surveyed, oracle))}")
    for name in ("none", "constant"):
        print(f"{name}: {episodes_per_minute(tasks, find_policy(name)):,.0f} episodes a minute")
    print("| policy | table | tasks | table | live | Spearman |\n|---|---|---|---|---|---|")
    rows = [row_of(policy, tasks, surveyed[: options.live]) for policy in POLICIES]
    header = ("survey", "policy", "table_score", "live_tasks", "table_score_there", "live_score_there", "spearman")
    write_csv(options.out, header, [(options.survey.stem, *row) for row in rows])


if __name__ == "__main__":
    main()
