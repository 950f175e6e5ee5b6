"""One episode, told epoch by epoch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from esper.contracts import (
    AlphaRetargeted,
    Event,
    Metric,
    OperationRefused,
    RansomwareSuspected,
    RewardHackingSuspected,
    StageChanged,
)
from esper.controller import Decision
from esper.environment import GrowEnv, Task, is_family, task_in_episode, twin_curve
from esper.runs.backends import one_thread
from esper.runs.episode_picture import EpisodeStory, draw_episode
from esper.runs.episode_recorder import EpisodeRecorder
from esper.runs.player import Game, Job, Player, Purpose
from esper.runs.policies import find_policy
from esper.telemetry import DecisionMade, EpisodeFinished, EpisodeStarted, RewardPaid, RolledBack


class Narrator(EpisodeRecorder):
    """Prints a line for everything that happens."""

    def __init__(self, console: Console, task: Task, metric: Metric) -> None:
        super().__init__()
        self.console, self.task, self.metric = console, task, metric
        self.alphas: list[dict[str, float]] = []
        self._aside: list[str] = []
        self._decision = self._twin = ""

    def narrate(self, env: GrowEnv, decision: Decision, forced: bool, reward: float, info: Mapping[str, Any]) -> None:
        """Also keeps the alpha of every slot, and what the twin has come to."""
        assert env.episode is not None
        self._twin = "" if env.twin_quality is None else f" ({self.metric.show(env.twin_quality)} without growth)"
        self.alphas.append({slot.slot: slot.alpha for slot in env.episode.snapshot.slots})
        super().narrate(env, decision, forced, reward, info)

    def write(self, event: Event) -> None:
        """Decisions wait for the reward of their epoch; what happened in between is told below it."""
        super().write(event)
        if isinstance(event, DecisionMade):
            self._decision = _decided(event)
        elif isinstance(event, RewardPaid):
            self.console.print(
                f"epoch {event.epoch + 1:>3}/{self.task.horizon}  {self._decision:<46}  "
                f"{self.metric.name} {self.metric.show(event.quality):>6}{self._twin}  "
                f"growth x{event.growth:<5.1f} reward {event.total:+.3f}",
                soft_wrap=True,
            )
            for line in self._aside:
                self.console.print(f"               {line}", soft_wrap=True)
            self._aside = []
        elif not isinstance(event, EpisodeStarted):
            self._aside.append(_told(event))


def narrate_episode(
    policy: str,
    task: str,
    seed: int,
    game: Game,
    console: Console,
    picture: Path | None = None,
) -> EpisodeFinished:
    """Play and print one episode, draw it to `picture` if that is given, and return how it ended."""
    find_policy(policy)  # say what is wrong with it before the data is loaded
    task = task_in_episode(task, seed).name if is_family(task) else task
    player = Player(game)
    env = player.env(task)
    played, metric = env.task, env.task.metric_on(env.splits.evaluation)
    console.print(f"{policy} plays {task}, seed {seed}, {played.horizon} epochs", soft_wrap=True)
    narrator = Narrator(console, played, metric)
    with one_thread():
        finished = player.play(Job(task, seed, policy, Purpose.COMPARE), narrator).finished
    twin = "" if finished.twin_quality is None else f", {metric.show(finished.twin_quality)} without growth"
    console.print(
        f"the end: {metric.name} {metric.show(finished.quality)}{twin}, "
        f"{finished.growth:.1f} times the host's parameters, "
        f"{finished.fossilized} seed(s) kept, return {finished.total:+.3f}, {finished.seconds:.1f} s",
        soft_wrap=True,
    )
    if picture is not None:
        _draw(env, narrator, f"{policy} grows {task}, seed {seed}", seed, picture, console)
    return finished


def _draw(env: GrowEnv, narrator: Narrator, title: str, seed: int, picture: Path, console: Console) -> None:
    twin = [each.quality or 0.0 for each in twin_curve(env.task, env.splits, seed, env.world)]
    events, alphas = tuple(narrator.events), narrator.alphas
    told = EpisodeStory(title, env.task.horizon, env.task.slots, events, alphas, twin, narrator.metric)
    drawn = draw_episode(told, picture)
    console.print(f"picture: {picture}" if drawn else 'no picture: pip install "esper-growth[demo]"', soft_wrap=True)


def _decided(event: DecisionMade) -> str:
    details = [event.slot, event.blueprint, event.style, event.tempo, event.alpha_target, event.alpha_speed]
    words = [event.op.lower(), *(detail.lower() for detail in details if detail is not None)]
    return " ".join(words) + (" (forced)" if event.forced else "")


def _told(event: Event) -> str:
    match event:
        case StageChanged(_, slot, before, after, reasons):
            why = f": {', '.join(reasons)}" if reasons else ""
            return f"{slot} goes from {before.name} to {after.name}{why}"
        case AlphaRetargeted(_, slot, alpha, target, ticks):
            return f"{slot}: alpha goes from {alpha:.2f} to {target:.2f} in {ticks} epochs"
        case OperationRefused(_, op, slot, reasons):
            return f"{op} in {slot} refused: {', '.join(reasons)}"
        case RewardHackingSuspected(_, slot, contribution, gain):
            return f"{slot} seems to pay more than it earns: {contribution:+.1%} alone, {gain:+.1%} all together"
        case RansomwareSuspected(_, slot, contribution, gain):
            return f"the host depends on {slot} without gain: {contribution:+.1%} alone, {gain:+.1%} all together"
        case RolledBack(_, reason):
            return f"the governor rolled back: {reason}"
    return type(event).__name__
