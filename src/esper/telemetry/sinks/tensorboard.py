"""Metrics for TensorBoard: event files in `tensorboard/` of the run's directory."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar


class TensorBoard:
    """Every write is in the file when it returns. A resumed run goes on in a new file, which TensorBoard joins."""

    modules: ClassVar[tuple[str, ...]] = ("tensorboard",)

    def __init__(self, directory: Path, name: str, settings: Mapping[str, int | float | str]) -> None:
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams

        self._writer = SummaryWriter(str(directory / "tensorboard"))
        # add_hparams would open a second file, and TensorBoard follows only the last one of a directory.
        file: Any = self._writer.file_writer
        for summary in hparams({"name": name, **settings}, {}):
            file.add_summary(summary)

    def write(self, figures: Mapping[str, float], round: int) -> None:
        for name, figure in figures.items():
            self._writer.add_scalar(name, figure, round)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
