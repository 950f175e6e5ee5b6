"""What a person sees of a run while it goes on: a live panel in a terminal, plain lines elsewhere, or nothing."""

import time
from collections import deque
from collections.abc import Sequence
from statistics import fmean
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from esper.contracts import ACCURACY, Event, Metric
from esper.runs.config import TrainConfig
from esper.telemetry import (
    AnomalyRaised,
    DetailChanged,
    EpisodeFinished,
    EvaluationMade,
    RoundFinished,
    RunFailed,
    RunHalted,
    RunResumed,
    SinkFailed,
    UpdateMade,
    WorkerReplaced,
)


class RunProgress(Protocol):
    """Is shown every event, as it happens."""

    def begin(self, config: TrainConfig, workers: int, done: int) -> None:
        """Episodes are about to be played; `done` rounds are complete."""

    def see(self, event: Event) -> None: ...


class Quiet:
    """Says nothing but what went wrong."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def begin(self, config: TrainConfig, workers: int, done: int) -> None:
        pass

    def see(self, event: Event) -> None:
        sentence = _trouble(event)
        if sentence:
            self.say(sentence)

    def say(self, sentence: str) -> None:
        """A line for the person."""
        self.console.print(sentence, highlight=False, markup=False, soft_wrap=True)


class RoundLines(Quiet):
    """One line per round, for logs and pipes."""

    def begin(self, config: TrainConfig, workers: int, done: int) -> None:
        self._config, self._started, self._first, self._round = config, time.monotonic(), done, done
        self._comparing, self._metric = False, config.metric()
        self.say(_opening(config, workers, done))

    def see(self, event: Event) -> None:
        super().see(event)
        match event:
            case RunResumed():
                self.say(f"going on from {event.checkpoint}")
            case RoundFinished():
                self._summary = event
            case UpdateMade():
                self._round += 1
                of = f"{self._round}/{self._config.rounds}"
                self.say(f"round {of}  {_figures(self._summary, self._metric)}  {_health(event)}  left {self._left()}")
            case EvaluationMade():
                self.say(f"evaluation  {_evaluation(event, self._metric)}")
            case EpisodeFinished(purpose="compare") if not self._comparing:
                self._comparing = True
                self.say("comparing with the controls on held-out seeds ...")

    def _left(self) -> str:
        """Time left at the pace so far."""
        done = self._round - self._first
        if done < 1:
            return "?"
        seconds = (time.monotonic() - self._started) / done * (self._config.rounds - self._round)
        minutes, seconds = divmod(int(seconds), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


class Panel(RoundLines):
    """A live panel that is redrawn in place, until it is closed."""

    _live: Live | None = None

    def begin(self, config: TrainConfig, workers: int, done: int) -> None:
        super().begin(config, workers, done)
        self._played, self._purpose = 0, "train"
        self._rows = dict.fromkeys(("last round", "actions", "policy", "evaluation"), "...")
        self._troubles: deque[str] = deque(maxlen=3)
        self._live = Live(self._drawn(), console=self.console, refresh_per_second=4)
        self._live.start()

    def see(self, event: Event) -> None:
        if self._live is None:
            super().see(event)
            return
        match event:
            case EpisodeFinished():
                self._played = 1 if event.purpose != self._purpose else self._played + 1
                self._purpose = event.purpose
            case RoundFinished():
                self._rows |= {"last round": _figures(event, self._metric), "actions": _mix(event)}
            case UpdateMade():
                self._round, self._played = self._round + 1, 0
                self._rows["policy"] = _health(event)
            case EvaluationMade():
                self._rows["evaluation"] = _evaluation(event, self._metric)
            case _:
                sentence = _trouble(event)
                if sentence is None:
                    return
                self._troubles.append(sentence)
        self._live.update(self._drawn())

    def close(self) -> None:
        """Leave the last picture on the screen."""
        if self._live is not None:
            self._live.stop()

    def _drawn(self) -> Group:
        config, doing = self._config, DOING[self._purpose]
        share = self._played / config.episodes if self._purpose == "train" else 0.0
        bar = Table.grid(padding=(0, 2))
        bar.add_row(
            f"round {min(self._round + 1, config.rounds)}/{config.rounds}",
            ProgressBar(total=config.rounds, completed=min(self._round + share, config.rounds), width=30),
            f"{doing} {self._played}",
            f"left {self._left()}",
        )
        rows = Table.grid(padding=(0, 2))
        for title, text in (*self._rows.items(), *(("attention", trouble) for trouble in self._troubles)):
            rows.add_row(Text(title, style="bold"), Text(text))
        return Group(bar, rows)


DOING = {"train": "training", "evaluate": "evaluating", "compare": "comparing"}


def _opening(config: TrainConfig, workers: int, done: int) -> str:
    tasks = ", ".join(config.task)
    start = f"from round {done + 1} " if done else ""
    idle = workers - config.episodes
    hint = f"\n{idle} workers will have nothing to do; --episodes 0 plays one episode per worker" if idle > 0 else ""
    return (
        f"training on {tasks}: {start}{config.rounds} rounds of {config.episodes} episodes, reward {config.reward}, "
        f"backend {config.backend} with {workers} worker(s), hosts on {config.device}, seed {config.seed}{hint}"
    )


def _told(quality: float, gain: float | None, metric: Metric | None) -> str:
    """A quality as the metric tells it, and what of it is gained over the twin.

    >>> from esper.contracts import metric_of
    >>> _told(0.9, 0.02, None), _told(0.57, 0.01, metric_of("bits per character", outcomes=65))
    ('quality 90.0% (+2.0 points over twin)', 'loss 2.590 bits per character (-0.060 over twin)')
    """
    if metric is None or metric == ACCURACY:
        return f"quality {quality:.1%}" + ("" if gain is None else f" ({gain * 100:+.1f} points over twin)")
    more = "" if gain is None else f" ({metric.score(quality) - metric.score(quality - gain):+.3f} over twin)"
    return f"{metric.name} {metric.show(quality)}{more}"


def _figures(summary: RoundFinished, metric: Metric | None) -> str:
    return (
        f"return {summary.total:+.3f}  {_told(summary.quality, summary.gain, metric)}  growth x{summary.growth:.1f}  "
        f"{summary.episodes_per_second:.2f} episodes/s"
    )


def _mix(summary: RoundFinished) -> str:
    ordered = sorted(summary.ops.items(), key=lambda item: -item[1])
    shares = "  ".join(f"{op.lower()} {share:.0%}" for op, share in ordered)
    return f"{shares}  (forced {summary.forced_share:.0%})"


def _health(update: UpdateMade) -> str:
    op, explained = update.heads["op"].entropy, update.explained_variance
    return "  ".join(
        (
            f"entropy {'-' if op is None else f'{op:.2f}'}",
            f"kl {update.kl:.4f}",
            f"clipped {update.clipped:.0%}",
            f"explained {'-' if explained is None else f'{explained:.2f}'}",
            f"gradient {update.gradient_norm:.2f}",
        )
    )


def _evaluation(found: EvaluationMade, metric: Metric | None) -> str:
    best = "  best so far" if found.best else ""
    return (
        f"return {found.total:+.3f} ({found.low:+.3f} to {found.high:+.3f})  "
        f"{_told(found.quality, found.gain, metric)}  growth x{found.growth:.1f}{best}"
    )


def _trouble(event: Event) -> str | None:
    """What a person should know at once."""
    if isinstance(event, WorkerReplaced):
        return f"worker {event.worker} was replaced ({event.reason}); episode {event.seed} is played again"
    if isinstance(event, AnomalyRaised):
        return f"{event.kind}: {event.message}"
    if isinstance(event, SinkFailed):
        return f"sink {event.sink} failed and gets no more metrics: {event.reason}"
    if isinstance(event, RunResumed) and event.damaged:
        return f"damaged and left out: {', '.join(event.damaged)}; 'esper checkpoint show' says what is wrong with them"
    if isinstance(event, DetailChanged):
        return f"telemetry is {event.level} from now on: {event.reason}"
    return f"stopped: {event.reason}" if isinstance(event, RunFailed | RunHalted) else None


def comparison_table(finished: Sequence[EpisodeFinished]) -> Table:
    """Policies side by side, one block per task; means over the same seeds."""
    seeds = len({(each.task, each.policy) for each in finished})
    count = len(finished) // max(seeds, 1)
    table = Table(title=f"evaluation quality and growth over {count} held-out seeds", title_justify="left")
    for name in ("task", "policy", "return", "quality", "lowest", "growth", "kept seeds"):
        table.add_column(name, justify="left" if name in {"task", "policy"} else "right")
    for task in dict.fromkeys(each.task for each in finished):
        for policy in dict.fromkeys(each.policy for each in finished):
            rows = [each for each in finished if each.task == task and each.policy == policy]
            table.add_row(
                task,
                {"greedy": "learned", "none": "no growth"}.get(policy, policy),
                f"{fmean([each.total for each in rows]):+.3f}",
                f"{fmean([each.quality for each in rows]):.1%}",
                f"{min(each.quality for each in rows):.1%}",
                f"x{fmean([each.growth for each in rows]):.1f}",
                f"{fmean([each.fossilized for each in rows]):.1f}",
            )
    return table
