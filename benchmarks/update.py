"""What one update and one decision of the recurrent learner cost. Interleaved, medians, one thread.

    python benchmarks/update.py         # prints the table; about a minute on one core (needs the extra `benchmark`)

One update is 8 rows of 150 steps, observations of 128 numbers, eight masked heads, hidden layers, critic and memory of
128, 4 passes with one minibatch. It is compared with

- `by hand`: the least that such an update can be with an LSTM, written below: the same layers, one call of `nn.LSTM`
  for the whole batch that never forgets, one ratio per step, advantages given. Goal for ours with an LSTM, with
  episodes that start inside the rows and everything else that `Learner.update` does: at most 1.15 of it. The other
  kinds of memory are laid beside it.
- `RecurrentPPO.train()` of sb3-contrib, without masks, on episodes of the same lengths; its LSTM shared between actor
  and critic (which sends no gradient into it), or one for each, which is its default.

One decision is `act` for 8 rows. Goal: at most 1 ms.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import Tensor, nn

from esper.rl import MEMORIES, Learner, PPOConfig, Sequences, VectorConfig, VectorNetwork, act

ROWS, STEPS, INPUTS, SIZE, PASSES = 8, 150, 128, 128, 4
SIZES = (6, 3, 7, 4, 3, 3, 4, 5)
SHAPE = (len(SIZES), max(SIZES))
OURS = "ours with lstm, 3 to 5 episodes a row"
UPDATE_GOAL, ACT_GOAL = 1.15, 1.0


def seconds(run: Callable[[], object]) -> float:
    """Processor time of one call: with one thread the same as wall time, without what others do to a busy machine."""
    start = time.process_time()
    run()
    return time.process_time() - start


def interleaved(repeats: int, *runs: Callable[[], object]) -> list[float]:
    """The median time of each in milliseconds, measured in turns so that a busy moment hits all alike."""
    for run in runs:
        run()
    times = [[1000 * seconds(run) for run in runs] for _ in range(repeats)]
    return [median(column) for column in zip(*times, strict=True)]


def starting_steps(inside: bool, generator: torch.Generator) -> Tensor:
    """(rows, steps): every row starts an episode at its first step, and with `inside` two to four more later."""
    starts = torch.zeros(ROWS, STEPS, dtype=torch.bool)
    starts[:, 0] = True
    for row in starts if inside else ():
        more = int(torch.randint(2, 5, (1,), generator=generator))
        row[1 + torch.randperm(STEPS - 1, generator=generator)[:more]] = True
    return starts


def experience(network: VectorNetwork, starts: Tensor, generator: torch.Generator) -> Sequences:
    """What an untrained policy does in noise, about half of each head's choices legal."""
    mask = torch.rand(ROWS, STEPS, 1, *SHAPE, generator=generator) < 0.5
    mask &= torch.arange(SHAPE[1]) < torch.tensor(SIZES).unsqueeze(-1)
    mask[..., 0] = True
    observation = {"vector": torch.randn(ROWS, STEPS, INPUTS, generator=generator), "mask": mask}
    first = network.memory.start(ROWS)
    made, state = [], first
    for step in range(STEPS):
        now = {name: value[:, step] for name, value in observation.items()}
        made.append(act(network, now, state, starts[:, step], generator))
        state = made[-1].state
    choices, log_probs, free, values = (
        torch.stack(column, dim=1)
        for column in zip(*((one.choices, one.log_probs, one.free, one.values) for one in made), strict=True)
    )
    ends = starts.roll(-1, dims=1)
    return Sequences(
        observation,
        choices=choices,
        log_probs=log_probs,
        free=free,
        values=values,
        rewards=torch.randn(ROWS, STEPS, generator=generator),
        bootstrap=torch.zeros(ROWS, STEPS),
        starts=starts,
        ends=ends,
        valid=torch.ones(ROWS, STEPS, dtype=torch.bool),
        state=first,
    )


