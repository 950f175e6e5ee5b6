"""Metrics for Weights & Biases: files in `wandb/` of the run's directory, sent only if `WANDB_MODE` is online."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4


class WeightsAndBiases:
    """One W&B run for the whole run: `wandb/run_id` keeps its id, so a resumed run goes on in it."""

    modules: ClassVar[tuple[str, ...]] = ("wandb",)

    def __init__(self, directory: Path, name: str, settings: Mapping[str, int | float | str]) -> None:
        home = directory / "wandb"
        home.mkdir(parents=True, exist_ok=True)
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        os.environ.setdefault("WANDB_CACHE_DIR", str(home / "cache"))
        import wandb

        mode: Any = os.environ.get("WANDB_MODE", "offline")
        self._run = wandb.init(
            dir=directory,
            id=_kept_id(home / "run_id"),
            name=name,
            project=os.environ.get("WANDB_PROJECT", "esper"),
            config=dict(settings),
            resume=None if mode == "offline" else "allow",  # offline it only earns a warning
            reinit="create_new",
            settings=wandb.Settings(
                mode=mode,
                console="off",
                silent=True,
                disable_git=True,
                disable_code=True,
                x_disable_stats=True,
                x_disable_meta=True,
            ),
        )

    def write(self, figures: Mapping[str, float], round: int) -> None:
        self._run.log(dict(figures), step=round)

    def close(self) -> None:
        self._run.finish()


def _kept_id(file: Path) -> str:
    if not file.exists():
        file.write_text(uuid4().hex, encoding="utf-8")
    return file.read_text(encoding="utf-8")
