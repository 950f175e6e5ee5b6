"""The gardener in Lightning: pip install lightning, or "esper-growth[lightning]"."""

from collections.abc import Callable
from typing import Any

import lightning

from esper.gardener.gardener import Gardener


class GardenerCallback(lightning.Callback):
    """Steps the gardener of a module after every training epoch.

    Make the gardener in `configure_optimizers`, between optimiser and scheduler, and keep it as `self.gardener`.
    `evaluate` is given the module, and returns a score as `Gardener.step` wants it.
    """

    def __init__(self, evaluate: Callable[[Any], Any]) -> None:
        self.evaluate = evaluate

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        gardener = pl_module.gardener
        if isinstance(gardener, Gardener):
            gardener.step(lambda model: self.evaluate(pl_module))
