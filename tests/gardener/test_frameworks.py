"""Checkpoints of other people's trainers: a training that was stopped goes on as if it had not been.

The frameworks are imported where they are used, so that only processes that run these tests wait for them.
"""

from functools import cache
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import esper
from esper.controller import Schedule, ScheduledSeed
from esper.gardener.errors import BadSetting, WrongState

EPOCHS, HALF = 8, 4
X = torch.randn(48, 6, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] * X[:, 1] > 0).long()
IMAGES = torch.randn(24, 1, 8, 8, generator=torch.Generator().manual_seed(1))


def accuracy(module: nn.Module) -> float:
    with torch.no_grad():
        return float((module.model(X).argmax(1) == Y).float().mean())


@cache
def lightning_module() -> Any:
    """The class of a module that makes its gardener where Lightning wants optimisers."""
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))

        def training_step(self, batch, index):
            return nn.functional.cross_entropy(self.model(batch[0]), batch[1])

        def configure_optimizers(self):
            optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
            planted = Schedule((ScheduledSeed(epoch=0, slot="1", blueprint="mlp"),))
            self.gardener = esper.Gardener(
                self.model, optimizer, example=X[:2], at=["1"], epochs=EPOCHS, controller=planted
            )
            return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)]

    return Module


def fit(epochs: int, directory, checkpoint=None) -> Any:
    import lightning

    from esper.gardener.lightning import GardenerCallback

    module = lightning_module()()
    trainer = lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        callbacks=[GardenerCallback(accuracy)],
        default_root_dir=directory,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, DataLoader(TensorDataset(X, Y), batch_size=16), ckpt_path=checkpoint)
    trainer.save_checkpoint(directory / "saved.ckpt")
    return module


def test_lightning_goes_on_from_its_own_checkpoint_in_the_middle_of_growth(tmp_path):
    whole = fit(EPOCHS, tmp_path)
    half = fit(HALF, tmp_path)
    assert half.gardener.body.living(), "a seed is in the middle of its life"
    again = fit(EPOCHS, tmp_path, tmp_path / "saved.ckpt")
    assert again.gardener.done
    assert again.gardener.report().lives == whole.gardener.report().lives
    for name, weights in whole.state_dict().items():
        assert torch.equal(again.state_dict()[name], weights), name


def test_lightnings_checkpoint_loads_into_a_module_without_a_gardener(tmp_path):
    fit(HALF, tmp_path)
    saved = torch.load(tmp_path / "saved.ckpt", weights_only=True)
    lightning_module()().load_state_dict(saved["state_dict"])


def test_a_module_without_a_gardener_is_told_before_the_first_epoch(tmp_path, monkeypatch):
    monkeypatch.setattr(
        lightning_module(), "configure_optimizers", lambda self: torch.optim.SGD(self.parameters(), lr=0.1)
    )
    with pytest.raises(BadSetting, match=r"Module has no gardener; make it in configure_optimizers"):
        fit(1, tmp_path)


def trained(epochs: int, directory, resume: str | None = None) -> esper.Gardener:
    """By Hugging Face's trainer, which is stopped after so many epochs."""
    from transformers import ResNetConfig, ResNetForImageClassification, Trainer, TrainingArguments

    from esper.gardener.huggingface import GardenerTrainerCallback

    torch.manual_seed(0)
    model = ResNetForImageClassification(
        ResNetConfig(num_channels=1, layer_type="basic", embedding_size=4, hidden_sizes=[4], depths=[1], num_labels=2)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    example = {"pixel_values": IMAGES[:2]}
    slot = "resnet.encoder.stages.0"
    planted = Schedule((ScheduledSeed(epoch=0, slot=slot, blueprint="conv_light"),))
    gardener = esper.Gardener(model, optimizer, example=example, at=[slot], epochs=EPOCHS, controller=planted)
    arguments = TrainingArguments(
        str(directory),
        max_steps=2 * epochs,
        lr_scheduler_type="constant",
        per_device_train_batch_size=12,
        save_strategy="epoch",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    callback = GardenerTrainerCallback(gardener, lambda model: 0.5)
    rows = [{"pixel_values": image, "labels": int(image.mean() > 0)} for image in IMAGES]
    trainer = Trainer(model, arguments, train_dataset=rows, optimizers=(optimizer, None), callbacks=[callback])
    if resume is not None:
        callback.resume(resume)
    trainer.train(resume_from_checkpoint=resume)
    return gardener


def test_hugging_faces_trainer_goes_on_from_its_own_checkpoint(tmp_path):
    whole = trained(EPOCHS, tmp_path / "whole")
    half = trained(HALF, tmp_path / "half")
    assert half.body.living(), "a seed is in the middle of its life"
    again = trained(EPOCHS, tmp_path / "half", str(tmp_path / "half" / f"checkpoint-{2 * HALF}"))
    assert again.done
    assert again.report().lives == whole.report().lives
    for name, weights in whole.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], weights), name


def test_a_checkpoint_without_a_gardener_is_refused(tmp_path):
    from esper.gardener.huggingface import GardenerTrainerCallback

    gardener = esper.Gardener(
        model := nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2)),
        torch.optim.SGD(model.parameters(), lr=0.1),
        example=torch.zeros(2, 2),
        epochs=2,
    )
    with pytest.raises(WrongState, match=r"gardener\.pt does not exist; give a checkpoint that was saved with"):
        GardenerTrainerCallback(gardener, lambda model: 0.5).resume(tmp_path)
