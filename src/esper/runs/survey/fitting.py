"""How a ranker is made from a survey: networks are trained so that what they would plant gains most."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from esper.checked import require_ranges
from esper.contracts import ACCURACY_GRAIN, EsperError, ObservationFields
from esper.controller import GROUPS, INPUTS, GainNetworks, inputs_of
from esper.environment import Task, find_task
from esper.runs.survey.surveyor import SHOWN_EPOCHS
from esper.runs.survey.table import Array, HostCourse, TaskSurvey

RENTS = (0.01, 0.3)
"""Between which the rents are drawn that a choice is trained for, log-uniformly: in `unit_of`, those of families."""
UNSURE = ("course", "first-order gain")
"""Groups of numbers that a user's loop may not measure."""


class InvalidFit(EsperError):
    """Settings with which nothing can be fitted."""


@dataclass(frozen=True)
class FitConfig:
    """How a ranker is fitted."""

    seed: int = 0
    """Of all random numbers."""
    members: int = 8
    """Networks that are averaged."""
    hidden: int = 32
    """Units of each of their two hidden layers."""
    steps: int = 400
    """Of AdamW, whose learning rate falls to 0."""
    batch: int = 64
    """Episodes in a step."""
    looks: int = 3
    """The first epochs from which what the host showed is drawn."""
    learning_rate: float = 3e-3
    weight_decay: float = 0.05
    temperature: float = 0.02
    """Of the choice that is trained: scores as far apart as this, in units of the task, are e times as likely."""
    regression: float = 1.5
    """Weight of the squared error of the predicted gains beside what the choice gains."""
    noise: float = 0.1
    """Deviation of the noise on every number, in its own deviations."""
    blindness: float = 0.1
    """How often a group of numbers that may not be measured is left out."""

    def check(self) -> None:
        """Refuse what cannot be fitted with."""
        require_ranges(self, RANGES, InvalidFit)


RANGES = {
    "seed": (0, 2**31),
    "members": (1, 1_000),
    "hidden": (1, 4_096),
    "steps": (1, 1_000_000),
    "batch": (1, 100_000),
    "looks": (1, SHOWN_EPOCHS),
    "learning_rate": (1e-8, 1.0),
    "weight_decay": (0.0, 10.0),
    "temperature": (1e-4, 10.0),
    "regression": (0.0, 1e4),
    "noise": (0.0, 10.0),
    "blindness": (0.0, 1.0),
}


@dataclass(frozen=True)
class Examples:
    """Episodes of the host alone, and what every single seed would have brought: (episodes, looks, seeds, ...)."""

    inputs: Tensor
    gains: Tensor
    """In quality, (episodes, seeds)."""
    units: Tensor
    """Of each task, (episodes, 1)."""
    costs: Tensor
    fits: Tensor
    """False behind the seeds of a task that has fewer."""


def fit_gain_networks(
    tasks: Sequence[TaskSurvey], fields: ObservationFields, config: FitConfig, names: Sequence[str] = INPUTS
) -> GainNetworks:
    """Networks that predict the gain in quality of every seed from the named numbers.

    The loss is the negative score of a soft choice at rents drawn anew, plus the squared error of the gains: a plain
    regression spends itself on seeds that nobody would plant.
    """
    return networks_fitted_to(examples_of(tasks, fields, names, config.looks), config, names)


def networks_fitted_to(examples: Examples, config: FitConfig, names: Sequence[str]) -> GainNetworks:
    """The same for examples of any kind."""
    networks = GainNetworks(names, config.members, config.hidden)
    generator = torch.Generator().manual_seed(config.seed)
    _prepare(networks, examples, generator)
    optimizer = torch.optim.AdamW(networks.parameters(), config.learning_rate, weight_decay=config.weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.steps)
    for _ in range(config.steps):
        loss = _loss(networks, examples, config, generator)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return networks.requires_grad_(False)


def examples_of(tasks: Sequence[TaskSurvey], fields: ObservationFields, names: Sequence[str], looks: int) -> Examples:
    """What a survey has to teach: gains are means over its seeds and both splits."""
    rows = [
        (_inputs(task, course, fields, names, looks), *_outcomes(task)) for task in tasks for course in task.courses
    ]
    most = max(len(gains) for _, gains, _ in rows)
    units = [unit_of(find_task(task.task)) for task in tasks for _ in task.courses]
    examples = Examples(
        torch.full((len(rows), looks, most, len(names)), torch.nan),
        torch.zeros(len(rows), most),
        torch.tensor(units).unsqueeze(-1),
        torch.zeros(len(rows), most),
        torch.zeros(len(rows), most, dtype=torch.bool),
    )
    for at, (inputs, gains, costs) in enumerate(rows):
        count = len(gains)
        examples.inputs[at, :, :count] = torch.from_numpy(inputs).float()
        examples.gains[at, :count], examples.costs[at, :count] = torch.from_numpy(gains), torch.from_numpy(costs)
        examples.fits[at, :count] = True
    return examples


