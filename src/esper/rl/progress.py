"""How far training is: what callbacks are told, and where it is shown."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from esper.rl.errors import RLError
from esper.rl.metrics import UpdateMetrics


@dataclass(frozen=True)
class LearningProgress:
    """After an update: how far training is."""

    steps: int
    """Environment steps so far, of all calls of `learn` together."""
    until: int
    """The number of them at which this call ends."""
    returns: tuple[float, ...]
    """Of the episodes that ended in this rollout."""
    metrics: UpdateMetrics


Callback = Callable[[LearningProgress], bool | None]
"""Called after every update; training ends when it returns False."""


def figures(progress: LearningProgress) -> dict[str, float]:
    """Everything that was measured, by the names under which TensorBoard shows it."""
    result = {"rollout/ep_rew_mean": fmean(progress.returns)} if progress.returns else {}
    plain = asdict(progress.metrics)
    heads = plain.pop("heads")
    result |= {f"train/{name}": float(value) for name, value in plain.items() if value is not None}
    for head, own in heads.items():
        result |= {f"heads/{head}/{name}": float(value) for name, value in own.items() if value is not None}
    return result


@contextmanager
def shown(start: int, until: int, bar: bool, tensorboard_log: str | Path | None) -> Iterator[Callback]:
    """Shows what it is called with: as a bar in the terminal, in files for TensorBoard, both or neither."""
    board = None
    if tensorboard_log is not None:
        if find_spec("tensorboard") is None:
            raise RLError("tensorboard_log needs TensorBoard; install it with pip install 'esper-growth[tensorboard]'")
        board = import_module("torch.utils.tensorboard").SummaryWriter(str(tensorboard_log))
    columns = (MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    display = Progress(*columns, disable=not bar)
    task = display.add_task("", total=until, completed=start)

    def show(progress: LearningProgress) -> None:
        told = f"return {fmean(progress.returns):.1f}" if progress.returns else None
        display.update(task, completed=min(progress.steps, until), description=told)
        if board is not None:
            for name, value in figures(progress).items():
                board.add_scalar(name, value, progress.steps)

    try:
        with display:
            yield show
    finally:
        if board is not None:
            board.close()
