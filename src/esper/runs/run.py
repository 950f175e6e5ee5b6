"""The training loop: rounds of episodes, an update after each, and at the end of each round everything is safe.

The order of a round is: play all episodes under fixed weights, update, evaluate if it is time, write the checkpoint.
Nothing that shapes a round comes from anywhere but the checkpoint and the configuration, so a run that is killed and
resumed ends with the same weights, bit for bit. The update takes one torch thread, as episodes do: sums over more
threads end in other last digits. Observations are not normalised by running statistics: their scales are fixed, so what
the policy acted on is what the update sees.
"""

import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

import esper
from esper.contracts import EsperError, cure_for
from esper.controller import ControllerNetwork
from esper.environment import FIELDS, derive
from esper.rl import (
    BadCheckpoint,
    Learner,
    Sequences,
    UpdateMetrics,
    extreme_ratios,
    join,
    load_checkpoint,
    restore,
    restore_weights,
    save_checkpoint,
)
from esper.runs.backends import Backend, make_backend, one_thread
from esper.runs.config import TrainConfig
from esper.runs.directory import RunDirectory, SystemRefused, status_now
from esper.runs.interrupts import Interrupts
from esper.runs.player import Job, Played, Purpose
from esper.runs.profiling import profile_episode
from esper.runs.progress import RunProgress
from esper.runs.recordings import RecordingSchema, write_part
from esper.runs.run_recorder import RunRecorder
from esper.runs.seeds import COMPARISON_SEEDS, EVALUATION_SEEDS, training_seed
from esper.runs.summary import evaluated, summarise, update_event
from esper.runs.trajectory import Trajectory
from esper.telemetry import (
    RATIO_KINDS,
    CheckpointWritten,
    EpisodeFinished,
    RunFailed,
    RunFinished,
    RunHalted,
    RunInterrupted,
    RunResumed,
    RunStarted,
    RunState,
    StepMoved,
    UpdateExaminer,
    forget_live,
)
from esper.telemetry.profiler import now, profiled

MAX_BAD_UPDATES = 3
"""Updates in a row with a gradient that is not finite, after which a run is halted."""
STEPS_KEPT = 5
"""Of the choices that an update moved most, where that raised an anomaly."""
PROFILED_ROUND = 1
"""Not the first one, in which much is done once."""
COMPARED = ("greedy", "none", "heuristic", "random")


class Halted(EsperError):
    """A health check ended the run."""


@dataclass(frozen=True)
class RunCounters:
    """What a run knows beside its learner; stored in every checkpoint."""

    round: int = 0
    """Rounds that are complete."""
    bad_updates: int = 0
    """In a row, up to now."""
    best: float | None = None
    best_round: int | None = None


