"""Our implicit Q-learning beside that of d3rlpy, on the very same recorded episodes of Pendulum-v1.

    python benchmarks/pendulum_offline.py            # 5 seeds: about 6 minutes of a core

d3rlpy (2.8.1) pins an older gymnasium than ours and works with ours; it is installed in a place of its own:

    python -m venv --system-site-packages d3 && d3/bin/pip install d3rlpy==2.8.1 && d3/bin/pip uninstall gymnasium

Recorded is a swing-up by energy that is disturbed: in a third of the episodes always, in a third half of the time, in a
third never, by torques that are drawn anew every ten steps; and noise on every torque. Each seed has its own recording,
first weights and order. Torques are real numbers; `iql of nine torques` is told the nearest of nine and chooses among
these. Policies have two hidden layers of 64, rectified; so have V and Q of d3rlpy, where ours have one and two more,
as they have for controllers. All see as many transitions. Judged are 20 greedy episodes. Rows go to
`benchmarks/results/pendulum_offline.csv`; what is there stays.
`faster` has our learning rate in place of its own.
"""

import argparse
import csv
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from proving_ground import _interval

from esper.rl import (
    IQL,
    PPO,
    DecisionJudge,
    EpisodesInMemory,
    Imitation,
    ImitationConfig,
    IQLConfig,
    MemoryState,
    Network,
    Sequences,
    VectorConfig,
)

TASK, LENGTH, TORQUE = "Pendulum-v1", 200, 2.0
TORQUES = np.linspace(-TORQUE, TORQUE, 9, dtype=np.float32)
RESULTS = Path(__file__).parent / "results" / "pendulum_offline.csv"
EPISODES, JUDGED = 120, range(1000, 1020)
STEPS, BATCH, PIECE = 2000, 32, 10
"""Of ours: without a memory there is nothing to carry over, so episodes are cut into pieces of ten steps, 320
transitions in a step of the optimiser, of which 288 have a next one."""
THEIR_STEPS, THEIR_BATCH = 2000, 300
DISCOUNT, EXPECTILE, HIDDEN = 0.99, 0.8, 64
Vector = NDArray[np.float32]


class Recorded(NamedTuple):
    """Episodes of equal length, all cut at their end."""

    seen: Vector
    """(episodes, 200, 3)."""
    torques: Vector
    """(episodes, 200, 1)."""
    rewards: Vector


def swing(seen: Vector) -> float:
    """The torque of a swing-up by energy, which balances near the top."""
    cosine, sine, speed = map(float, seen)
    angle = float(np.arctan2(sine, cosine))
    if abs(angle) < 0.5:
        return float(np.clip(-12.0 * angle - 3.0 * speed, -TORQUE, TORQUE))
    missing = 15.0 - (speed**2 / 2 + 15.0 * cosine)
    return float(np.clip(0.2 * speed * missing, -TORQUE, TORQUE))


def record(seed: int) -> Recorded:
    """The episodes of one seed."""
    draws, env = np.random.default_rng(seed), gymnasium.make(TASK)
    seen = np.zeros((EPISODES, LENGTH, 3), np.float32)
    torques, rewards = np.zeros((EPISODES, LENGTH, 1), np.float32), np.zeros((EPISODES, LENGTH), np.float32)
    for episode in range(EPISODES):
        disturbed = (0.0, 0.5, 1.0)[episode % 3]
        observation, _ = env.reset(seed=int(draws.integers(2**31)))
        for step in range(LENGTH):
            if step % 10 == 0:
                lost, held = draws.random() < disturbed, draws.uniform(-TORQUE, TORQUE)
            torque = (held if lost else swing(observation)) + 0.3 * draws.standard_normal()
            seen[episode, step], torques[episode, step] = observation, np.clip(torque, -TORQUE, TORQUE)
            observation, reward, _, _, _ = env.step(torques[episode, step])
            rewards[episode, step] = reward
    return Recorded(seen, torques, rewards)


def returns(act: Callable[[Vector], Any]) -> float:
    """The mean return of greedy episodes."""
    env, found = gymnasium.make(TASK), []
    for seed in JUDGED:
        observation, _ = env.reset(seed=seed)
        total = 0.0
        for _ in range(LENGTH):
            observation, reward, _, _, _ = env.step(np.asarray(act(observation), np.float32).reshape(1))
            total += float(reward)
        found.append(total)
    return fmean(found)


def nine_torques() -> gymnasium.Env[Any, Any]:
    """The pendulum with torques to choose from."""
    env = gymnasium.make(TASK)
    choices = gymnasium.spaces.Discrete(len(TORQUES))
    return gymnasium.wrappers.TransformAction(env, lambda choice: TORQUES[choice : choice + 1], choices)


def newborn(seed: int, choices: bool) -> PPO:
    """An agent without a memory, of whom the network is what matters."""
    sizes = VectorConfig(hidden=HIDDEN, memory=0, critic=HIDDEN, activation="relu", encoder=lambda space: Layer())
    return PPO(nine_torques if choices else TASK, seed=seed, environments=1, network=sizes)


