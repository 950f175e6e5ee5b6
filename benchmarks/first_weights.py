"""First weights for a controller: it learns to conduct itself as the ranker does, and how sure the ranker is.

    python benchmarks/first_weights.py out/first.pt     # minutes of a core; then 'esper train --init out/first.pt'

The ranker plays the world of tables on all surveyed tasks, at rents drawn anew. The controller learns the likelihood of
all that it did, but for the one step in which it decides what to plant: there it learns what the ranker expects of
every seed. Nothing is as likely as the best seed is likely to cost more than it gains, and seeds are the likelier the
more they are expected to gain, so that greedy play decides as the ranker does and drawn play explores where it is
unsure.

In half of the episodes the controller comes an epoch late, and in some a group of numbers is not measured, as in loops
of other people. There is noise on every number that is seen.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from hidden import without
from proving_ground import JUDGED, RENTS, USUAL, Lockstep, greedy_score
from table_tasks import TableTask, table_tasks
from table_world import TableEnv
from torch import Tensor

from esper.contracts import WAIT, Choices, Head
from esper.controller import GROUPS, ControllerNetwork, Ranker
from esper.controller.network import NEVER
from esper.environment import FIELDS, derive
from esper.rl import Buffer, Learner, Network, Sequences, join, replay, save_checkpoint, surprise
from esper.runs.policies import find_policy

SURVEYS = [Path(f"surveys/{name}.parquet") for name in ("small", "small-sampled", "wide-sampled")]
EPISODES, TOGETHER = 4000, 200
"""Of the ranker, and how many of them are played at the same time."""
STEPS, LEARNING_RATE, WEIGHT_DECAY = 2000, 1e-3, 0.01
"""Of AdamW, whose learning rate falls to 0."""
DECISIONS, EPISODES_TOLD = 192, 8
"""In a step: episodes of which the decision is learned, and episodes that are imitated to their end."""
UNMEASURED: dict[str, tuple[str, ...]] = {
    "rows": ("host.rows",),
    "losses": ("host.train_loss", "host.evaluation_loss", "host.loss_slope", "host.loss_gap"),
    "course": GROUPS["course"],
    "gains": GROUPS["first-order gain"],
}
"""What a loop of somebody else may not measure."""
BLINDNESS = 0.15
"""How often each of them is not measured, for a whole episode."""
NOISE = 0.05
"""On all that is seen, in deviations."""
SURENESS = 0.015
"""Units of the task by which a seed must be expected to gain more than another to be e times as likely."""


class Plays(NamedTuple):
    """Episodes of the ranker, and what it expected of every seed when it decided."""

    rows: Sequences
    decided: Tensor
    """(rows): the step in which it decided what to plant."""
    worths: Tensor
    """(rows, slots, blueprints): gains less rent in units of the task, minus infinity for what does not fit."""

    def take(self, rows: Tensor) -> "Plays":
        return Plays(self.rows.take(rows), self.decided[rows], self.worths[rows])

    def shown(self, steps: int) -> "Plays":
        """The same, up to that step."""
        return self._replace(rows=self.rows.mapped(lambda part: part[:, :steps], self.rows.state))


def ranker_plays(ranker: Ranker, tasks: Sequence[TableTask], lockstep: Lockstep, seeds: Sequence[int]) -> Plays:
    """One episode for each seed; those of odd seeds are seen from the second epoch on."""
    rows, nothing = len(seeds), torch.Generator()
    envs = [TableEnv(tasks, RENTS) for _ in seeds]
    seen = [env.reset(seed=seed)[0] for env, seed in zip(envs, seeds, strict=True)]
    hidden = [unmeasured(seed) for seed in seeds]
    for row in np.flatnonzero(np.array(seeds) % 2).tolist():
        seen[row] = envs[row].step(envs[row].codec.encode(WAIT))[0]
    room = lockstep.padded([])
    buffer, unsaid = Buffer(rows, lockstep.steps, room, len(Head)), torch.zeros(rows, len(Head))
    buffer.begin(ControllerNetwork(FIELDS).memory.start(rows))
    decided = torch.zeros(rows, dtype=torch.long)
    worths = torch.full((rows, *room["mask_slot_blueprint"].shape), -torch.inf)
    states, going = [ranker.start(env.codec) for env in envs], torch.full((rows,), True)
    starts, step = going, 0
    while going.any():
        seen = [without(each, features) for each, features in zip(seen, hidden, strict=True)]
        observation, choices = lockstep.padded(seen), torch.zeros(rows, len(Head), dtype=torch.long)
        ends = torch.zeros(rows, dtype=torch.bool)
        for row in going.nonzero().flatten().tolist():
            before = states[row].planted
            decision, states[row] = ranker.act(seen[row], states[row], nothing)
            if before is None and states[row].planted is not None:
                found = torch.from_numpy(ranker.worths(seen[row], envs[row].codec)).float()
                decided[row], worths[row][tuple(map(slice, found.shape))] = step, found / envs[row].task.unit
            choices[row] = torch.tensor(decision.choices)
            seen[row], _, _, ends[row], _ = envs[row].step(Choices(decision.choices, envs[row].codec))
        buffer.decide(observation, starts, choices, unsaid, unsaid.bool())
        buffer.conclude(unsaid[:, 0], unsaid[:, 0], ends, unsaid[:, 0], going)
        going, starts, step = going & ~ends, torch.full((rows,), False), step + 1
    return Plays(buffer.sequences(), decided, worths)


def unmeasured(seed: int) -> tuple[str, ...]:
    """The features that are not measured in the episode of that seed."""
    draws = np.random.default_rng(derive(seed, "unmeasured"))
    return tuple(name for group in UNMEASURED.values() if draws.random() < BLINDNESS for name in group)


def chances(worths: Tensor) -> Tensor:
    """How likely nothing and each seed is to be planted, (rows, 1 + slots * blueprints)."""
    sureness = worths.flatten(1) / SURENESS
    planted = torch.sigmoid(sureness.amax(dim=1, keepdim=True))
    return torch.cat([1.0 - planted, planted * sureness.softmax(dim=1)], dim=1)


def unsureness(network: ControllerNetwork, plays: Plays) -> Tensor:
    """Of what to plant: the mean of the cross-entropy with what the ranker expects, in nats."""
    rows, row = plays.rows, torch.arange(plays.rows.rows)
    encoded = network.encode(rows.observation, rows.state, rows.starts)
    remembered, _, by_offer, *_ = (part[row, plays.decided] for part in encoded.features)
    fits = rows.observation["mask_slot_blueprint"][row, plays.decided].bool()
    scores = torch.cat([network.wait_score(remembered), by_offer.masked_fill(~fits, NEVER).flatten(1)], dim=-1)
    return -(chances(plays.worths) * scores.log_softmax(dim=-1)).sum(dim=-1).mean()


def surprise_elsewhere(network: ControllerNetwork, plays: Plays) -> Tensor:
    """Of all else that the ranker does, in nats per step with a choice."""
    rows = plays.rows
    imitated = torch.ones_like(rows.free, dtype=torch.float32)
    imitated[torch.arange(rows.rows), plays.decided, : list(Head).index(Head.BLUEPRINT) + 1] = 0.0
    return surprise(replay(network, rows), rows.valid, imitated)


def deviations(rows: Sequences) -> dict[str, Tensor]:
    """Of each number that is seen, where it was measured; rent is what it is."""
    found = {}
    for name in ("host", "slots", "blueprints"):
        values, known = rows.observation[name].flatten(0, -2), rows.observation[f"{name}_valid"].flatten(0, -2)
        count = known.sum(dim=0).clamp(min=1)
        mean = (values * known).sum(dim=0) / count
        found[name] = (((values - mean).square() * known).sum(dim=0) / count).sqrt()
    found["host"][FIELDS.host.index("rent")] = 0.0
    return found


def blurred(rows: Sequences, spread: dict[str, Tensor], generator: torch.Generator) -> Sequences:
    """With noise on what was measured."""
    observation = dict(rows.observation)
    for name, deviation in spread.items():
        noise = torch.randn(observation[name].shape, generator=generator)
        observation[name] = observation[name] + NOISE * deviation * noise * observation[f"{name}_valid"]
    return rows._replace(observation=observation)


def first_network(ranker: Ranker, tasks: Sequence[TableTask], seed: int) -> ControllerNetwork:
    """A network that has learned from the ranker, from newborn weights."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive(seed, "controller"))
        network = ControllerNetwork(FIELDS)
    lockstep = Lockstep(tasks)
    seeds = [derive(seed, "imitated", place) % 2**31 for place in range(EPISODES)]
    parts = [
        ranker_plays(ranker, tasks, lockstep, seeds[first : first + TOGETHER]) for first in range(0, EPISODES, TOGETHER)
    ]
    plays = Plays(
        join([part.rows for part in parts]),
        torch.cat([part.decided for part in parts]),
        torch.cat([part.worths for part in parts]),
    )
    learn(network, plays, torch.Generator().manual_seed(derive(seed, "first weights")))
    return network