def unit_of(task: Task) -> float:
    """What counts as much as a quality of 1 on a task of naming classes: losses move less than accuracies."""
    return task.grain / ACCURACY_GRAIN


def _inputs(task: TaskSurvey, course: HostCourse, fields: ObservationFields, names: Sequence[str], looks: int) -> Array:
    """What the host alone showed of every single seed, (looks, seeds, inputs)."""
    slots = [course.slots.index(slot) for slot, _ in task.singles]
    blueprints = [course.blueprints.index(blueprint) for _, blueprint in task.singles]
    return np.stack([inputs_of(shown_at(course, look), names, fields)[slots, blueprints] for look in range(looks)])


def _outcomes(task: TaskSurvey) -> tuple[Array, Array]:
    """The gain and the cost of every single seed."""
    singles = list(task.singles.values())
    quality = (task.evaluation + task.test).mean(axis=1) / 2
    return quality[singles] - quality[0], task.growth_log[singles].mean(axis=1)


def shown_at(course: HostCourse, look: int) -> Mapping[str, Array]:
    """What the host alone showed after that many epochs and one; the last that was kept, if it is later."""
    at = min(look, len(course.host) - 1)
    return {"host": course.host[at], "slots": course.slot_features[at], "blueprints": course.offers[at]}


def _prepare(networks: GainNetworks, examples: Examples, generator: torch.Generator) -> None:
    """The scales of what is read, and first weights; the last layer predicts 0."""
    seen = examples.inputs.movedim(1, 0)[:, examples.fits].flatten(0, 1)
    known = seen.isfinite()
    count = known.sum(dim=0).clamp(min=1)
    networks.centre.copy_(seen.nan_to_num(nan=0.0).sum(dim=0) / count)
    spread = ((seen - networks.centre).square().nan_to_num(nan=0.0).sum(dim=0) / count).sqrt()
    networks.scale.copy_(torch.where(spread > 1e-5, spread, 1e9))  # what never differs tells nothing
    for weight in list(networks.weights)[:-1]:
        bound = weight.shape[1] ** -0.5
        weight.data.uniform_(-bound, bound, generator=generator)


def _loss(networks: GainNetworks, examples: Examples, config: FitConfig, generator: torch.Generator) -> Tensor:
    """Over episodes drawn anew for each member, each at a look and a rent of its own."""
    members, batch = config.members, config.batch
    episodes = torch.randint(len(examples.gains), (members, batch), generator=generator)
    looks = torch.randint(examples.inputs.shape[1], (members, batch), generator=generator)
    low, high = RENTS
    rents = low * (high / low) ** torch.rand(members, batch, 1, generator=generator)
    gains, costs, fits = (part[episodes] for part in (examples.gains, examples.costs, examples.fits))
    units = examples.units[episodes]
    inputs = networks.scaled(examples.inputs[episodes, looks])
    inputs = inputs + config.noise * torch.randn(inputs.shape, generator=generator)
    for columns in _columns(networks.names):
        blind = torch.rand(members, batch, 1, 1, generator=generator) < config.blindness
        inputs[..., columns] = torch.where(blind, 0.0, inputs[..., columns])
    predicted = networks(inputs.flatten(1, 2)).unflatten(1, (batch, -1)) / units
    gains = gains / units
    scores = torch.where(fits, predicted - rents * costs, -torch.inf)
    nothing = torch.zeros(members, batch, 1)
    chances = torch.softmax(torch.cat([scores, nothing], dim=-1) / config.temperature, dim=-1)[..., :-1]
    gained = (chances * (gains - rents * costs) * fits).sum(dim=-1).mean(dim=1)
    error = ((predicted - gains).square() * fits).sum(dim=(1, 2)) / fits.sum(dim=(1, 2))
    total: Tensor = (config.regression * error - gained).sum()
    return total


def _columns(names: Sequence[str]) -> Iterator[list[int]]:
    for group in UNSURE:
        columns = [at for at, name in enumerate(names) if name in GROUPS[group]]
        if columns:
            yield columns
