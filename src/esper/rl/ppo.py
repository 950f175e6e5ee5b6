"""An agent for `gymnasium` environments: recurrent PPO with masks and factored heads.

Masks are optional, in `info["action_mask"]` or from a method `action_masks()` of the environment: one entry per choice,
the heads one behind the other. With `dependent_masks` there is one such row per choice of the first head: row k holds
for the other heads when the first one chose k, and the first head itself goes by row 0.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv

from esper.rl.acting import Acted, act, replay, value_of
from esper.rl.agent_checkpoint import Saved, plain_space, require_same_network
from esper.rl.agent_network import Heads, network_for, plain_heads
from esper.rl.checkpoint import load_checkpoint, restore, restore_weights, save_checkpoint
from esper.rl.config import PPOConfig, whole
from esper.rl.environments import Absent, EnvSource, MakeEnv, NoEnvironment
from esper.rl.errors import DiscountMismatch, RLError, WrongShape
from esper.rl.learner import Learner
from esper.rl.memory import MemoryState
from esper.rl.network import MakeEncoder, VectorConfig
from esper.rl.progress import Callback, LearningProgress, shown
from esper.rl.rows import EVALUATION, Env, Interface, Rows
from esper.rl.seats import Seats
from esper.rl.sequences import Buffer, Sequences
from esper.rl.vector_environments import VectorSource

AnyEnv = str | MakeEnv | Env | VectorEnv[Any, Any, Any]


class PPO:
    """Recurrent PPO with masks and factored heads.

    >>> agent = PPO("CartPole-v1", seed=0, environments=2, steps=16).learn(64)
    >>> agent.steps, len(agent.evaluate(episodes=2))
    (64, 2)
    """

    def __init__(  # noqa: PLR0913 # what an agent is made of, each by its name
        self,
        env: AnyEnv | Absent,
        *,
        seed: int = 0,
        environments: int | None = None,
        steps: int = 128,
        config: PPOConfig | None = None,
        network: VectorConfig | MakeEncoder | None = None,
        heads: Heads | None = None,
        dependent_masks: bool = False,
        device: str | torch.device = "cpu",
    ) -> None:
        """`steps` of each of `environments` (8, or those of a vector environment) make a rollout.

        `heads` names the heads in order, each with the choices of the first head under which it is used; the first
        head is always used, so its own list is not read. Without it all heads are always used.
        `network` has the sizes, or is a function that makes a module of your own for an observation space.
        """
        self.source = _source_of(env)
        self.environments = rows = whole("environments", self.source.count(environments), 1)
        self.rollout_steps, self.seed = whole("steps", steps, 1), whole("seed", seed, 0)
        self.config = PPOConfig() if config is None else config
        if not isinstance(self.config, PPOConfig):
            raise RLError(f"config = {config!r}; give its settings by name, as in PPOConfig(learning_rate=3e-4)")
        _require_same_discount(self.source.discount, self.config)
        self.heads = plain_heads(heads)
        self.sizes = network if isinstance(network, VectorConfig) else VectorConfig(encoder=network)
        self.device = device_named(device)
        self.interface = Interface.of(
            self.source.observation_space, self.source.action_space, dependent_masks, self.device
        )
        self.network = network_for(self.interface, self.heads, self.sizes, seed)
        if self.network.continuous and self.config.exploration:
            raise RLError(
                f"exploration = {self.config.exploration} is for choices; actions are real numbers, so give 0"
            )
        self.learner = Learner(self.network, self.config, seed)
        self.generator = torch.Generator(self.device).manual_seed(seed + 1)
        self.predicting = torch.Generator(self.device).manual_seed(seed + 2)
        self.state = self.network.memory.start(rows)
        self.starts = torch.ones(rows, dtype=torch.bool, device=self.device)
        self.course = (0, 0)
        """Between which numbers of steps learning rate and entropy anneal."""
        self.buffer: Buffer | None = None
        self.rows: Rows | None = None
        if not isinstance(self.source, Absent):
            self.rows = self.source.rows(rows, self.interface, seed)
            self.rows.restart()

    @property
    def steps(self) -> int:
        """Environment steps learned from so far."""
        return self.learner.counters.environment_steps

    def learn(
        self,
        total_timesteps: int | None = None,
        callback: Callback | None = None,
        progress_bar: bool = False,
        *,
        until: int | None = None,
        tensorboard_log: str | Path | None = None,
    ) -> "PPO":
        """Train for `total_timesteps` more steps, or `until` there have been so many in all; whole rollouts.

        Learning rate and entropy anneal over these steps: with `total_timesteps` from the first step of this call, with
        `until` from the first step of all. With neither, what an earlier call began is finished. Ends early when
        `callback` returns False.
        """
        rows = self._rows()
        if callback is not None and not callable(callback):
            raise RLError(f"callback = {callback!r}; give a function, which is called with a LearningProgress")
        self.course = self._course(total_timesteps, until)
        begun, end = self.course
        with shown(self.steps, end, progress_bar, tensorboard_log) as show:
            while self.steps < end:
                returns = self._collect(rows)
                sequences, fresh = self._buffer().sequences(), self.network.newborn
                if fresh:
                    sequences = self._at_first_scale(sequences)
                metrics = self.learner.update(sequences, progress=(self.steps - begun) / (end - begun))
                if not fresh:
                    # Behind the update, which sees observations at the scale at which they were acted on.
                    self.network.take_in(sequences.observation, sequences.valid)
                progress = LearningProgress(self.steps, end, tuple(returns), metrics)
                show(progress)
                if callback is not None and callback(progress) is False:
                    break
        return self

    def _at_first_scale(self, sequences: Sequences) -> Sequences:
        """The first rollout says what is usually seen, and is judged again by that."""
        self.network.take_in(sequences.observation, sequences.valid)
        with torch.no_grad():
            now = replay(self.network, sequences, self.config.exploration)
        return sequences._replace(log_probs=now.log_probs.masked_fill(~sequences.free, 0.0), values=now.values)

    def _course(self, total: int | None, until: int | None) -> tuple[int, int]:
        if total is not None and until is not None:
            raise RLError("give total_timesteps, which are more steps, or until, which are steps in all; not both")
        if until is not None:
            return 0, whole("until", until, 0)
        if total is not None:
            return self.steps, self.steps + whole("total_timesteps", total, 0)
        if self.steps >= self.course[1]:
            raise RLError("there is no training to finish; say how many steps, as in learn(total_timesteps=100_000)")
        return self.course

    def _rows(self) -> Rows:
        if self.rows is None:
            raise NoEnvironment("the agent was loaded without an environment; give one, as in PPO.load(path, env=...)")
        return self.rows

    def _buffer(self) -> Buffer:
        """Made when it is first needed: an agent that only predicts has none."""
        if self.buffer is None:
            example = {name: value[0] for name, value in self._rows().observation.items()}
            count = len(self.network.heads)
            self.buffer = Buffer(self.environments, self.rollout_steps, example, count, self.network.continuous)
        return self.buffer

    def _collect(self, rows: Rows) -> list[float]:
        """Fill the buffer; returns of the episodes that ended."""
        buffer = self._buffer()
        buffer.begin(self.state)
        returns: list[float] = []
        for _ in range(self.rollout_steps):
            seen = rows.observation
            made = act(self.network, seen, self.state, self.starts, self.generator, self.config.exploration)
            buffer.decide(seen, self.starts, made.choices, made.log_probs, made.free)
            self.state = made.state
            returns += self._step(rows, buffer, made)
        buffer.cut(value_of(self.network, rows.observation, self.state, self.starts))
        return returns

    def _step(self, rows: Rows, buffer: Buffer, made: Acted) -> list[float]:
        """Play one step everywhere."""
        stepped = rows.step(made.choices)
        ends, cut = stepped.terminated | stepped.truncated, stepped.truncated & ~stepped.terminated
        bootstrap = cut.float()
        if stepped.final is not None:
            bootstrap *= value_of(self.network, stepped.final, made.state, torch.zeros_like(self.starts))
        buffer.conclude(made.values, stepped.rewards, ends, bootstrap, stepped.valid)
        # A row that made no step has only begun an episode.
        self.starts = ends if stepped.valid is None else ends | ~stepped.valid
        return stepped.returns

    def evaluate(
        self, episodes: int = 20, seed: int = 10_000, greedy: bool = True, env: AnyEnv | None = None
    ) -> list[float]:
        """Returns of whole episodes in environments of their own; training goes on unmoved."""
        episodes = whole("episodes", episodes, 0)
        if not episodes:
            return []
        generator = None if greedy else torch.Generator(self.device).manual_seed(seed)
        envs = (self.source if env is None else _source_of(env)).take(episodes)
        playing = Seats(envs, self.interface, [(EVALUATION, seed + episode) for episode in range(episodes)])
        playing.restart()
        seats = playing.seats
        state = self.network.memory.start(episodes)
        starts = torch.ones(episodes, dtype=torch.bool, device=self.device)
        while playing.seats:
            made = act(self.network, playing.observation, state, starts, generator)
            going = torch.tensor(playing.play(made.choices), device=self.device)
            state, starts = made.state.take(going), starts.new_zeros(len(playing.seats))
        for seat in seats:
            seat.env.close()
        return [seat.total for seat in seats]

    def predict(
        self,
        observation: Any,
        state: MemoryState | None = None,
        episode_start: Any = None,
        deterministic: bool = True,
        action_masks: Any = None,
    ) -> tuple[Any, MemoryState]:
        """An action, the likeliest one or drawn, and the memory to pass to the next call.

        One observation, or several with an axis for rows in front: then all arguments and the action have it, too.
        No memory starts episodes, and so does `episode_start` in rows where it is True.
        """
        observations, actions, _ = self.interface
        count = observations.rows(observation)
        rows = 1 if count is None else count
        seen = observations.of_each([observation]) if count is None else observations.of_all(observation)
        masks = [None] * rows if action_masks is None else [action_masks] if count is None else list(action_masks)
        starts = np.atleast_1d(np.asarray(state is None if episode_start is None else episode_start, bool))
        memory = self.network.memory.start(rows) if state is None else state
        if not isinstance(memory, MemoryState):
            raise RLError(f"state is a {type(state).__name__}; give what predict returned, or None to begin episodes")
        if len(masks) != rows or starts.shape not in ((1,), (rows,)) or memory.hidden.shape[1] != rows:
            raise WrongShape(f"there are {rows} observations; give masks, memory and episode_start of as many rows")
        made = act(
            self.network,
            seen | actions.masks(masks),
            memory,
            torch.tensor(np.broadcast_to(starts, (rows,)), device=self.device),
            None if deterministic else self.predicting,
        )
        choices = made.choices.numpy(force=True)
        return actions.action(choices[0]) if count is None else actions.all(choices), made.state

    def save(self, path: str | Path) -> None:
        """Everything needed to go on exactly: learner, random numbers, memory, and the unfinished episodes.

        Directories on the way to the file are made.
        """
        path = Path(path)
        if path.is_dir():
            raise RLError(f"{path} is a directory; give the name of a file in it")
        path.parent.mkdir(parents=True, exist_ok=True)
        settings = {
            "seed": self.seed,
            "environments": self.environments,
            "steps": self.rollout_steps,
            "env": self.source.name,
            "heads": None if self.heads is None else {name: list(under) for name, under in self.heads.items()},
            "dependent_masks": self.interface.actions.dependent,
            "observation_space": plain_space(self.source.observation_space),
            "action_space": plain_space(self.source.action_space),
        }
        saved = Saved(
            settings=settings,
            sizes=Saved.plain_sizes(self.sizes),
            generator=self.generator.get_state(),
            state=list(self.state),
            starts=self.starts,
            course=list(self.course),
            rows={} if self.rows is None else self.rows.plain(),
        )
        save_checkpoint(path, self.learner, saved.plain())

    @classmethod
    def load(
        cls,
        path: str | Path,
        env: AnyEnv | None = None,
        *,
        network: MakeEncoder | None = None,
        device: str | torch.device = "cpu",
        exact: bool = True,
    ) -> "PPO":
        """The agent that was saved; `learn()` without arguments finishes what it was doing.

        Without `env` the environment is made by its registered name if that is known, else the agent can only predict.
        With `exact` it goes on in the middle of the episodes that were being played, if they can be played again; a
        vector environment begins new ones. A module of your own is given again as `network`.
        """
        checkpoint = load_checkpoint(Path(path))
        saved = Saved.in_checkpoint(checkpoint, path)
        agent = cls(
            saved.source(env, path),
            config=saved.config(checkpoint, path),
            network=saved.network(network, path),
            device=device,
            **saved.arguments(),
        )
        saved.require_same_spaces(agent.source, path)
        require_same_network(checkpoint, agent.network, path)
        restore(checkpoint, agent.learner)
        agent.generator, agent.course = saved.random_numbers(agent.device), (saved.course[0], saved.course[1])
        if agent.rows is not None and agent.rows.rebuild(saved.rows, exact):
            agent.state = type(agent.state)(*saved.memory(agent.device))
            agent.starts.copy_(saved.starts)
        return agent

    def warm_start(self, path: str | Path) -> "PPO":
        """Take the weights of a checkpoint and nothing else: not the optimiser, the counters or the random numbers."""
        checkpoint = load_checkpoint(Path(path))
        require_same_network(checkpoint, self.network, path)
        restore_weights(checkpoint, self.learner)
        return self

    def close(self) -> None:
        """Close the environments."""
        if self.rows is not None:
            self.rows.close()


def _source_of(env: AnyEnv | Absent) -> EnvSource | VectorSource | Absent:
    if isinstance(env, Absent):
        return env
    return VectorSource(env) if isinstance(env, VectorEnv) else EnvSource(env)


def device_named(device: str | torch.device) -> torch.device:
    """The device, if torch can compute on it here."""
    try:
        return torch.zeros(1, device=device).device
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).split(" device type at start")[0].splitlines()[0]
        raise RLError(f"device = {str(device)!r} cannot be used here ({reason}); 'cpu' always can") from None


def _require_same_discount(shaped_for: float | None, config: PPOConfig) -> None:
    """Shaped rewards telescope for one discount only; an environment that has one says so by its `discount`."""
    if shaped_for is not None and shaped_for != config.discount:
        raise DiscountMismatch(
            f"discount = {config.discount}; the environment shapes its rewards for a discount of {shaped_for}, "
            f"so give PPOConfig(discount={shaped_for})"
        )