def learn(network: ControllerNetwork, plays: Plays, generator: torch.Generator) -> None:
    """All steps of AdamW."""
    spread = deviations(plays.rows)
    optimizer = torch.optim.AdamW(network.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    looks = plays.shown(int(plays.decided.max()) + 1)

    def drawn(among: Plays, count: int) -> Plays:
        some = among.take(torch.randperm(among.rows.rows, generator=generator)[:count])
        return some._replace(rows=blurred(some.rows, spread, generator))

    for _ in range(STEPS):
        loss = unsureness(network, drawn(looks, DECISIONS)) + surprise_elsewhere(network, drawn(plays, EPISODES_TOLD))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()


def main() -> None:
    """Learn, write, and say what it is worth."""
    parser = argparse.ArgumentParser(description="Make first weights for a controller.")
    parser.add_argument("out", type=Path, help="the checkpoint to write")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ranker", default="ranker", help="whom to learn from (default %(default)s)")
    parser.add_argument("--surveys", type=Path, nargs="+", default=SURVEYS, help="default: all to learn from")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tasks = [task for path in arguments.surveys for task in table_tasks(path)]
    ranker = find_policy(arguments.ranker)
    assert isinstance(ranker, Ranker)
    network: Network = first_network(ranker, tasks, arguments.seed)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    save_checkpoint(arguments.out, Learner(network, USUAL.ppo), {})
    print(f"{arguments.out}: {greedy_score(network, table_tasks(JUDGED)):+.2f} points in the tables of {JUDGED}")


if __name__ == "__main__":
    main()
