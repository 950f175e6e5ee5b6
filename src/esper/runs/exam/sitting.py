"""One candidate sits one paper: an episode on a held-out seed, measured on the test split at its end."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch

from esper.controller import Decision
from esper.environment import Episode, GrowEnv, Split
from esper.growth import Fossil, count_flops, count_parameters, evaluating
from esper.runs.exam.row import ExamRow
from esper.runs.rollout import Job, Played, Player, Tape

PASSES = 3
"""A training step counts as three forward passes: one forward, two backward."""


@dataclass(frozen=True)
class Sat(Played):
    """What came of a job, with its row of the exam and the architecture that was kept."""

    row: ExamRow
    fossils: tuple[Fossil, ...]


class Meter(Tape):
    """Adds up accuracy and operations, epoch by epoch, as an episode goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.accuracies: list[float] = []
        self.flops = 0.0

    def narrate(self, env: GrowEnv, decision: Decision, forced: bool, reward: float, info: Mapping[str, Any]) -> None:
        super().narrate(env, decision, forced, reward, info)
        assert env.episode is not None
        self.accuracies.append(env.episode.evaluation.accuracy)
        self.flops += epoch_flops(env.episode)


class Examiner(Player):
    """A player that measures what an episode leaves: the network that `harvest()` gives, on the test split."""

    def play(self, job: Job, tape: Tape | None = None) -> Sat:
        """The whole episode, then the test split, once."""
        meter = Meter()
        played = super().play(job, meter)
        env = self.env(job.task)
        assert env.episode is not None
        body = env.episode.body
        kept = body.harvest()
        test = env.splits.test
        row = ExamRow(
            task=job.task,
            policy=job.policy,
            seed=job.seed,
            accuracy=share_right(kept, test),
            evaluation_accuracy=played.finished.accuracy,
            area=fmean(meter.accuracies),
            host_parameters=body.host_parameters,
            parameters=count_parameters(kept.parameters()),
            training_flops=meter.flops,
            inference_flops=float(count_flops(kept.eval(), test.x[:1])),
            rollbacks=int(played.finished.panic is not None),
            seconds=played.finished.seconds,
        )
        return Sat(job, played.finished, played.events, None, row, body.fossils())


def epoch_flops(episode: Episode) -> float:
    """Operations of training one epoch, by the network at its end.

    Seeds in isolation are trained by a shadow pass of their own, which costs another pass of everything and of them.
    """
    costs, shown = episode.body.costs(), episode.body.blended()
    hidden = [cost.flops for slot, cost in costs.seeds.items() if slot not in shown]
    per_sample = costs.live.flops + (costs.live.flops + sum(hidden) if hidden else 0)
    return float(PASSES * per_sample * len(episode.train.x))


def share_right(model: torch.nn.Module, split: Split) -> float:
    """Of the split's inputs, those that the network names right."""
    with evaluating(model):
        hits = [(model(x).argmax(1) == y).sum() for x, y in zip(split.x.split(256), split.y.split(256), strict=True)]
    return int(torch.stack(hits).sum()) / len(split.x)