class Run:
    """One run in one process, from its checkpoint to the last round."""

    def __init__(self, directory: RunDirectory, config: TrainConfig, progress: RunProgress) -> None:
        self.directory, self.config, self.progress = directory, config.settled(), progress
        self.learner = new_learner(config)
        self.counters = RunCounters()
        self.compared: Sequence[EpisodeFinished] = ()
        """The finished controller and the controls on held-out seeds, if that was asked for."""
        self.interrupts = Interrupts()
        self.recorder = RunRecorder(directory, config, progress, self.interrupts)

    def start(self) -> RunState:
        """Train a new run to its end."""
        return self._guarded(resume=False)

    def resume(self) -> RunState:
        """Go on from the newest checkpoint that can be read."""
        return self._guarded(resume=True)

    def _guarded(self, resume: bool) -> RunState:
        """Train, and leave a true word about how it ended, whatever happens."""
        with self.directory.locked(), one_thread(), self.interrupts, self.recorder:
            try:
                state, reason = self._train(resume), None
            except KeyboardInterrupt:
                state, reason = RunState.INTERRUPTED, None
                self.recorder.note(RunInterrupted())
            except Halted as error:
                state, reason = RunState.HALTED, str(error)
                self.recorder.note(RunHalted(reason))
            except OSError as error:
                self._failed(str(error))
                then = f"{cure_for(error)}, then 'esper resume {self.directory.path}'"
                raise SystemRefused(f"{error}; {then}") from error
            except Exception as error:
                self._failed(f"{type(error).__name__}: {error}")
                raise
            self._write_status(state, reason)
            return state

    def _train(self, resume: bool) -> RunState:
        started = time.perf_counter()
        self._write_status(RunState.RUNNING)
        config = self.config
        with self._backend() as backend:
            if resume:
                self._restore()
            else:
                self.recorder.note(self._introduction(backend))
                give_first_weights(self.learner, config)
                self._save()
            self.progress.begin(config, backend.workers, self.counters.round)
            while self.counters.round < config.rounds:
                self._round(backend)
            self.recorder.round = self.counters.round
            if config.compare:
                self.compared = self._compare(backend)
        forget_live(self.directory.live)
        self.recorder.note(RunFinished(self.counters.best_round, time.perf_counter() - started))
        return RunState.FINISHED

    def _backend(self) -> Backend:
        config, game = self.config, self.config.game()
        if game.record:
            game = replace(game, live=str(self.directory.live.resolve()))
        where = (config.workers, config.timeout, config.ray_address)
        return make_backend(config.backend, game, *where, gpus_per_worker=config.gpus_per_worker)

    def _round(self, backend: Backend) -> None:
        """Play, update, evaluate, save."""
        number, config = self.counters.round, self.config
        self.recorder.begin(number)
        started = time.perf_counter()
        played = self._play(backend, self._training_jobs())
        summary = summarise([each.finished for each in played], time.perf_counter() - started)
        self.recorder.note(summary)
        self._learn(played)
        if (number + 1) % config.evaluate_every == 0 or number + 1 == config.rounds:
            self._evaluate(backend)
        self.counters = replace(self.counters, round=number + 1)
        self._save()

    def _training_jobs(self) -> list[Job]:
        config, repeats = self.config, self.config.repeats
        seeds = [training_seed(config.seed, self.counters.round, place) for place in range(config.episodes)]
        return [
            Job(
                config.task[place // repeats % len(config.task)],
                seed,
                "learned",
                Purpose.TRAIN,
                world=seeds[place - place % repeats],
                detailed=self.recorder.detailed,
                round=self.counters.round,
            )
            for place, seed in enumerate(seeds)
        ]

    def _learn(self, played: Sequence[Played]) -> None:
        """Update from a round's episodes; halts the run when that has gone wrong too often."""
        if self._to_profile():
            profile_episode(self.directory.profiles, self.config.game(), self.learner.network, played[0].job)
        rows = join(compared([each.sequences for each in played if each.sequences is not None], self.config.repeats))
        # Returns that are compared within a world are on one scale already.
        tasks = [0 if self.config.repeats > 1 else self.config.task.index(each.job.task) for each in played]
        metrics = self._update(rows, tasks, [each.job for each in played])
        bad = 0 if metrics.finite else self.counters.bad_updates + 1
        if bad >= MAX_BAD_UPDATES:
            raise Halted(
                f"{bad} updates in a row had gradients that are not finite; "
                "lower ppo.learning_rate, and look at the last rounds with 'esper query'"
            )
        self.counters = replace(self.counters, bad_updates=bad)

    def _update(self, rows: Sequences, tasks: Sequence[int], jobs: Sequence[Job]) -> UpdateMetrics:
        """One update, and everything that is told of it."""
        learner, progress = self.learner, self.counters.round / self.config.rounds
        device = next(learner.network.parameters()).device
        examiner = UpdateExaminer(learner.network) if self.recorder.detailed else None
        started = now(device)
        with profiled(self.directory.profiles, "update", device) if self._to_profile() else nullcontext():
            metrics = learner.update(rows, progress, groups=tasks, probe=examiner.see if examiner else None)
        raised = self.recorder.note(update_event(metrics, now(device) - started))
        if examiner:
            self.recorder.note(examiner.report(rows.observation, rows.valid))
        if any(anomaly.kind in RATIO_KINDS for anomaly in raised):
            for moved in extreme_ratios(learner.network, rows, self.config.ppo.exploration, STEPS_KEPT):
                job = jobs[moved.row]
                self.recorder.note(StepMoved(job.seed, job.task, moved.step, moved.head, moved.choice, moved.ratio))
        return metrics

    def _to_profile(self) -> bool:
        return self.config.profile and self.counters.round == min(PROFILED_ROUND, self.config.rounds - 1)

    def _play(self, backend: Backend, jobs: Sequence[Job]) -> list[Played]:
        """All jobs, their events logged as they complete; until then they are shown in the folder `live`."""
        forget_live(self.directory.live)

        def done(played: Played) -> None:
            self.recorder.note_all([*played.events, played.finished], played.job.seed)

        played = backend.map(self.learner.network.state_dict(), jobs, done, self.recorder.note)
        self._keep([each.trajectory for each in played if each.trajectory is not None], jobs[0].purpose)
        return played

    def _keep(self, trajectories: Sequence[Trajectory], purpose: Purpose) -> None:
        """In the recording, if that was asked for. A round that is played again writes the same file again."""
        path = self.directory.recording / f"round-{self.counters.round:05d}-{purpose}.parquet"
        if trajectories:
            with self.interrupts.deferred():
                write_part(path, trajectories, RecordingSchema.of(self.config.game()))

    def _evaluate(self, backend: Backend) -> None:
        """Greedy play on the evaluation seeds; keeps the weights if they are the best so far."""
        config, number = self.config, self.counters.round
        seeds, tasks = EVALUATION_SEEDS[: config.evaluation_episodes], config.evaluation_task or config.task
        jobs = [Job(task, seed, "greedy", Purpose.EVALUATE, round=number) for task in tasks for seed in seeds]
        finished = [played.finished for played in self._play(backend, jobs)]
        found = evaluated(finished, self.counters.best)
        self.recorder.note(found)
        if found.best:
            self.counters = replace(self.counters, best=found.total, best_round=number)
            self._write(self.directory.best)

    def _compare(self, backend: Backend) -> list[EpisodeFinished]:
        """The best controller and the controls on the same held-out seeds."""
        if self.directory.best.exists():
            restore(load_checkpoint(self.directory.best), self.learner)
        seeds = COMPARISON_SEEDS[: self.config.compare]
        jobs = [
            Job(task, seed, policy, Purpose.COMPARE, round=self.counters.round)
            for task in self.config.task
            for seed in seeds
            for policy in COMPARED
        ]
        return [played.finished for played in self._play(backend, jobs)]

    def _restore(self) -> None:
        """Also leaves the detector as it was at the checkpoint; what it raises of the past is in the log already."""
        checkpoint, damaged = self._newest()
        self.recorder.round = self.counters.round
        self.recorder.note(RunResumed(checkpoint.name, tuple(path.name for path in damaged)))
        self.recorder.recall()

    def _newest(self) -> tuple[Path, list[Path]]:
        """Restore the newest checkpoint that can be read; also those that could not."""
        damaged: list[Path] = []
        for path in self.directory.saved():
            try:
                checkpoint = load_checkpoint(path)
                counters = RunCounters(**checkpoint.extra)
                restore(checkpoint, self.learner)
            except (BadCheckpoint, TypeError):
                damaged.append(path)
                continue
            self.counters = counters
            return path, damaged
        raise BadCheckpoint(
            f"none of the {len(damaged)} checkpoints in {self.directory.checkpoints} can be read; start a new run"
        )

    def _save(self) -> None:
        path = self.directory.checkpoint(self.counters.round)
        with self.interrupts.deferred():
            self._write(path)
            self.recorder.note(CheckpointWritten(path.name))
            self.recorder.sync()
            self.directory.forget_old(self.config.keep)
            self._write_status(RunState.RUNNING)

    def _write(self, path: Path) -> None:
        with self.interrupts.deferred():
            save_checkpoint(path, self.learner, asdict(self.counters))

    def _failed(self, reason: str) -> None:
        """Say why, as far as the disk still lets us: the log may be full where the status is only replaced."""
        with suppress(OSError, EsperError):
            self._write_status(RunState.FAILED, reason)
        with suppress(OSError, EsperError):
            self.recorder.note(RunFailed(reason))

    def _write_status(self, state: RunState, reason: str | None = None) -> None:
        counters = self.counters
        status = status_now(state, counters.round, self.config.rounds)
        self.directory.write_status(replace(status, best=counters.best, best_round=counters.best_round, reason=reason))

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
            metric=config.metric(),
        )


