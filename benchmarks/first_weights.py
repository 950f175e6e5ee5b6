"""First weights for a controller: it learns to conduct itself as the keeper does, and how sure the keeper is.

    esper record --policy none constant:first:conv_heavy constant:first:depthwise --task family:small --episodes 500 \\
      --reward solo --out out/usual/small
    esper fit keeper out/usual/small --out out/keeper.safetensors
    python benchmarks/first_weights.py out/first.pt --keeper out/keeper.safetensors --recordings out/usual/small

The keeper plays the world of tables on all surveyed tasks, at rents drawn anew. The controller learns the likelihood of
all that it did, but for two steps. Where it is decided what to plant, it learns what the keeper expects of every seed:
nothing is as likely as the best seed is likely to cost more than it gains, and seeds are the likelier the more they are
expected to gain, so that greedy play decides as the keeper does and drawn play explores where it is unsure. Whether to
keep what was planted is learned from live episodes that were recorded, again at rents drawn anew, because what a seed
shows of its worth is not true to life in tables.

In half of the episodes the controller comes an epoch late, and in some a group of numbers is not measured, as in loops
of other people. There is noise on every number that is seen.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from hidden import without
from proving_ground import JUDGED, RENTS, USUAL, Lockstep, greedy_score
from table_tasks import TableTask, table_tasks
from table_world import TableEnv
from torch import Tensor

from esper.contracts import WAIT, ActionCodec, Choices, Head, Op
from esper.controller import (
    BEST_BY_RENT,
    GROUPS,
    Arrays,
    ControllerNetwork,
    Keeper,
    Ranker,
    load_gain_networks,
    size_in,
)
from esper.controller.network import NEVER
from esper.environment import FIELDS, derive
from esper.rl import Buffer, Learner, Network, Sequences, join, replay, save_checkpoint, surprise
from esper.rl.categorical import log_probabilities
from esper.runs.keeping import kept_seeds
from esper.runs.policies import find_policy
from esper.runs.recordings import Recording

SURVEYS = [Path(f"surveys/{name}.parquet") for name in ("small", "small-sampled", "wide-sampled")]
EPISODES, TOGETHER = 4000, 200
"""Of the keeper, and how many of them are played at the same time."""
STEPS, LEARNING_RATE, WEIGHT_DECAY = 2000, 1e-3, 0.01
"""Of AdamW, whose learning rate falls to 0."""
DECISIONS, KEPT, EPISODES_TOLD = 192, 48, 8
"""In a step: episodes of which it is learned what to plant, whether to keep it, and that are imitated to their end."""
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
"""On what is seen, in deviations."""
EXACT = frozenset({"rent", "parameters", "channels", "cost", "size"})
"""Numbers without noise. By cost alone blueprints of one kind are told apart: names are not seen."""
SURENESS = 0.015
"""Units of the task by which a seed must be expected to gain more than another to be e times as likely."""


SOON = 9
"""Epochs in which nearly all seeds can be kept; the few that come later would make all rows long."""
CERTAIN = 1.0
"""Units of the task that the usual seed is taken to be worth when it is planted."""
OP, BLUEPRINT = (list(Head).index(head) for head in (Head.OP, Head.BLUEPRINT))


class Plays(NamedTuple):
    """Episodes of the keeper, and what it expected of every seed when it decided."""

    rows: Sequences
    decided: Tensor
    """(rows): the step in which it decided what to plant."""
    judged: Tensor
    """(rows): the step in which it decided whether to keep that, the last one where it never did."""
    worths: Tensor
    """(rows, slots, blueprints): gains less rent in units of the task, minus infinity for what does not fit."""

    def take(self, rows: Tensor) -> "Plays":
        return Plays(self.rows.take(rows), self.decided[rows], self.judged[rows], self.worths[rows])

    def shown(self, steps: int) -> "Plays":
        """The same, up to that step."""
        return self._replace(rows=self.rows.mapped(lambda part: part[:, :steps], self.rows.state))


class Kept(NamedTuple):
    """Live episodes up to when the usual seed could be kept, and what the keeper predicted then."""

    rows: Sequences
    step: Tensor
    """(rows): in which it could be kept."""
    gains: Tensor
    """(rows), in quality."""
    costs: Tensor
    bands: Tensor
    """(rows, 2): the lowest and the highest rent at which `constant` plants that seed."""

    def take(self, rows: Tensor) -> "Kept":
        return Kept(self.rows.take(rows), *(part[rows] for part in self[1:]))


AnyPlays = TypeVar("AnyPlays", Plays, Kept)


def keeper_plays(keeper: Keeper, tasks: Sequence[TableTask], lockstep: Lockstep, seeds: Sequence[int]) -> Plays:
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
    decided, judged = torch.zeros(rows, dtype=torch.long), torch.full((rows,), lockstep.steps - 1)
    worths = torch.full((rows, *room["mask_slot_blueprint"].shape), -torch.inf)
    states, going = [keeper.start(env.codec) for env in envs], torch.full((rows,), True)
    starts, step = going, 0
    while going.any():
        seen = [without(each, features) for each, features in zip(seen, hidden, strict=True)]
        observation, choices = lockstep.padded(seen), torch.zeros(rows, len(Head), dtype=torch.long)
        ends = torch.zeros(rows, dtype=torch.bool)
        for row in going.nonzero().flatten().tolist():
            before = states[row].planted
            decision, states[row] = keeper.act(seen[row], states[row], nothing)
            if before is None and states[row].planted is not None:
                found = expected(keeper, seen[row], envs[row].codec, envs[row].task.unit)
                decided[row], worths[row][tuple(map(slice, found.shape))] = step, found
            choices[row] = torch.tensor(decision.choices)
            if decision.choices[OP] in (Op.FOSSILIZE, Op.PRUNE) and keeper.usual(seen[row], envs[row].codec):
                judged[row] = step
            seen[row], _, _, ends[row], _ = envs[row].step(Choices(decision.choices, envs[row].codec))
        buffer.decide(observation, starts, choices, unsaid, unsaid.bool())
        buffer.conclude(unsaid[:, 0], unsaid[:, 0], ends, unsaid[:, 0], going)
        going, starts, step = going & ~ends, torch.full((rows,), False), step + 1
    return Plays(buffer.sequences(), decided, judged.clamp(max=step - 1), worths)


def expected(keeper: Keeper, seen: Arrays, codec: ActionCodec, unit: float) -> Tensor:
    """What every seed is worth to the keeper, (slots, blueprints), in units of the task."""
    usual = keeper.usual(seen, codec)
    if not usual:
        return torch.from_numpy(keeper.ranker.worths(seen, codec)).float() / unit
    found = torch.full((len(codec.slots), len(codec.blueprints)), -torch.inf)
    for slot, blueprint in usual:
        found[codec.slots.index(slot), codec.blueprints.index(blueprint)] = CERTAIN
    return found


def rents_of(constant: str) -> tuple[float, float]:
    """Between which `constant` plants that seed."""
    least = [RENTS[0], *BEST_BY_RENT]
    bands = [band for band, name in zip(zip(least, BEST_BY_RENT, strict=False), BEST_BY_RENT.values(), strict=True)
             if name == constant]  # fmt: skip
    return bands[0][0], min(bands[-1][1], RENTS[1])


def kept_of(keeper: Keeper, recording: Recording) -> Kept:
    """What was recorded of constants, each at all rents at which `constant` plants the same."""
    bands = {name: rents_of(name.removeprefix("constant:")) for name in recording.policies if name != "none"}
    seeds = [each for each in kept_seeds(recording) if each.step < SOON]
    rows = join([each.trajectory.sequences() for each in seeds])
    return Kept(
        rows.mapped(lambda part: part[:, :SOON], ControllerNetwork(FIELDS).memory.start(rows.rows)),
        torch.tensor([each.step for each in seeds]),
        torch.tensor([keeper.gain(each.seen(), each.slot) for each in seeds]),
        torch.tensor([size_in(each.seen(), each.slot, FIELDS) for each in seeds]),
        torch.tensor([bands[each.trajectory.about.policy] for each in seeds]),
    )


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


def unsureness_of_keeping(network: ControllerNetwork, kept: Kept, generator: torch.Generator) -> Tensor:
    """The same of whether to keep what was planted, at rents drawn anew."""
    rows, low, high = kept.rows, kept.bands[:, 0], kept.bands[:, 1]
    rents = low * (high / low) ** torch.rand(len(low), generator=generator)
    host = rows.observation["host"].clone()
    host[..., FIELDS.host.index("rent")] = rents.log10()[:, None]
    rows = rows._replace(observation={**rows.observation, "host": host})
    keeping = torch.sigmoid((kept.gains - rents * kept.costs) / SURENESS)

    encoded = network.encode(rows.observation, rows.state, rows.starts)
    logits, mask = network.logits(encoded, rows.observation, 0, rows.choices)
    ops = log_probabilities(logits, mask)[torch.arange(rows.rows), kept.step, OP]
    return -(keeping * ops[:, Op.FOSSILIZE] + (1.0 - keeping) * ops[:, Op.PRUNE]).mean()


def surprise_elsewhere(network: ControllerNetwork, plays: Plays) -> Tensor:
    """Of all else that the keeper does, in nats per step with a choice."""
    rows = plays.rows
    imitated = torch.ones_like(rows.free, dtype=torch.float32)
    imitated[torch.arange(rows.rows), plays.decided, : BLUEPRINT + 1] = 0.0
    imitated[torch.arange(rows.rows), plays.judged, OP] = 0.0
    return surprise(replay(network, rows), rows.valid, imitated)


def deviations(rows: Sequences) -> dict[str, Tensor]:
    """Of each number that is seen, where it was measured; what is known exactly has none."""
    found = {}
    for name in ("host", "slots", "blueprints"):
        values, known = rows.observation[name].flatten(0, -2), rows.observation[f"{name}_valid"].flatten(0, -2)
        count = known.sum(dim=0).clamp(min=1)
        mean = (values * known).sum(dim=0) / count
        found[name] = (((values - mean).square() * known).sum(dim=0) / count).sqrt()
        for exact in EXACT & {*getattr(FIELDS, name)}:
            found[name][getattr(FIELDS, name).index(exact)] = 0.0
    return found


def blurred(rows: Sequences, spread: dict[str, Tensor], generator: torch.Generator) -> Sequences:
    """With noise on what was measured."""
    observation = dict(rows.observation)
    for name, deviation in spread.items():
        noise = torch.randn(observation[name].shape, generator=generator)
        observation[name] = observation[name] + NOISE * deviation * noise * observation[f"{name}_valid"]
    return rows._replace(observation=observation)


def first_network(keeper: Keeper, tasks: Sequence[TableTask], kept: Kept, seed: int) -> ControllerNetwork:
    """A network that has learned from the keeper, from newborn weights."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive(seed, "controller"))
        network = ControllerNetwork(FIELDS)
    lockstep = Lockstep(tasks)
    seeds = [derive(seed, "imitated", place) % 2**31 for place in range(EPISODES)]
    parts = [
        keeper_plays(keeper, tasks, lockstep, seeds[first : first + TOGETHER]) for first in range(0, EPISODES, TOGETHER)
    ]
    rows, *others = zip(*parts, strict=True)
    plays = Plays(join(rows), *map(torch.cat, others))
    learn(network, plays, kept, torch.Generator().manual_seed(derive(seed, "first weights")))
    return network


