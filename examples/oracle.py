"""A hand-written player takes the default task through its real masks, gates and rewards.

Run it with `python examples/oracle.py`, or `--seeds 10` for the table in docs/log.md.

The oracle germinates the same blueprint in `block1` and `block2` and advances as fast as the gates allow. It is what a
learned controller has to find, and the proof that there is something to find: if this player does not earn more than
waiting, no learning algorithm is to blame.
"""

import argparse
from statistics import fmean

import torch

from esper.controller import NoGrowth, Policy, Schedule, ScheduledSeed
from esper.environment import GrowEnv


def oracle(blueprint: str, *slots: str) -> Schedule:
    """Germinates the blueprint in each slot, from the first epoch on."""
    return Schedule(tuple(ScheduledSeed(0, slot, blueprint) for slot in slots))


def play(env: GrowEnv, policy: Policy, seed: int) -> tuple[float, float, float]:
    """Final evaluation quality, growth, and the sum of rewards."""
    observation, _ = env.reset(seed=seed)
    state, generator = policy.start(env.codec), torch.Generator().manual_seed(seed)
    total, over = 0.0, False
    while not over:
        decision, state = policy.act(observation, state, generator)
        observation, reward, terminated, truncated, info = env.step(decision.choices)
        total, over = total + reward, terminated or truncated
    assert env.episode is not None
    host = env.episode.snapshot.host
    return info["quality"], host.total_parameters / host.parameters, total


def main() -> None:
    """Play all players on the same seeds."""
    parser = argparse.ArgumentParser(description="Play the default task by hand-written rules.")
    parser.add_argument("--seeds", type=int, default=2, help="episodes per player (default %(default)s)")
    seeds = range(parser.parse_args().seeds)
    torch.set_num_threads(1)
    env = GrowEnv("digits-pointwise", reward_mode="twin")
    players: dict[str, Policy] = {
        "waits": NoGrowth(),
        "one conv_light": oracle("conv_light", "block1"),
        "two conv_light": oracle("conv_light", "block1", "block2"),
        "two conv_heavy": oracle("conv_heavy", "block1", "block2"),
    }
    print(f"{'player':<16} {'quality':>9} {'lowest':>8} {'growth':>7} {'return':>7}   over {len(seeds)} seeds")
    for name, policy in players.items():
        results = [play(env, policy, seed) for seed in seeds]
        qualities, growths, returns = zip(*results, strict=True)
        figures = f"{fmean(qualities):>9.1%} {min(qualities):>8.1%} {fmean(growths):>6.1f}x {fmean(returns):>7.3f}"
        print(f"{name:<16} {figures}", flush=True)


if __name__ == "__main__":
    main()