def compared(rows: Sequence[Sequences], repeats: int) -> Sequence[Sequences]:
    """Rows of which each `repeats` played the same task and seed: what the others got is taken from the last reward.

    So a return says by how much an episode was better than the others, whatever the task offers, and no decision of the
    episode itself has a part in what it is compared with.
    """
    if repeats == 1:
        return rows
    totals = torch.stack([row.rewards.sum() for row in rows]).unflatten(0, (-1, repeats))
    others = (totals.sum(dim=1, keepdim=True) - totals) / (repeats - 1)
    return [
        row._replace(rewards=row.rewards - other * row.ends) for row, other in zip(rows, others.flatten(), strict=True)
    ]


def check_first_weights(config: TrainConfig) -> None:
    """Refuse a checkpoint to begin with that does not fit."""
    give_first_weights(new_learner(config), config)


def give_first_weights(learner: Learner, config: TrainConfig) -> None:
    """Those of the checkpoint to begin with, if there is one."""
    if config.init:
        restore_weights(load_checkpoint(Path(config.init)), learner)


def new_learner(config: TrainConfig) -> Learner:
    """A network with first weights drawn from the run's seed, and what learns for it."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive(config.seed, "controller"))
        network = ControllerNetwork(FIELDS, config.network)
    return Learner(network, config.ppo, seed=derive(config.seed, "learner"))
