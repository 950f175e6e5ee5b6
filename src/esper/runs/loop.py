"""The training loop: rounds of episodes, an update after each, and at the end of each round everything is safe.

The order of a round is: play all episodes under fixed weights, update, evaluate if it is time, write the checkpoint.
Nothing that shapes a round comes from anywhere but the checkpoint and the configuration, so a run that is killed and
resumed ends with the same weights, bit for bit. The update takes one torch thread, as episodes do: sums over more
threads end in other last digits. Observations are not normalised by running statistics: their scales are fixed, so what
the policy acted on is what the update sees.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import cycle
from pathlib import Path

import torch

import esper
from esper.contracts import EsperError, Event
from esper.controller import ControllerNetwork
from esper.environment import FIELDS, derive
from esper.rl import BadCheckpoint, Learner, UpdateMetrics, join, load_checkpoint, restore, save_checkpoint
from esper.runs.backends import Backend, make_backend, one_thread
from esper.runs.config import TrainConfig
from esper.runs.directory import RunDirectory, State, Unwritable, status_now
from esper.runs.interrupts import Interrupts
from esper.runs.progress import Progress
from esper.runs.rollout import Job, Played, Purpose
from esper.runs.seeds import COMPARISON_SEEDS, EVALUATION_SEEDS, training_seed
from esper.runs.summary import evaluated, summarise, update_event
from esper.telemetry import (
    CheckpointWritten,
    Detector,
    EpisodeFinished,
    EventLog,
    NullLog,
    RunFailed,
    RunFinished,
    RunHalted,
    RunInterrupted,
    RunResumed,
    RunStarted,
    effective,
    read_log,
    tame,
)

MAX_BAD_UPDATES = 3
"""Updates in a row with a gradient that is not finite, after which a run is halted."""
COMPARED = ("greedy", "none", "heuristic", "random")


class Halted(EsperError):
    """A health check ended the run."""


@dataclass(frozen=True)
class Memory:
    """What a run knows beside its learner; stored in every checkpoint."""

    round: int = 0
    """Rounds that are complete."""
    bad_updates: int = 0
    """In a row, up to now."""
    best: float | None = None
    best_round: int | None = None


class Run:
    """One run in one process, from its checkpoint to the last round."""

    def __init__(self, directory: RunDirectory, config: TrainConfig, progress: Progress) -> None:
        self.directory, self.config, self.progress = directory, config, progress
        self.learner = new_learner(config)
        self.memory = Memory()
        self.log: EventLog | NullLog = NullLog()
        self.detector = Detector(config.anomalies, config.expectations())
        self.interrupts = Interrupts()

    def start(self) -> State:
        """Train a new run to its end."""
        return self._guarded(resume=False)

    def resume(self) -> State:
        """Go on from the newest checkpoint that can be read."""
        return self._guarded(resume=True)

    def _guarded(self, resume: bool) -> State:
        """Train, and leave a true word about how it ended, whatever happens."""
        log = EventLog(self.directory.events_file) if self.config.events else NullLog()
        with self.directory.locked(), one_thread(), self.interrupts, log as self.log:
            try:
                state, reason = self._train(resume), None
            except KeyboardInterrupt:
                state, reason = State.INTERRUPTED, None
                self._note(RunInterrupted())
            except Halted as error:
                state, reason = State.HALTED, str(error)
                self._note(RunHalted(reason))
            except OSError as error:
                self._failed(str(error))
                raise Unwritable(
                    f"{self.directory.path} cannot be written ({error.strerror}); "
                    f"make room, then 'esper resume {self.directory.path}'"
                ) from error
            except Exception as error:
                self._failed(f"{type(error).__name__}: {error}")
                raise
            self._write_status(state, reason)
            return state

    def _train(self, resume: bool) -> State:
        started = time.perf_counter()
        self._write_status(State.RUNNING)
        config = self.config
        with make_backend(config.backend, config.game(), config.workers, config.timeout, config.ray_address) as backend:
            if resume:
                self._restore()
            else:
                self._note(self._introduction(backend))
                self._save()
            self.progress.begin(config, backend.workers, self.memory.round)
            while self.memory.round < config.rounds:
                self._round(backend)
            if config.compare:
                self.progress.compared(self._compare(backend))
        self._note(RunFinished(self.memory.best_round, time.perf_counter() - started))
        return State.FINISHED

    def _round(self, backend: Backend) -> None:
        """Play, update, evaluate, save."""
        number, config = self.memory.round, self.config
        self.progress.round_begins(number)
        started = time.perf_counter()
        tasks = cycle(config.task)
        seeds = [training_seed(config.seed, number, place) for place in range(config.episodes)]
        played = self._play(backend, [Job(next(tasks), seed, "learned", Purpose.TRAIN) for seed in seeds])
        summary = summarise([each.finished for each in played], time.perf_counter() - started)
        self._note(summary)
        self.progress.round_ends(number, summary, self._learn(played))
        if (number + 1) % config.evaluate_every == 0 or number + 1 == config.rounds:
            self._evaluate(backend)
        self.memory = replace(self.memory, round=number + 1)
        self._save()

    def _learn(self, played: Sequence[Played]) -> UpdateMetrics:
        """Update from a round's episodes; halts the run when that has gone wrong too often."""
        started = time.perf_counter()
        rows = join([each.sequences for each in played if each.sequences is not None])
        tasks = [self.config.task.index(each.job.task) for each in played]
        metrics = self.learner.update(rows, self.memory.round / self.config.rounds, groups=tasks)
        self._note(update_event(metrics, time.perf_counter() - started))
        bad = 0 if metrics.finite else self.memory.bad_updates + 1
        if bad >= MAX_BAD_UPDATES:
            raise Halted(
                f"{bad} updates in a row had gradients that are not finite; "
                "lower ppo.learning_rate, and look at the last rounds with 'esper query'"
            )
        self.memory = replace(self.memory, bad_updates=bad)
        return metrics

    def _play(self, backend: Backend, jobs: Sequence[Job]) -> list[Played]:
        """All jobs, their events logged as they complete."""

        def done(played: Played) -> None:
            with self.interrupts.deferred():
                self.log.write_all([*played.events, played.finished], self.memory.round, played.job.seed)
            self._watch([*played.events, played.finished])
            self.progress.episode(played.finished)

        return backend.map(self.learner.network.state_dict(), jobs, done, self._note)

    def _evaluate(self, backend: Backend) -> None:
        """Greedy play on the evaluation seeds; keeps the weights if they are the best so far."""
        config, number = self.config, self.memory.round
        seeds = EVALUATION_SEEDS[: config.evaluation_episodes]
        jobs = [Job(task, seed, "greedy", Purpose.EVALUATE) for task in config.task for seed in seeds]
        finished = [played.finished for played in self._play(backend, jobs)]
        found = evaluated(finished, self.memory.best)
        self._note(found)
        self.progress.evaluated(found)
        if found.best:
            self.memory = replace(self.memory, best=found.total, best_round=number)
            self._write(self.directory.best)

    def _compare(self, backend: Backend) -> list[EpisodeFinished]:
        """The best controller and the controls on the same held-out seeds."""
        if self.directory.best.exists():
            restore(load_checkpoint(self.directory.best), self.learner)
        seeds = COMPARISON_SEEDS[: self.config.compare]
        jobs = [
            Job(task, seed, policy, Purpose.COMPARE)
            for task in self.config.task
            for seed in seeds
            for policy in COMPARED
        ]
        self.progress.comparing(len(jobs))
        return [played.finished for played in self._play(backend, jobs)]

    def _restore(self) -> None:
        """Also leaves the detector as it was at the checkpoint; what it raises of the past is in the log already."""
        checkpoint, damaged = self._newest()
        self._note(RunResumed(checkpoint.name, tuple(path.name for path in damaged)))
        for record in effective(each for each in read_log(self.directory.events_file) if not tame(each.event)):
            self.detector.see(record.event)
        self.progress.resumed(checkpoint, damaged)

    def _newest(self) -> tuple[Path, list[Path]]:
        """Restore the newest checkpoint that can be read; also those that could not."""
        damaged: list[Path] = []
        for path in self.directory.saved():
            try:
                checkpoint = load_checkpoint(path)
                memory = Memory(**checkpoint.extra)
                restore(checkpoint, self.learner)
            except (BadCheckpoint, TypeError) as error:
                self.progress.damaged(path, error)
                damaged.append(path)
                continue
            self.memory = memory
            return path, damaged
        raise BadCheckpoint(
            f"none of the {len(damaged)} checkpoints in {self.directory.checkpoints} can be read; start a new run"
        )

    def _save(self) -> None:
        path = self.directory.checkpoint(self.memory.round)
        with self.interrupts.deferred():
            self._write(path)
            self.log.write(CheckpointWritten(path.name), max(self.memory.round - 1, 0))
            self.log.sync()
            self.directory.forget_old(self.config.keep)
            self._write_status(State.RUNNING)

    def _write(self, path: Path) -> None:
        with self.interrupts.deferred():
            save_checkpoint(path, self.learner, asdict(self.memory))

    def _note(self, event: Event) -> None:
        self.progress.event(event)
        with self.interrupts.deferred():
            self.log.write(event, self.memory.round, None)
        self._watch((event,))

    def _watch(self, events: Iterable[Event]) -> None:
        """Note what looks wrong in them. Nothing that is learned depends on it."""
        for event in events:
            for anomaly in self.detector.see(event):
                self._note(anomaly)

    def _failed(self, reason: str) -> None:
        """Say why, as far as the disk still lets us."""
        try:
            self._note(RunFailed(reason))
            self._write_status(State.FAILED, reason)
        except (OSError, EsperError):
            self.progress.event(RunFailed(reason))

    def _write_status(self, state: State, reason: str | None = None) -> None:
        memory = self.memory
        status = status_now(state, memory.round, self.config.rounds)
        self.directory.write_status(replace(status, best=memory.best, best_round=memory.best_round, reason=reason))

    def _introduction(self, backend: Backend) -> RunStarted:
        config = self.config
        return RunStarted(
            version=esper.__version__,
            tasks=config.task,
            rounds=config.rounds,
            episodes=config.episodes,
            seed=config.seed,
            reward=config.reward,
            backend=config.backend,
            workers=backend.workers,
            device=config.device,
        )


def new_learner(config: TrainConfig) -> Learner:
    """A network with first weights drawn from the run's seed, and what learns for it."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive(config.seed, "controller"))
        network = ControllerNetwork(FIELDS, config.network)
    return Learner(network, config.ppo, seed=derive(config.seed, "learner"))