def learn(network: ControllerNetwork, plays: Plays, kept: Kept, generator: torch.Generator) -> None:
    """All steps of AdamW."""
    spread = deviations(plays.rows)
    optimizer = torch.optim.AdamW(network.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    looks = plays.shown(int(plays.decided.max()) + 1)

    def drawn(among: AnyPlays, count: int) -> AnyPlays:
        some = among.take(torch.randperm(among.rows.rows, generator=generator)[:count])
        return some._replace(rows=blurred(some.rows, spread, generator))

    for _ in range(STEPS):
        loss = (
            unsureness(network, drawn(looks, DECISIONS))
            + unsureness_of_keeping(network, drawn(kept, KEPT), generator)
            + surprise_elsewhere(network, drawn(plays, EPISODES_TOLD))
        )
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
    parser.add_argument("--ranker", default="ranker", help="of the keeper (default %(default)s)")
    parser.add_argument("--keeper", type=Path, required=True, help="what 'esper fit keeper' wrote")
    parser.add_argument("--recordings", type=Path, nargs="+", required=True, help="of 'none' and constants")
    parser.add_argument("--surveys", type=Path, nargs="+", default=SURVEYS, help="default: all to learn from")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tasks = [task for path in arguments.surveys for task in table_tasks(path)]
    ranker = find_policy(arguments.ranker)
    assert isinstance(ranker, Ranker)
    keeper = Keeper(load_gain_networks(arguments.keeper), ranker)
    kept = kept_of(keeper, Recording.open(*arguments.recordings))
    network: Network = first_network(keeper, tasks, kept, arguments.seed)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    save_checkpoint(arguments.out, Learner(network, USUAL.ppo), {})
    print(f"{arguments.out}: {greedy_score(network, table_tasks(JUDGED)):+.2f} points in the tables of {JUDGED}")


if __name__ == "__main__":
    main()
