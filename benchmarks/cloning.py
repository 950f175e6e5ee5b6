"""How much of what a policy does a clone repeats, and whether it is worth as much.

    python benchmarks/cloning.py heuristic           # about 15 minutes of a core
    python benchmarks/cloning.py ranker --episodes 800

The policy plays in the world of tables on the tasks of `surveys/small.parquet`, at rents drawn anew; a newborn network
imitates it. Told are the held-out decisions that it repeats, those that it does not by what was done in their place and
by how much had been kept or removed before, and the scores of both on the tables of `surveys/small-dev.parquet`, on the
same episodes.
"""

import argparse
import time
from collections import Counter
from dataclasses import replace
from statistics import fmean, stdev

import torch
from offline import Workshop, recorded
from proving_ground import JUDGED, TRAINING
from table_tasks import TableTask, table_tasks
from table_world import TableEnv, play

from esper.contracts import Op
from esper.controller import Learned, Policy
from esper.rl import (
    Episodes,
    EpisodesInMemory,
    Imitation,
    ImitationConfig,
    Network,
    Sequences,
    likeliest,
    log_probabilities,
)
from esper.rl.episodes import begun
from esper.runs.policies import find_policy


def scores(policy: Policy, judged: list[TableTask]) -> list[float]:
    """One episode on each."""
    return [play(TableEnv([task]), policy, place).score for place, task in enumerate(judged)]


class Differences:
    """Which decisions a network does not repeat."""

    def __init__(self, network: Network, episodes: Episodes) -> None:
        self.ops: Counter[tuple[Op, Op]] = Counter()
        """How often each op was followed or replaced by each."""
        self.planted: Counter[tuple[int, bool]] = Counter()
        """Of seeds that both plant: how many were kept or removed before, and whether slot and blueprint agree."""
        for rows in episodes.batches(64, torch.Generator().manual_seed(0)):
            self._count(network, begun(rows, network))

    def _count(self, network: Network, rows: Sequences) -> None:
        with torch.no_grad():
            encoded = network.encode(rows.observation, rows.state, rows.starts)
            logits, mask = network.logits(encoded, rows.observation, 0, rows.choices)
        ops, made = log_probabilities(logits, mask).argmax(dim=-1).squeeze(-1), rows.choices[..., 0]
        agreed = (likeliest(network, rows) | ~rows.free).all(dim=-1)
        ended = (made == Op.FOSSILIZE) | (made == Op.PRUNE)
        before = ended.long().cumsum(dim=1)
        for row, step in (rows.free.any(dim=-1) & rows.valid).nonzero().tolist():
            theirs, ours = Op(int(made[row, step])), Op(int(ops[row, step]))
            self.ops[theirs, ours] += 1
            if theirs == ours == Op.GERMINATE:
                self.planted[min(int(before[row, step]), 4), bool(agreed[row, step])] += 1

    def __str__(self) -> str:
        lines = [f"{theirs.name} became {ours.name}: {count}" for (theirs, ours), count in self.ops.most_common()]
        for lessons in range(5):
            right, wrong = self.planted[lessons, True], self.planted[lessons, False]
            lines.append(f"planted alike after {lessons} seeds were kept or removed: {right} of {right + wrong}")
        return "\n".join(lines)


def main() -> None:
    """Record, imitate, compare."""
    parser = argparse.ArgumentParser(description="Clone a policy.")
    parser.add_argument("policy")
    parser.add_argument("--episodes", type=int, default=6000, help="default: %(default)s")
    parser.add_argument("--passes", type=int, default=30, help="default: %(default)s")
    parser.add_argument("--batch", type=int, default=32, help="default: %(default)s")
    parser.add_argument("--learning-rate", type=float, default=2e-3, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    given = parser.parse_args()
    torch.set_num_threads(1)
    tasks, judged = table_tasks(TRAINING), table_tasks(JUDGED)
    shop, teacher = Workshop(given.seed, tasks), find_policy(given.policy)
    rows = recorded(teacher, tasks, shop.lockstep, given.seed, given.episodes)
    training, held_out = EpisodesInMemory(rows).split(0.1, torch.Generator().manual_seed(given.seed))
    network, started = shop.nothing(), time.process_time()
    config = replace(
        ImitationConfig(), passes=given.passes, batch=given.batch, learning_rate=given.learning_rate, seed=given.seed
    )
    found = Imitation(network, config).learn(
        training,
        held_out,
        lambda now: print(f"pass {now.number}: {now.held_out.surprise:.4f} {now.held_out.repeated:.2%}", flush=True),
    )
    seconds = time.process_time() - started
    clone, original = scores(Learned(network, greedy=True), judged), scores(teacher, judged)
    differences = [one - other for one, other in zip(clone, original, strict=True)]
    half = 1.96 * stdev(differences) / len(differences) ** 0.5
    print(f"{given.policy}, seed {given.seed}: {found}\n{Differences(network, held_out)}")
    print(f"repeated {found.repeated:.2%} of {found.decisions} held-out decisions after {seconds:.0f} s of a core")
    print(f"score {fmean(clone):+.2f}, original {fmean(original):+.2f}, less {fmean(differences):+.2f} ± {half:.2f}")


if __name__ == "__main__":
    main()
