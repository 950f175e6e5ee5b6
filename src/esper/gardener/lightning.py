"""The gardener in Lightning: pip install lightning, or "esper-growth[lightning]"."""

from collections.abc import Callable, Mapping
from typing import Any

import lightning

from esper.gardener.errors import BadSetting
from esper.gardener.gardener import Gardener
from esper.growth.attachment import CHILD

SAVED = "esper_gardener"
"""What the callback adds to a checkpoint."""


class GardenerCallback(lightning.Callback):
    """Steps the gardener of a module after every training epoch, and keeps it in the trainer's checkpoints.

    Make the gardener in `configure_optimizers`, between optimiser and scheduler, and keep it as `self.gardener`.
    `evaluate` is given the module, and returns a score as `Gardener.step` wants it.
    """

    def __init__(self, evaluate: Callable[[Any], Any]) -> None:
        self.evaluate = evaluate
        self._saved: Mapping[str, Any] | None = None

    def on_fit_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Between `configure_optimizers` and the loading of the optimiser's state: let grow what had grown."""
        gardener = _gardener_of(pl_module)
        if self._saved is not None:
            gardener.load_state_dict(self._saved["state"])
            pl_module.load_state_dict({**pl_module.state_dict(), **self._saved["seeds"]})
            self._saved = None

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        _gardener_of(pl_module).step(lambda model: self.evaluate(pl_module))

    def on_save_checkpoint(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Weights are loaded before there is a gardener, so those of seeds are kept apart."""
        weights = checkpoint["state_dict"]
        seeds = {name: weights.pop(name) for name in list(weights) if CHILD in name.split(".")}
        checkpoint[SAVED] = {"state": _gardener_of(pl_module).state_dict(), "seeds": seeds}

    def on_load_checkpoint(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self._saved = checkpoint.get(SAVED)


def _gardener_of(module: lightning.LightningModule) -> Gardener:
    gardener = getattr(module, "gardener", None)
    if not isinstance(gardener, Gardener):
        raise BadSetting(
            f"{type(module).__name__} has no gardener; make it in configure_optimizers, between optimizer and "
            "scheduler, and keep it as self.gardener"
        )
    return gardener
