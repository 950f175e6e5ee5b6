"""Text as data: tokens in three parts by position, cut into windows of a host's context.

A window's targets are its tokens moved on by one. What follows the last token is padding, which is never counted.
"""

import bz2
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from esper.contracts import CHARACTER, EsperError, Token
from esper.environment.data import PADDING, Source, Split, Splits
from esper.environment.hub_text import TINY_STORIES, HubText, hub_tokens

SHARES = (18, 1, 1)
"""Of train, evaluation and test, in twentieths of a text."""
EVALUATION_TOKENS = 16_384
"""At most so many are evaluated after every epoch, from places all over the part."""
MOST_BYTES = 10_000_000
"""Of a user's file."""
MOST_CHARACTERS = 10_000
"""Different ones, of a user's file."""
KEPT = 8
"""Texts that are kept as windows."""


class UnusableText(EsperError):
    """A text that cannot be learned from."""


@dataclass(frozen=True, eq=False)
class Parts:
    """A text as tokens: three tensors of shape (n,), int64, that share nothing, and what a token stands for in each."""

    train: Tensor
    evaluation: Tensor
    test: Tensor
    sizes: tuple[Token, Token, Token] = (CHARACTER, CHARACTER, CHARACTER)


@dataclass(frozen=True)
class Text:
    """A text that tasks can name: its origin in words, how many tokens there are, and how to read it.

    `read` takes the user's data directory, which only hub sets look at.
    """

    name: str
    origin: str
    vocabulary: int
    read: Callable[[Path | None], Parts]

    def source(self, context: int) -> Source:
        """The text as samples of so many tokens."""
        return Source(
            self.name, self.origin, (context,), self.vocabulary, partial(_windowed, self.read, context), torch.int64
        )


@lru_cache(maxsize=KEPT)
def _windowed(read: Callable[[Path | None], Parts], context: int, data_dir: Path | None) -> Splits:
    return splits_of_parts(read(data_dir), context)


def splits_of_parts(parts: Parts, context: int) -> Splits:
    """Windows to train on overlap by half; those to evaluate and to test on do not."""
    for part in (parts.train, parts.evaluation, parts.test):
        if len(part) <= context:
            needed = (context + 1) * sum(SHARES) // min(SHARES)
            raise UnusableText(
                f"a part of the text has {len(part)} tokens, and a window is {context} and one more; give a smaller "
                f"context, or a text of at least {needed:,} tokens"
            )
    own = parts.train.unfold(0, context + 1, max(1, context // 2))
    return Splits(
        Split(own[:, :-1], own[:, 1:], parts.sizes[0]),
        held_out(parts.evaluation, context, parts.sizes[1], EVALUATION_TOKENS),
        held_out(parts.test, context, parts.sizes[2]),
    )


def held_out(tokens: Tensor, context: int, size: Token, most: int | None = None) -> Split:
    """The tokens in windows one behind the other, the last one padded; of more than `most` tokens, some windows."""
    missing = -(len(tokens) - 1) % context
    ahead = torch.nn.functional.pad(tokens, (0, missing), value=PADDING)
    x, y = ahead[:-1].clamp(min=0).view(-1, context), ahead[1:].view(-1, context)
    if most is not None and len(x) * context > most:
        chosen = torch.linspace(0, len(x) - 1, max(1, most // context)).long()
        x, y = x[chosen], y[chosen]
    return Split(x, y, size)


def by_position(text: str, vocabulary: str) -> Parts:
    """The first 90 % of the characters to train on, then 5 % to evaluate on, then 5 % to test on."""
    first, second = (len(text) * done // sum(SHARES) for done in (SHARES[0], SHARES[0] + SHARES[1]))
    pieces = text[:first], text[first:second], text[second:]
    train, evaluation, test = (characters(piece, vocabulary) for piece in pieces)
    sizes = [Token(1.0, len(piece.encode()) / max(1, len(piece))) for piece in pieces]
    return Parts(train, evaluation, test, (sizes[0], sizes[1], sizes[2]))


def characters(text: str, vocabulary: str) -> Tensor:
    """The place of every character in the sorted vocabulary, which must have it."""
    known, found = (np.frombuffer(each.encode("utf-32-le"), dtype=np.uint32) for each in (vocabulary, text))
    places = np.searchsorted(known, found).clip(max=len(known) - 1)
    if not np.array_equal(known[places], found):
        strange = chr(int(found[known[places] != found][0]))
        raise UnusableText(f"the text has {strange!r}, which is not in its vocabulary of {len(vocabulary)} characters")
    return torch.from_numpy(places.astype(np.int64))


@cache
def shakespeare_text() -> str:
    """The plays, as they lie in the package."""
    return bz2.decompress((files("esper.environment") / "texts/tiny_shakespeare.txt.bz2").read_bytes()).decode()


@cache
def _shakespeare(data_dir: Path | None) -> Parts:
    text = shakespeare_text()
    return by_position(text, "".join(sorted(set(text))))


def read_text(path: Path) -> str:
    """A user's file, which must be UTF-8 text of a bounded size."""
    try:
        if not path.is_file():
            raise UnusableText(f"there is no file {path}; name a text file that lies beside the task file")
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UnusableText(f"{path} cannot be read: {error.strerror}") from error
    if len(raw) > MOST_BYTES:
        raise UnusableText(f"{path} is larger than {MOST_BYTES:,} bytes; give a part of it")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise UnusableText(f"{path} is not UTF-8 text (byte {error.start:,}); convert it") from None
    if "\0" in text:
        raise UnusableText(f"{path} has characters of code 0, which no text has; give a text file")
    return text


def text_file(path: Path) -> Text:
    """The text of a file, character by character. It is read at once, for its vocabulary, and again when it is used."""
    text = read_text(path)
    vocabulary = "".join(sorted(set(text)))
    if not 2 <= len(vocabulary) <= MOST_CHARACTERS:
        raise UnusableText(
            f"{path} has {len(vocabulary)} different characters; give a text with 2 to {MOST_CHARACTERS:,}"
        )
    return Text(path.name, f"file {path.name}", len(vocabulary), partial(_of_file, path, vocabulary))


def _of_file(path: Path, vocabulary: str, data_dir: Path | None) -> Parts:
    return by_position(read_text(path), vocabulary)


def _hub(source: HubText, data_dir: Path | None) -> Parts:
    """Evaluation and test are halves of what the hub holds out."""
    train, held = hub_tokens(source, data_dir)
    cut = len(held.tokens) // 2
    return Parts(train.tokens, held.tokens[:cut], held.tokens[cut:], (train.size, held.size, held.size))


TEXTS: dict[str, Text] = {
    text.name: text
    for text in (
        Text("shakespeare", "characters of Tiny Shakespeare, no download", 65, _shakespeare),
        Text("tinystories", f"hub {TINY_STORIES.repository}", TINY_STORIES.vocabulary, partial(_hub, TINY_STORIES)),
    )
}
"""The texts that tasks can name, in a task file too."""
