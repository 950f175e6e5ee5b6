"""What a person sees of a run while it goes on: a live panel in a terminal, plain lines elsewhere, or nothing."""

import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from esper.contracts import Event
from esper.rl import UpdateMetrics
from esper.runs.config import TrainConfig
from esper.telemetry import (
    AnomalyRaised,
    DetailChanged,
    EpisodeFinished,
    EvaluationMade,
    RoundFinished,
    RunFailed,
    RunHalted,
    SinkFailed,
    WorkerReplaced,
)


class RunProgress(Protocol):
    """Is told what happens, in order."""

    def begin(self, config: TrainConfig, workers: int, done: int) -> None: ...
    def round_begins(self, number: int) -> None: ...
    def episode(self, finished: EpisodeFinished) -> None: ...
    def round_ends(self, number: int, summary: RoundFinished, metrics: UpdateMetrics) -> None: ...
    def evaluated(self, found: EvaluationMade) -> None: ...
    def comparing(self, episodes: int) -> None: ...
    def compared(self, finished: Sequence[EpisodeFinished]) -> None: ...
    def resumed(self, checkpoint: Path, damaged: Sequence[Path]) -> None: ...
    def damaged(self, checkpoint: Path, error: Exception) -> None: ...
    def event(self, event: Event) -> None: ...


