"""The gardener in Hugging Face's Trainer: pip install transformers accelerate, or "esper-growth[huggingface]"."""

from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from esper.gardener.gardener import Gardener
from esper.gardener.score import Evaluate


class GardenerCallback(TrainerCallback):
    """Steps the gardener after every epoch.

    Make model, optimiser and gardener first, and give the trainer `optimizers=(optimizer, None)`: then it makes its
    scheduler after the gardener.
    """

    def __init__(self, gardener: Gardener, evaluate: Evaluate) -> None:
        self.gardener, self.evaluate = gardener, evaluate

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.gardener.step(self.evaluate)