class Layer(torch.nn.Module):
    """The first of two hidden layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, HIDDEN)

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(seen))


def rows_of(recorded: Recorded, network: Network) -> Sequences:
    """As our learners read them, in pieces; what follows a piece is not known."""
    shape = recorded.rewards.size // PIECE, PIECE
    first, last = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.bool)
    first[:, 0], last[:, -1] = True, True
    nothing, nearest = torch.zeros(shape), abs(recorded.torques - TORQUES).argmin(axis=-1)
    done = recorded.torques / TORQUE if network.continuous else nearest
    state: MemoryState = network.memory.start(shape[0])
    return Sequences(
        observation={
            "vector": torch.from_numpy(recorded.seen).view(*shape, 3),
            "mask": torch.ones(*shape, 1, 1, len(TORQUES), dtype=torch.bool),
        },
        choices=torch.from_numpy(done).view(*shape, 1),
        log_probs=nothing.unsqueeze(-1),
        free=torch.ones(*shape, 1, dtype=torch.bool),
        values=nothing,
        rewards=torch.from_numpy(recorded.rewards).view(shape),
        bootstrap=nothing + last * float(recorded.rewards.mean()) / (1 - DISCOUNT),
        starts=first,
        ends=last,
        valid=torch.ones(shape, dtype=torch.bool),
        state=state,
    )


def greedy(agent: PPO) -> float:
    """What it returns."""
    if agent.network.continuous:
        return returns(lambda seen: agent.predict(seen)[0])
    return returns(lambda seen: TORQUES[agent.predict(seen)[0]])


def ours(recorded: Recorded, seed: int, choices: bool = False) -> float:
    """Implicit Q-learning."""
    agents = [newborn(seed + 100 * place, choices) for place in range(3)]
    rows = rows_of(recorded, agents[0].network)
    for agent in agents:
        agent.network.take_in(rows.observation, rows.valid)
    torch.manual_seed(seed)
    judges = DecisionJudge(agents[1].network, HIDDEN), DecisionJudge(agents[2].network, HIDDEN)
    config = IQLConfig(seed=seed, steps=STEPS, batch=BATCH, discount=DISCOUNT, expectile=EXPECTILE)
    IQL(agents[0].network, judges, config).learn(EpisodesInMemory(rows))
    return greedy(agents[0])


def clone(recorded: Recorded, seed: int) -> float:
    """Imitation."""
    agent = newborn(seed, choices=False)
    rows = rows_of(recorded, agent.network)
    agent.network.take_in(rows.observation, rows.valid)
    training, held_out = EpisodesInMemory(rows).split(0.1, torch.Generator().manual_seed(seed))
    Imitation(agent.network, ImitationConfig(seed=seed, batch=BATCH, passes=40)).learn(training, held_out)
    return greedy(agent)


def d3rlpy(recorded: Recorded, seed: int, learning_rate: float = 3e-4) -> float:
    """Theirs, with sizes and expectile of ours and the rest as it comes."""
    import d3rlpy as theirs  # in an environment of its own

    theirs.seed(seed)
    data = [
        theirs.dataset.Episode(seen, torques, rewards[:, None], terminated=False)
        for seen, torques, rewards in zip(*recorded, strict=True)
    ]
    factory = theirs.models.VectorEncoderFactory([HIDDEN, HIDDEN])
    names = ("actor_encoder_factory", "critic_encoder_factory", "value_encoder_factory")
    learner = theirs.algos.IQLConfig(
        batch_size=THEIR_BATCH,
        gamma=DISCOUNT,
        expectile=EXPECTILE,
        actor_learning_rate=learning_rate,
        critic_learning_rate=learning_rate,
        observation_scaler=theirs.preprocessing.StandardObservationScaler(),
        reward_scaler=theirs.preprocessing.ReturnBasedRewardScaler(multiplier=100.0),
        action_scaler=theirs.preprocessing.MinMaxActionScaler(),
        **dict.fromkeys(names, factory),
    ).create(device="cpu:0")
    buffer = theirs.dataset.create_infinite_replay_buffer(data)
    learner.fit(
        buffer,
        n_steps=THEIR_STEPS,
        n_steps_per_epoch=THEIR_STEPS,
        show_progress=False,
        logger_adapter=theirs.logging.NoopAdapterFactory(),
    )
    return returns(lambda seen: learner.predict(seen[None])[0])


LEARNERS: dict[str, Callable[[Recorded, int], float]] = {
    "recorded": lambda recorded, seed: float(recorded.rewards.sum(axis=1).mean()),
    "imitation": clone,
    "iql": ours,
    "iql of nine torques": lambda recorded, seed: ours(recorded, seed, choices=True),
    "iql of d3rlpy": d3rlpy,
    "iql of d3rlpy, faster": lambda recorded, seed: d3rlpy(recorded, seed, learning_rate=1e-3),
}


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(description="Compare learners on recorded episodes of a pendulum.")
    parser.add_argument("--learners", nargs="+", choices=list(LEARNERS), default=list(LEARNERS), help="default: all")
    parser.add_argument("--seeds", type=int, default=5, help="(default %(default)s)")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=RESULTS, help="default: %(default)s")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    fresh = not arguments.results.exists()
    with arguments.results.open("a+", newline="", encoding="utf-8") as file:
        file.seek(0)
        rows = [] if fresh else list(csv.reader(file))[1:]
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([("learner", "seed", "return", "seconds")] * fresh)
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
            recorded = record(seed)
            for name in arguments.learners:
                if [name, str(seed)] in [row[:2] for row in rows]:
                    continue
                started = time.process_time()
                total = LEARNERS[name](recorded, seed)
                rows.append([name, str(seed), f"{total:.1f}", f"{time.process_time() - started:.1f}"])
                writer.writerow(rows[-1])
                file.flush()
                print(*rows[-1], flush=True)
    print("| learner | seeds | return | seconds of a core |\n|---|---|---|---|")
    for name in LEARNERS:
        own = [row for row in rows if row[0] == name]
        if own:
            totals, seconds = ([float(row[column]) for row in own] for column in (2, 3))
            print(f"| {name} | {len(own)} | {_interval(totals)} | {fmean(seconds):.0f} |")


if __name__ == "__main__":
    main()