class ByHand(nn.Module):
    """The layers of `VectorNetwork`, and an update with nothing that could be left out."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(INPUTS, SIZE)
        self.lstm = nn.LSTM(SIZE, SIZE, batch_first=True)
        self.actor = nn.Linear(SIZE, SHAPE[0] * SHAPE[1])
        self.critic = nn.Sequential(nn.Linear(SIZE, SIZE), nn.Tanh(), nn.Linear(SIZE, 1))
        self.optimizer = torch.optim.Adam(self.parameters(), lr=7e-4, eps=1e-5)

    def update(self, old: Sequences, advantages: Tensor, returns: Tensor) -> None:
        """`PASSES` passes over the whole batch."""
        mask, choices, before = old.observation["mask"].squeeze(2), old.choices.unsqueeze(-1), old.log_probs.sum(dim=-1)
        for _ in range(PASSES):
            features, _ = self.lstm(torch.tanh(self.encoder(old.observation["vector"])))
            logits = self.actor(features).unflatten(-1, SHAPE).masked_fill(~mask, -1e4)
            log_probs = logits.log_softmax(dim=-1)
            ratio = (log_probs.gather(-1, choices).squeeze(-1).sum(dim=-1) - before).exp()
            policy = -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
            value = 0.5 * (self.critic(features).squeeze(-1) - returns).square().mean()
            entropy = -(log_probs.exp() * log_probs).sum(dim=-1).mean()
            self.optimizer.zero_grad()
            (policy + 0.5 * value - 0.01 * entropy).backward()
            nn.utils.clip_grad_norm_(self.parameters(), 1.0)
            self.optimizer.step()


class Noise(gymnasium.Env[NDArray[np.float32], NDArray[np.int64]]):
    """Random observations and rewards, in episodes that end where one row of `starts` says."""

    observation_space = spaces.Box(-np.inf, np.inf, (INPUTS,))
    action_space = spaces.MultiDiscrete(list(SIZES))

    def __init__(self, starts: Tensor) -> None:
        self.starts, self.now = starts.tolist(), 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        return self._seen(), {}

    def step(self, action: NDArray[np.int64]) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        self.now = (self.now + 1) % STEPS
        return self._seen(), float(self.np_random.normal()), self.starts[self.now], False, {}

    def _seen(self) -> NDArray[np.float32]:
        return self.np_random.normal(size=INPUTS).astype(np.float32)


class Encoder(BaseFeaturesExtractor):
    """The first layer of the other two networks, which sb3's policy does not have by itself."""

    def __init__(self, space: spaces.Box) -> None:
        super().__init__(space, SIZE)
        self.layers = nn.Sequential(nn.Linear(INPUTS, SIZE), nn.Tanh())

    def forward(self, observations: Tensor) -> Tensor:
        encoded: Tensor = self.layers(observations)
        return encoded


def recurrent_ppo(starts: Tensor, shared: bool) -> RecurrentPPO:
    """With one rollout collected, so that `train()` can be called again and again."""
    model = RecurrentPPO(
        "MlpLstmPolicy",
        DummyVecEnv([partial(Noise, row) for row in starts]),
        n_steps=STEPS,
        batch_size=ROWS * STEPS,
        n_epochs=PASSES,
        learning_rate=7e-4,
        policy_kwargs={
            "net_arch": {"pi": [], "vf": [SIZE]},
            "lstm_hidden_size": SIZE,
            "features_extractor_class": Encoder,
            "shared_lstm": shared,
            "enable_critic_lstm": not shared,
        },
        seed=0,
        device="cpu",
    )
    model.learn(ROWS * STEPS)
    return model


def policy(kind: str) -> VectorNetwork:
    """Eight heads and a memory of one kind."""
    heads = {f"head{place}": size for place, size in enumerate(SIZES)}
    return VectorNetwork(INPUTS, heads, config=VectorConfig(SIZE, SIZE, SIZE, memory_kind=kind))


def learning(kind: str, starts: Tensor, generator: torch.Generator) -> Callable[[], object]:
    """One update of ours."""
    network = policy(kind)
    config = PPOConfig(epochs=PASSES, minibatches=1, target_kl=float("inf"), max_gradient_norm=1.0)
    return partial(Learner(network, config).update, experience(network, starts, generator))


def updates(repeats: int) -> list[tuple[str, float]]:
    """Milliseconds of one update of each."""
    generator = torch.Generator().manual_seed(0)
    starts, single = (starting_steps(inside, generator) for inside in (True, False))
    advantages, returns = torch.randn(2, ROWS, STEPS, generator=generator)
    whole = experience(policy("lstm"), single, generator)
    runs: dict[str, Callable[[], object]] = {
        "by hand, memory never wiped": partial(ByHand().update, whole, advantages, returns),
        OURS: learning("lstm", starts, generator),
        "ours with lstm, one episode a row": learning("lstm", single, generator),
        "ours with linear (the default), 3 to 5 episodes a row": learning("linear", starts, generator),
        "ours with gru, 3 to 5 episodes a row": learning("gru", starts, generator),
        "RecurrentPPO, shared LSTM": recurrent_ppo(starts, shared=True).train,
        "RecurrentPPO, default": recurrent_ppo(starts, shared=False).train,
    }
    return list(zip(runs, interleaved(repeats, *runs.values()), strict=True))


def decision(kind: str, repeats: int) -> float:
    """Milliseconds of one decision for all rows."""
    generator, network = torch.Generator().manual_seed(0), policy(kind)
    mask = (torch.arange(SHAPE[1]) < torch.tensor(SIZES).unsqueeze(-1)).expand(ROWS, 1, *SHAPE)
    seen = {"vector": torch.randn(ROWS, INPUTS, generator=generator), "mask": mask}
    state, starts = network.memory.start(ROWS), torch.zeros(ROWS, dtype=torch.bool)
    return interleaved(100 * repeats, lambda: act(network, seen, state, starts, generator))[0]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measure one update and one decision of the recurrent learner.")
    parser.add_argument("--repeats", type=int, default=20, help="updates per figure (default %(default)s)")
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    print("| measure | milliseconds | ratio to the first line | goal |\n|---|---|---|---|")
    found = updates(repeats)
    for name, time_taken in found:
        goal = f"≤ {UPDATE_GOAL}" if name == OURS else ""
        print(f"| update: {name} | {time_taken:.1f} | {time_taken / found[0][1]:.2f} | {goal} |")
    for kind in MEMORIES:
        print(f"| decision for {ROWS} rows with {kind} | {decision(kind, repeats):.2f} | | ≤ {ACT_GOAL:g} ms |")


if __name__ == "__main__":
    main()
