"""First weights for a controller, from tables: how the ranker conducts itself, and what the survey says of choices.

    python benchmarks/first_weights.py out/first.pt     # minutes of a core; then 'esper train --init out/first.pt'

The ranker plays the world of tables, at rents drawn anew. In `IMITATING` steps the controller learns the likelihood of
all that it did. Then, for `CHOOSING` more, its choice after the first epoch is no longer the ranker's: what it would
plant is made to gain most by the tables, where the gain of every single seed is known, so that the expected score of a
drawn choice, and its gradient, are exact. In all other epochs it goes on imitating. There is noise on every number that
is seen. Learning the choice from the start fails: before seeds are planted at all, there is nothing to choose.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from proving_ground import JUDGED, RENTS, TRAINING, USUAL, Lockstep, greedy_score
from table_tasks import TableTask, moved, table_tasks
from table_world import TableEnv
from torch import Tensor

from esper.contracts import Choices, Head
from esper.controller import ControllerNetwork
from esper.controller.network import NEVER
from esper.environment import FIELDS, derive
from esper.rl import Buffer, Learner, Network, Sequences, join, replay, save_checkpoint
from esper.runs.policies import find_policy

EPISODES, TOGETHER = 1600, 200
"""Of the ranker, and how many of them are played at the same time."""
IMITATING, CHOOSING = 400, 500
"""Steps of AdamW in both stages, in each of which the learning rate falls to 0."""
LOOK = 1
"""The epoch after which the ranker plants."""
CHOSEN = slice(0, 3)
"""Op, slot and blueprint."""
BATCH, LEARNING_RATE, WEIGHT_DECAY, NOISE = 48, 1e-3, 0.01, 0.1
STAKES = 15.0
"""Weight of the expected score, a fraction of quality, beside a nat of imitation."""


def worths(env: TableEnv, offers: np.ndarray) -> np.ndarray:
    """What each single seed would gain in quality over its rent, (slots, blueprints)."""
    alone, cost = env.task.seen.host, offers[..., FIELDS.blueprints.index("cost")]
    gains = np.array([[moved(alone, gain) - alone for gain in row] for row in env.task.seen.gains])
    found: np.ndarray = gains - env.rent * cost
    return found


def ranker_plays(tasks: Sequence[TableTask], lockstep: Lockstep, seeds: Sequence[int]) -> tuple[Sequences, Tensor]:
    """One episode for each seed: what was seen and done, and what each single seed would have been worth."""
    rows, ranker, nothing = len(seeds), find_policy("ranker"), torch.Generator()
    envs = [TableEnv(tasks, RENTS) for _ in seeds]
    seen = [env.reset(seed=seed)[0] for env, seed in zip(envs, seeds, strict=True)]
    room = lockstep.padded([])
    buffer, unsaid = Buffer(rows, lockstep.steps, room, len(Head)), torch.zeros(rows, len(Head))
    buffer.begin(ControllerNetwork(FIELDS).memory.start(rows))
    worth = torch.zeros(rows, *room["mask_slot_blueprint"].shape)
    for row, env in enumerate(envs):
        found = worths(env, seen[row]["blueprints"])
        worth[row][tuple(map(slice, found.shape))] = torch.from_numpy(found).float()
    states, going = [ranker.start(env.codec) for env in envs], torch.full((rows,), True)
    starts = going
    while going.any():
        observation, choices = lockstep.padded(seen), torch.zeros(rows, len(Head), dtype=torch.long)
        ends = torch.zeros(rows, dtype=torch.bool)
        for row in going.nonzero().flatten().tolist():
            decision, states[row] = ranker.act(seen[row], states[row], nothing)
            choices[row] = torch.tensor(decision.choices)
            seen[row], _, _, ends[row], _ = envs[row].step(Choices(decision.choices, envs[row].codec))
        buffer.decide(observation, starts, choices, unsaid, unsaid.bool())
        buffer.conclude(unsaid[:, 0], unsaid[:, 0], ends, unsaid[:, 0], going)
        going, starts = going & ~ends, torch.full((rows,), False)
    return buffer.sequences(), worth


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


def expected_score(network: ControllerNetwork, rows: Sequences, worth: Tensor) -> Tensor:
    """Of what is drawn to be planted after the first look, if nothing is planted later."""
    observation = {name: value[:, : LOOK + 1] for name, value in rows.observation.items()}
    encoded = network.encode(observation, rows.state, rows.starts[:, : LOOK + 1])
    remembered, _, by_offer, _ = (part[:, LOOK] for part in encoded.features)
    fits = observation["mask_slot_blueprint"][:, LOOK].bool()
    offers = by_offer.masked_fill(~fits, NEVER).flatten(1)
    chances = torch.cat([network.wait_score(remembered), offers], dim=-1).softmax(dim=-1)
    return (chances[:, 1:] * worth.flatten(1)).sum(dim=-1).mean()


def learn(
    network: ControllerNetwork, rows: Sequences, worth: Tensor, choosing: bool, generator: torch.Generator
) -> None:
    """One of the two stages."""
    steps, spread = CHOOSING if choosing else IMITATING, deviations(rows)
    optimizer = torch.optim.AdamW(network.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        drawn = torch.randperm(rows.rows, generator=generator)[:BATCH]
        batch = blurred(rows.take(drawn), spread, generator)
        again = replay(network, batch)
        imitated = again.free & batch.valid.unsqueeze(-1)
        deciding = imitated.any(dim=-1).sum()
        imitated[:, LOOK, CHOSEN] &= not choosing
        loss = -(again.log_probs * imitated).sum() / deciding
        if choosing:
            loss = loss - STAKES * expected_score(network, batch, worth[drawn])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()


def blurred(rows: Sequences, spread: dict[str, Tensor], generator: torch.Generator) -> Sequences:
    """With noise on what was measured."""
    observation = dict(rows.observation)
    for name, deviation in spread.items():
        noise = torch.randn(observation[name].shape, generator=generator)
        observation[name] = observation[name] + NOISE * deviation * noise * observation[f"{name}_valid"]
    return rows._replace(observation=observation)


def first_network(tasks: Sequence[TableTask], seed: int) -> ControllerNetwork:
    """Both stages, from newborn weights."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive(seed, "controller"))
        network = ControllerNetwork(FIELDS)
    lockstep = Lockstep(tasks)
    seeds = [derive(seed, "imitated", place) % 2**31 for place in range(EPISODES)]
    parts = [ranker_plays(tasks, lockstep, seeds[first : first + TOGETHER]) for first in range(0, EPISODES, TOGETHER)]
    rows, worth = join([part for part, _ in parts]), torch.cat([worth for _, worth in parts])
    generator = torch.Generator().manual_seed(derive(seed, "first weights"))
    for choosing in (False, True):
        learn(network, rows, worth, choosing, generator)
    return network


def main() -> None:
    """Learn, write, and say what it is worth."""
    parser = argparse.ArgumentParser(description="Make first weights for a controller.")
    parser.add_argument("out", type=Path, help="the checkpoint to write")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    network: Network = first_network(table_tasks(TRAINING), arguments.seed)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    save_checkpoint(arguments.out, Learner(network, USUAL.ppo), {})
    print(f"{arguments.out}: {greedy_score(network, table_tasks(JUDGED)):+.2f} points in the tables of {JUDGED}")


if __name__ == "__main__":
    main()
