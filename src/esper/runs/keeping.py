"""What recordings teach about keeping a seed: what was seen when it was kept, and what it had gained in the end."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from esper.contracts import Head, ObservationFields, Op
from esper.controller import SEED_INPUTS, Arrays, GainNetworks, inputs_of, measured, rent_in, size_in
from esper.environment import task_in_episode
from esper.runs.recordings import Recording
from esper.runs.survey import Examples, FitConfig, InvalidFit, networks_fitted_to, unit_of
from esper.runs.trajectory import Trajectory

KEEPING = FitConfig(members=16, hidden=16, steps=300, weight_decay=0.2)
"""There is one seed to judge in an episode, not some twenty, so networks are smaller than those of a ranker."""
NOTHING = "none"
"""The policy that plays the same worlds without growth."""
OP, SLOT = (list(Head).index(head) for head in (Head.OP, Head.SLOT))


@dataclass(frozen=True)
class KeptSeed:
    """An episode in which one seed was kept, and what it had gained in quality in the end."""

    trajectory: Trajectory
    step: int
    """In which it was kept."""
    slot: int
    gain: float

    def seen(self) -> Arrays:
        """When it was kept."""
        return {name: array[self.step] for name, array in self.trajectory.observation.items()}


def fit_keeping(recording: Recording, config: FitConfig = KEEPING) -> GainNetworks:
    """Networks that predict what a seed which may be kept will have gained over no growth in the same world."""
    return networks_fitted_to(_examples_of(list(kept_seeds(recording)), recording.schema.fields), config, SEED_INPUTS)


def kept_seeds(recording: Recording) -> Iterator[KeptSeed]:
    """Of all episodes whose world was played without growth, too. The governor ended none of them."""
    alone = {_world(each): each.about.score for each in recording.trajectories() if each.about.policy == NOTHING}
    fields = recording.schema.fields
    for each in recording.trajectories():
        steps = np.flatnonzero(each.choices[:, OP] == Op.FOSSILIZE)
        if each.about.terminated or len(steps) == 0 or _world(each) not in alone:
            continue
        kept = KeptSeed(each, int(steps[0]), int(each.choices[steps[0], SLOT]), 0.0)
        rent = rent_in(kept.seen(), fields) * size_in(kept.seen(), kept.slot, fields)
        yield KeptSeed(each, kept.step, kept.slot, each.about.score - alone[_world(each)] + rent)


def _world(trajectory: Trajectory) -> tuple[str, int]:
    return trajectory.about.task, trajectory.about.world


def _examples_of(seeds: list[KeptSeed], fields: ObservationFields) -> Examples:
    if not seeds:
        raise InvalidFit(
            f"no seed was kept in a world that '{NOTHING}' played, too; record both, "
            f"as in 'esper record --policy {NOTHING} constant:first:depthwise'"
        )
    inputs = [inputs_of(measured(each.seen()), SEED_INPUTS, fields)[each.slot, 0] for each in seeds]
    tasks = [task_in_episode(each.trajectory.about.task, each.trajectory.about.world) for each in seeds]

    def column(numbers: list[float]) -> torch.Tensor:
        return torch.tensor(numbers).unsqueeze(-1)

    return Examples(
        inputs=torch.from_numpy(np.stack(inputs)).float()[:, None, None],
        gains=column([each.gain for each in seeds]),
        units=column([unit_of(task) for task in tasks]),
        costs=column([size_in(each.seen(), each.slot, fields) for each in seeds]),
        fits=torch.ones(len(seeds), 1, dtype=torch.bool),
    )