class Quiet:
    """Says nothing but what went wrong."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.comparison: Sequence[EpisodeFinished] = ()

    def begin(self, config: TrainConfig, workers: int, done: int) -> None:
        pass

    def round_begins(self, number: int) -> None:
        pass

    def episode(self, finished: EpisodeFinished) -> None:
        pass

    def round_ends(self, number: int, summary: RoundFinished, metrics: UpdateMetrics) -> None:
        pass

    def evaluated(self, found: EvaluationMade) -> None:
        pass

    def comparing(self, episodes: int) -> None:
        pass

    def compared(self, finished: Sequence[EpisodeFinished]) -> None:
        self.comparison = finished

    def resumed(self, checkpoint: Path, damaged: Sequence[Path]) -> None:
        pass

    def damaged(self, checkpoint: Path, error: Exception) -> None:
        self.console.print(f"{checkpoint.name} is damaged and left out: {error}", highlight=False)

    def event(self, event: Event) -> None:
        sentence = _trouble(event)
        if sentence:
            self.console.print(sentence, highlight=False)


class RoundLines(Quiet):
    """One line per round, for logs and pipes."""

    def begin(self, config: TrainConfig, workers: int, done: int) -> None:
        self._config, self._started, self._first = config, time.monotonic(), done
        self.console.print(_opening(config, workers, done), highlight=False)

    def round_ends(self, number: int, summary: RoundFinished, metrics: UpdateMetrics) -> None:
        left = _left(self._started, number + 1 - self._first, self._config.rounds - number - 1)
        self.console.print(
            f"round {number + 1}/{self._config.rounds}  {_figures(summary)}  {_health(metrics)}  left {left}",
            highlight=False,
            soft_wrap=True,
        )

    def evaluated(self, found: EvaluationMade) -> None:
        self.console.print(f"evaluation  {_evaluation(found)}", highlight=False, soft_wrap=True)

    def comparing(self, episodes: int) -> None:
        self.console.print(f"comparing with the controls on held-out seeds: {episodes} episodes", highlight=False)

    def resumed(self, checkpoint: Path, damaged: Sequence[Path]) -> None:
        self.console.print(f"going on from {checkpoint.name}", highlight=False)


class Panel(RoundLines):
    """A live panel that is redrawn in place."""

    def begin(self, config: TrainConfig, workers: int, done: int) -> None:
        super().begin(config, workers, done)
        self._round, self._played, self._of = done, 0, config.episodes
        self._summary: RoundFinished | None = None
        self._metrics: UpdateMetrics | None = None
        self._evaluation: EvaluationMade | None = None
        self._what = "training"
        self._troubles: deque[str] = deque(maxlen=3)
        self._live = Live(self._drawn(), console=self.console, refresh_per_second=4, transient=False)
        self._live.start()

    def round_begins(self, number: int) -> None:
        self._round, self._played, self._of, self._what = number, 0, self._config.episodes, "training"
        self._live.update(self._drawn())

    def episode(self, finished: EpisodeFinished) -> None:
        self._played += 1
        if finished.purpose == "evaluate" and self._what == "training":
            self._what, self._played = "evaluating", 1
            self._of = self._config.evaluation_episodes * len(self._config.task)
        self._live.update(self._drawn())

    def round_ends(self, number: int, summary: RoundFinished, metrics: UpdateMetrics) -> None:
        self._round, self._summary, self._metrics = number + 1, summary, metrics
        self._live.update(self._drawn())

    def evaluated(self, found: EvaluationMade) -> None:
        self._evaluation = found
        self._live.update(self._drawn())

    def comparing(self, episodes: int) -> None:
        self._what, self._played, self._of = "comparing", 0, episodes
        self._live.update(self._drawn())

    def event(self, event: Event) -> None:
        sentence = _trouble(event)
        if sentence and hasattr(self, "_live"):
            self._troubles.append(sentence)
            self._live.update(self._drawn())
        elif sentence:
            super().event(event)

    def close(self) -> None:
        """Leave the last picture on the screen."""
        if hasattr(self, "_live"):
            self._live.stop()

    def _drawn(self) -> Group:
        config = self._config
        parts = config.rounds * max(self._of, 1)
        at = self._round * self._of + (self._played if self._what == "training" else 0)
        bar = Table.grid(padding=(0, 2))
        left = _left(self._started, self._round - self._first, config.rounds - self._round)
        now = f"{self._what} {self._played}/{self._of}"
        bar.add_row(
            f"round {min(self._round + 1, config.rounds)}/{config.rounds}",
            ProgressBar(total=parts, completed=min(at, parts), width=30),
            now,
            f"left {left}",
        )
        rows = Table.grid(padding=(0, 2))
        for title, text in (
            ("last round", _figures(self._summary) if self._summary else "..."),
            ("actions", _mix(self._summary) if self._summary else "..."),
            ("policy", _health(self._metrics) if self._metrics else "..."),
            ("evaluation", _evaluation(self._evaluation) if self._evaluation else "..."),
            *(("attention", trouble) for trouble in self._troubles),
        ):
            rows.add_row(Text(title, style="bold"), Text(text))
        return Group(bar, rows)


def _opening(config: TrainConfig, workers: int, done: int) -> str:
    tasks = ", ".join(config.task)
    start = f"from round {done + 1} " if done else ""
    idle = workers - config.episodes
    hint = f"\n{idle} workers will have nothing to do; --episodes 0 plays one episode per worker" if idle > 0 else ""
    return (
        f"training on {tasks}: {start}{config.rounds} rounds of {config.episodes} episodes, reward {config.reward}, "
        f"backend {config.backend} with {workers} worker(s), hosts on {config.device}, seed {config.seed}{hint}"
    )


def _figures(summary: RoundFinished) -> str:
    gain = "" if summary.gain is None else f" ({summary.gain * 100:+.1f} points over twin)"
    return (
        f"return {summary.total:+.3f}  accuracy {summary.accuracy:.1%}{gain}  growth x{summary.growth:.1f}  "
        f"{summary.episodes_per_second:.2f} episodes/s"
    )


def _mix(summary: RoundFinished) -> str:
    ordered = sorted(summary.ops.items(), key=lambda item: -item[1])
    shares = "  ".join(f"{op.lower()} {share:.0%}" for op, share in ordered)
    return f"{shares}  (forced {summary.forced_share:.0%})"


def _health(metrics: UpdateMetrics) -> str:
    op = metrics.heads["op"].entropy
    explained = metrics.explained_variance
    return "  ".join(
        (
            f"entropy {'-' if op is None else f'{op:.2f}'}",
            f"kl {metrics.kl:.4f}",
            f"clipped {metrics.clipped:.0%}",
            f"explained {'-' if explained is None else f'{explained:.2f}'}",
            f"gradient {metrics.gradient_norm:.2f}",
        )
    )


def _evaluation(found: EvaluationMade) -> str:
    gain = "" if found.gain is None else f" ({found.gain * 100:+.1f} points over twin)"
    best = "  best so far" if found.best else ""
    return (
        f"return {found.total:+.3f} ({found.low:+.3f} to {found.high:+.3f})  "
        f"accuracy {found.accuracy:.1%}{gain}  growth x{found.growth:.1f}{best}"
    )


def _trouble(event: Event) -> str | None:
    """What a person should know at once."""
    if isinstance(event, WorkerReplaced):
        return f"worker {event.worker} was replaced ({event.reason}); episode {event.seed} is played again"
    if isinstance(event, AnomalyRaised):
        return f"{event.kind}: {event.message}"
    if isinstance(event, SinkFailed):
        return f"sink {event.sink} failed and gets no more metrics: {event.reason}"
    if isinstance(event, DetailChanged):
        return f"telemetry is {event.level} from now on: {event.reason}"
    return f"stopped: {event.reason}" if isinstance(event, RunFailed | RunHalted) else None


def _left(started: float, done: int, remaining: int) -> str:
    """Time left at the pace so far."""
    if done < 1:
        return "?"
    seconds = (time.monotonic() - started) / done * remaining
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def comparison_table(finished: Sequence[EpisodeFinished]) -> Table:
    """Policies side by side, one block per task; means over the same seeds."""
    seeds = len({(each.task, each.policy) for each in finished})
    count = len(finished) // max(seeds, 1)
    table = Table(title=f"evaluation accuracy and growth over {count} held-out seeds", title_justify="left")
    for name in ("task", "policy", "return", "accuracy", "lowest", "growth", "kept seeds"):
        table.add_column(name, justify="left" if name in {"task", "policy"} else "right")
    for task in dict.fromkeys(each.task for each in finished):
        for policy in dict.fromkeys(each.policy for each in finished):
            rows = [each for each in finished if each.task == task and each.policy == policy]
            table.add_row(
                task,
                {"greedy": "learned", "none": "no growth"}.get(policy, policy),
                f"{_mean([each.total for each in rows]):+.3f}",
                f"{_mean([each.accuracy for each in rows]):.1%}",
                f"{min(each.accuracy for each in rows):.1%}",
                f"x{_mean([each.growth for each in rows]):.1f}",
                f"{_mean([each.fossilized for each in rows]):.1f}",
            )
    return table


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)
