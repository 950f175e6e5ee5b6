"""A hand-written player takes the default task through its real masks, gates and rewards.

Run it with `python examples/oracle.py`, or `--seeds 10` for the table in docs/log.md.

The oracle germinates the same blueprint in `block1` and `block2` and advances as fast as the gates allow. It is what a
learned controller has to find, and the proof that there is something to find: if this player does not earn more than
waiting, no learning algorithm is to blame.
"""

import argparse
from statistics import fmean

import torch

from esper.contracts import ADVANCES_TO, WAIT, Action, Op, SlotSnapshot, Stage
from esper.environment import GrowEnv


def wish(slot: SlotSnapshot, blueprint: str) -> Action | None:
    """The next operation in this slot's life, legal or not yet."""
    if slot.stage is Stage.DORMANT:
        return Action(Op.GERMINATE, slot.slot, blueprint=blueprint)
    if slot.stage is Stage.HOLDING:
        return Action(Op.FOSSILIZE, slot.slot)
    return Action(Op.ADVANCE, slot.slot) if slot.stage in ADVANCES_TO else None


def choose(env: GrowEnv, slots: tuple[str, ...], blueprint: str) -> Action:
    """The first wish that the gates grant."""
    assert env.episode is not None
    wishes = [wish(slot, blueprint) for slot in env.episode.snapshot.slots if slot.slot in slots]
    granted = (action for action in wishes if action is not None and env.episode.body.judge(action))
    return next(granted, WAIT)


def play(env: GrowEnv, seed: int, slots: tuple[str, ...], blueprint: str) -> tuple[float, float, float]:
    """Final evaluation accuracy, growth, and the sum of rewards."""
    env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        _, reward, terminated, truncated, info = env.step(env.codec.encode(choose(env, slots, blueprint)))
        total, over = total + reward, terminated or truncated
    assert env.episode is not None
    host = env.episode.snapshot.host
    return info["accuracy"], host.total_parameters / host.parameters, total


def main() -> None:
    """Play all players on the same seeds."""
    parser = argparse.ArgumentParser(description="Play the default task by hand-written rules.")
    parser.add_argument("--seeds", type=int, default=2, help="episodes per player (default %(default)s)")
    seeds = range(parser.parse_args().seeds)
    torch.set_num_threads(1)
    env = GrowEnv("digits-pointwise", reward_mode="twin")
    players = {
        "waits": ((), "norm"),
        "one conv_light": (("block1",), "conv_light"),
        "two conv_light": (("block1", "block2"), "conv_light"),
        "two conv_heavy": (("block1", "block2"), "conv_heavy"),
    }
    print(f"{'player':<16} {'accuracy':>9} {'lowest':>8} {'growth':>7} {'return':>7}   over {len(seeds)} seeds")
    for name, (slots, blueprint) in players.items():
        results = [play(env, seed, slots, blueprint) for seed in seeds]
        accuracies, growths, returns = zip(*results, strict=True)
        figures = f"{fmean(accuracies):>9.1%} {min(accuracies):>8.1%} {fmean(growths):>6.1f}x {fmean(returns):>7.3f}"
        print(f"{name:<16} {figures}", flush=True)


if __name__ == "__main__":
    main()
