"""Recurrent PPO learns gymnasium environments: vectors, images, dictionaries; choices, many heads, real numbers.

    python examples/ppo_on_gymnasium.py                       # CartPole, half a minute on one core
    python examples/ppo_on_gymnasium.py --hide-velocity       # what it must now remember is not in the observation
    python examples/ppo_on_gymnasium.py --env Pendulum-v1 --steps 100000
    python examples/ppo_on_gymnasium.py --save agent.pt       # and again with --load agent.pt, to go on exactly

Without its velocities CartPole cannot be balanced by looking at the present alone: a policy without memory (try
`network=VectorConfig(memory=0)` below) stays below a return of about 50 of 500.
"""

import argparse
from statistics import fmean
from typing import Any

import gymnasium
import torch
from numpy.typing import NDArray

from esper.rl import PPO, LearningProgress


class HideVelocity(gymnasium.ObservationWrapper[NDArray[Any], Any, NDArray[Any]]):
    """CartPole seen as in a photograph: where the cart is and how the pole leans, not where they are going."""

    def __init__(self, env: gymnasium.Env[NDArray[Any], Any]) -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, gymnasium.spaces.Box) or space.shape != (4,):
            raise SystemExit("--hide-velocity is for CartPole, whose observation has four numbers")
        self.observation_space = gymnasium.spaces.Box(space.low[::2], space.high[::2])

    def observation(self, observation: NDArray[Any]) -> NDArray[Any]:
        return observation[::2]


def show(progress: LearningProgress) -> None:
    """One line per update in which an episode ended."""
    if progress.returns:
        print(f"step {progress.steps:>7}   mean return while exploring {fmean(progress.returns):7.1f}", flush=True)


def main() -> None:
    """Train and evaluate."""
    parser = argparse.ArgumentParser(description="Train recurrent PPO on a gymnasium environment.")
    parser.add_argument("--env", default="CartPole-v1", help="name of the environment (default %(default)s)")
    parser.add_argument("--steps", type=int, default=50_000, help="environment steps in all (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="default %(default)s")
    parser.add_argument("--hide-velocity", action="store_true", help="CartPole: hide both velocities")
    parser.add_argument("--save", metavar="FILE", help="write the agent to this file at the end")
    parser.add_argument("--load", metavar="FILE", help="go on with the agent of this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    def make() -> gymnasium.Env[Any, Any]:
        env: gymnasium.Env[Any, Any] = gymnasium.make(arguments.env)
        return HideVelocity(env) if arguments.hide_velocity else env

    agent = PPO.load(arguments.load, make) if arguments.load else PPO(make, seed=arguments.seed)
    agent.learn(until=arguments.steps, callback=show)
    if arguments.save:
        agent.save(arguments.save)
    returns = agent.evaluate(episodes=20)
    print(f"mean greedy return of {len(returns)} episodes: {fmean(returns):.1f}")


if __name__ == "__main__":
    main()
