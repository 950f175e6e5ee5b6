"""Grow a small Llama in Hugging Face's Trainer, on the characters of a module of Python's library, and let it go on
writing: built from its configuration, nothing is downloaded. With the cache it writes what it writes without.

python examples/gardener_language_model.py
"""

import tempfile
import textwrap
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import esper
from esper.gardener.huggingface import GardenerTrainerCallback

EPOCHS, ROW = 8, 32


def main() -> None:
    """Train, grow, harvest, write."""
    torch.manual_seed(0)
    text = Path(textwrap.__file__).read_text(encoding="utf-8")
    letters = sorted(set(text))
    tokens = torch.tensor([letters.index(letter) for letter in text])
    rows = tokens[: len(tokens) // ROW * ROW].view(-1, ROW)
    learned, unseen = rows[::2], rows[1::2]
    shape: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    shape |= {"num_attention_heads": 2, "vocab_size": len(letters), "max_position_embeddings": 2 * ROW}
    build: Any = LlamaForCausalLM  # which has no types
    model = build(LlamaConfig(pad_token_id=0, bos_token_id=0, eos_token_id=None, **shape))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    gardener = esper.Gardener(
        model, optimizer, example={"input_ids": learned[:2]}, epochs=EPOCHS, direction="min", rent=0.005
    )

    def nats(model: nn.Module) -> float:
        with torch.no_grad():
            return float(model(input_ids=unseen, labels=unseen).loss)

    with tempfile.TemporaryDirectory() as directory:
        arguments = TrainingArguments(
            directory,
            num_train_epochs=EPOCHS,
            per_device_train_batch_size=16,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        )
        data: Any = [{"input_ids": row, "labels": row} for row in learned]
        callbacks: Any = [GardenerTrainerCallback(gardener, nats)]
        Trainer(model, arguments, train_dataset=data, optimizers=(optimizer, None), callbacks=callbacks).train()
    grown: Any = gardener.harvest().eval()
    print(gardener.report())
    prompt: dict[str, Any] = {"inputs": unseen[:1, :8], "attention_mask": torch.ones(1, 8), "max_new_tokens": 24}
    written, again = (grown.generate(**prompt, use_cache=cached, do_sample=False) for cached in (True, False))
    print("it writes", repr("".join(letters[each] for each in written[0])))
    print(f"with the cache it writes the same as without: {torch.equal(written, again)}")


if __name__ == "__main__":
    main()
