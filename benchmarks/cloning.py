"""How much of what a policy does a clone repeats, and whether it is worth as much.

    python benchmarks/cloning.py heuristic           # about 3 minutes of a core
    python benchmarks/cloning.py ranker --episodes 800

The policy plays in the world of tables on the tasks of `surveys/small.parquet`, at rents drawn anew; a newborn network
imitates it. Told are the held-out decisions that it repeats, and the scores of both on the tables of
`surveys/small-dev.parquet`, on the same episodes.
"""

import argparse
import time
from dataclasses import replace
from statistics import fmean, stdev

import torch
from offline import Workshop, recorded
from proving_ground import JUDGED, TRAINING
from table_tasks import TableTask, table_tasks
from table_world import TableEnv, play

from esper.controller import Learned, Policy
from esper.rl import EpisodesInMemory, Imitation, ImitationConfig
from esper.runs.policies import find_policy


def scores(policy: Policy, judged: list[TableTask]) -> list[float]:
    """One episode on each."""
    return [play(TableEnv([task]), policy, place).score for place, task in enumerate(judged)]


def main() -> None:
    """Record, imitate, compare."""
    parser = argparse.ArgumentParser(description="Clone a policy.")
    parser.add_argument("policy")
    parser.add_argument("--episodes", type=int, default=2000, help="default: %(default)s")
    parser.add_argument("--passes", type=int, default=20, help="default: %(default)s")
    parser.add_argument("--batch", type=int, default=16, help="default: %(default)s")
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
    print(f"{given.policy}, seed {given.seed}: {found}")
    print(f"repeated {found.repeated:.2%} of {found.decisions} held-out decisions after {seconds:.0f} s of a core")
    print(f"score {fmean(clone):+.2f}, original {fmean(original):+.2f}, less {fmean(differences):+.2f} ± {half:.2f}")


if __name__ == "__main__":
    main()
