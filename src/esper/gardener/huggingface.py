"""The gardener in Hugging Face's Trainer: pip install transformers accelerate, or "esper-growth[huggingface]"."""

from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from esper.gardener.errors import WrongState
from esper.gardener.gardener import Gardener
from esper.gardener.processes import is_first
from esper.gardener.score import Evaluate

FILE = "gardener.pt"
"""In the directory of a checkpoint."""


class GardenerTrainerCallback(TrainerCallback):
    """Steps the gardener after every epoch, and keeps it in the trainer's checkpoints.

    Make model, optimiser and gardener first, and give the trainer `optimizers=(optimizer, None)`: then it makes its
    scheduler after the gardener. To go on, call `resume(checkpoint)` before
    `trainer.train(resume_from_checkpoint=checkpoint)`.
    """

    def __init__(self, gardener: Gardener, evaluate: Evaluate) -> None:
        self.gardener, self.evaluate = gardener, evaluate

    def resume(self, checkpoint: str | Path) -> None:
        """Let grow what had grown, so that the trainer finds a place for all the weights that it loads."""
        file = Path(checkpoint) / FILE
        if not file.is_file():
            raise WrongState(f"{file} does not exist; give a checkpoint that was saved with a GardenerTrainerCallback")
        self.gardener.load_state_dict(torch.load(file, weights_only=True))

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.gardener.step(self.evaluate)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if is_first():
            directory = Path(args.output_dir or ".") / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
            torch.save(self.gardener.state_dict(), directory / FILE)
