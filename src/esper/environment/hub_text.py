"""Texts of the Hugging Face hub as tokens: a small byte-pair encoding, learned from the text itself.

`datasets` reads them and `tokenizers` encodes them; both are optional.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from esper.contracts import EsperError, Token, nearest
from esper.environment.data import (
    HubSource,
    MissingLibrary,
    UnreadableData,
    WrongSchema,
    folder_of,
    layout_of,
    load_hub,
    words_of,
)

END = "<|end|>"
"""The token behind every document."""


@dataclass(frozen=True)
class HubText(HubSource):
    """A set of documents. Of each split the first `documents` and `held_out` are taken, whole."""

    field: str
    held_split: str
    documents: int
    held_out: int
    encoder_documents: int
    """So many teach the encoding."""
    vocabulary: int

    @property
    def schema(self) -> str:
        return f"splits train and {self.held_split} with the field {self.field}"


TINY_STORIES = HubText(
    repository="roneneldan/TinyStories",
    config="default",
    field="text",
    held_split="validation",
    documents=8_000,
    held_out=400,
    encoder_documents=2_000,
    vocabulary=1_024,
)


@dataclass(frozen=True, eq=False)
class EncodedText:
    """Documents one behind the other as tokens of shape (n,), int64, and what one of them stands for on average."""

    tokens: Tensor
    size: Token


def hub_tokens(source: HubText, data_dir: Path | None) -> tuple[EncodedText, EncodedText]:
    """The documents to train on, and those that the hub holds out; the encoding has seen none of the latter."""
    return _read(source, None if data_dir is None else folder_of(source, data_dir))


@cache
def _read(source: HubText, folder: Path | None) -> tuple[EncodedText, EncodedText]:
    library, sets, place = _tokenizers(source), load_hub(source, folder), folder or source.repository
    train = _documents(sets, source, "train", source.documents, place)
    held = _documents(sets, source, source.held_split, source.held_out, place)
    encoder = _encoder(library, source, train[: source.encoder_documents])
    return _encoded(encoder, train), _encoded(encoder, held)


def _tokenizers(source: HubText) -> Any:
    try:
        return import_module("tokenizers")
    except ImportError as error:
        raise MissingLibrary(
            f'{source.repository} is encoded with the library tokenizers ({error}); pip install "esper-growth[data]"'
        ) from error


def _documents(sets: Any, source: HubText, split: str, count: int, place: Path | str) -> list[str]:
    if split not in sets:
        raise WrongSchema(f"{place} has the splits {sorted(sets)}, not '{split}'; it must hold {layout_of(source)}")
    rows = sets[split]
    if source.field not in rows.column_names:
        raise WrongSchema(
            f"{place}, split {split} has no field '{source.field}'; {nearest(source.field, rows.column_names)}; "
            f"it must hold {layout_of(source)}"
        )
    try:
        documents = list(rows[:count][source.field])
    except EsperError:
        raise
    except Exception as error:
        raise UnreadableData(f"{place}, split {split} cannot be decoded ({words_of(error)}); copy it anew") from error
    if not documents or not all(isinstance(document, str) for document in documents):
        raise WrongSchema(f"{place}, split {split} has documents that are not text; it must hold {layout_of(source)}")
    return documents


def _encoder(library: Any, source: HubText, documents: Sequence[str]) -> Any:
    """The same for the same documents. Every byte has a token of its own, so that no text is unknown."""
    encoder = library.Tokenizer(library.models.BPE())
    encoder.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = library.trainers.BpeTrainer(
        vocab_size=source.vocabulary,
        special_tokens=[END],
        initial_alphabet=sorted(library.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    encoder.train_from_iterator(documents, trainer)
    return encoder


def _encoded(encoder: Any, documents: Sequence[str]) -> EncodedText:
    end = encoder.token_to_id(END)
    tokens = torch.tensor([token for each in encoder.encode_batch(documents) for token in (*each.ids, end)])
    characters, size = sum(map(len, documents)), sum(len(document.encode()) for document in documents)
    return EncodedText(tokens, Token(characters / len(tokens), size / len(tokens)))
