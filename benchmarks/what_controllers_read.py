"""What a controller's choice depends on: it plays tables with groups of numbers hidden from it, and beside the ranker.

    python benchmarks/what_controllers_read.py tamiyo                    # minutes of a core
    python benchmarks/what_controllers_read.py out/run --survey surveys/small-dev.parquet

Every task and seed of the survey is played greedily in the world of tables, without noise. A hidden number is shown as
not measured. `like the ranker` is the share of episodes in which both deliver the same seeds; `grew` the share in which
anything is delivered. Scores are points over the host alone, as in `table_world`; differences are from the controller
that sees everything, task by task, with 95 % intervals.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from hidden import without
from table import write_csv
from table_tasks import TableTask, table_tasks
from table_world import TableEnv, play

from esper.contracts import ActionCodec
from esper.controller import GROUPS, Decision, Policy
from esper.controller.policy import Arrays
from esper.runs.policies import find_policy
from esper.runs.survey import over_tasks

HIDDEN: dict[str, tuple[str, ...]] = {
    "nothing": (),
    "rent": ("host.rent",),
    **GROUPS,
    "everything of the offers": (*GROUPS["blueprint"], *GROUPS["first-order gain"]),
}
"""Names of features, by what they tell of."""


@dataclass(frozen=True)
class Blindfold:
    """A policy that is shown some features as not measured."""

    policy: Policy
    hidden: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.policy.name

    def start(self, codec: ActionCodec) -> Any:
        return self.policy.start(codec)

    def act(self, observation: Arrays, state: Any, generator: torch.Generator) -> tuple[Decision, Any]:
        return self.policy.act(without(dict(observation), self.hidden), state, generator)


class Played(NamedTuple):
    """What came of an episode."""

    score: float
    delivered: frozenset[tuple[str, str]]


def played(policy: Policy, tasks: Sequence[TableTask]) -> list[Played]:
    """One episode of each."""
    found = []
    for task in tasks:
        env = TableEnv([task], noise=0.0)
        score = play(env, policy, 0).score
        kept = frozenset((slot.slot, slot.blueprint or "") for slot in env.snapshot.slots if slot.delivered)
        found.append(Played(score, kept))
    return found


def by_task(tasks: Sequence[TableTask], numbers: Sequence[float]) -> list[float]:
    """The mean over the seeds of each task."""
    names = [task.name for task in tasks]
    return [
        float(np.mean([number for of, number in zip(names, numbers, strict=True) if of == name]))
        for name in dict.fromkeys(names)
    ]


def main() -> None:
    """Play, print, write."""
    parser = argparse.ArgumentParser(description="Hide groups of numbers from a controller.")
    parser.add_argument("policy", help="a shipped controller, a run or a checkpoint")
    parser.add_argument("--survey", type=Path, default=Path("surveys/small-exam.parquet"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/what_controllers_read.csv"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    tasks, policy = table_tasks(given.survey), find_policy(given.policy)
    ranker = played(find_policy("ranker"), tasks)
    whole: list[float] = []
    rows = []
    print("| hidden | score | less what sees all | grew on % | like the ranker % |\n|---|---|---|---|---|")
    for name, hidden in HIDDEN.items():
        ended = played(Blindfold(policy, hidden), tasks)
        scores = by_task(tasks, [each.score / 100.0 for each in ended])
        whole = whole or scores
        less = over_tasks(np.subtract(scores, whole)) if hidden else ""
        grew = float(np.mean([bool(each.delivered) for each in ended]))
        alike = float(np.mean([one.delivered == two.delivered for one, two in zip(ended, ranker, strict=True)]))
        rows.append((name, f"{100 * np.mean(scores):+.2f}", less, f"{100 * grew:.0f}", f"{100 * alike:.0f}"))
        print(f"| {' | '.join(map(str, rows[-1]))} |", flush=True)
    write_csv(given.out, ("hidden", "score", "less", "grew_percent", "like_ranker_percent"), rows)


if __name__ == "__main__":
    main()
