"""What a person sees of an exam while it goes on: a bar in a terminal, now and then a line elsewhere, or nothing."""

import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

LINES_PER_STAGE = 10


class ExamBars:
    """A bar per stage, redrawn in place. Use it as a context."""

    def __init__(self, console: Console) -> None:
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=console)
        self._stage: TaskID | None = None

    def __enter__(self) -> "ExamBars":
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def stage(self, title: str, total: int, done: int) -> None:
        self._stage = self._progress.add_task(title, total=total, completed=done)

    def advance(self) -> None:
        if self._stage is not None:
            self._progress.advance(self._stage)

    def note(self, sentence: str) -> None:
        self._progress.console.print(sentence, highlight=False, markup=False)


class ExamLines:
    """A line for every tenth of a stage, for logs and pipes; none if `quiet`."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self._console, self._quiet = console, quiet
        self._title, self._total, self._done, self._played, self._started = "", 0, 0, 0, 0.0

    def __enter__(self) -> "ExamLines":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def stage(self, title: str, total: int, done: int) -> None:
        self._title, self._total, self._done, self._played, self._started = title, total, done, 0, time.monotonic()
        self._say(f"{title}: {total} episodes" + (f", {done} of them known" if done else ""))

    def advance(self) -> None:
        self._done, self._played = self._done + 1, self._played + 1
        if self._done * LINES_PER_STAGE // self._total > (self._done - 1) * LINES_PER_STAGE // self._total:
            left = (time.monotonic() - self._started) / self._played * (self._total - self._done)
            self._say(f"  {self._done}/{self._total}  left {int(left) // 60}:{int(left) % 60:02d}")

    def note(self, sentence: str) -> None:
        self._console.print(sentence, highlight=False, markup=False)

    def _say(self, line: str) -> None:
        if not self._quiet:
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)
