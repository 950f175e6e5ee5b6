"""Kinds of text that a task can be drawn from: a slice of Shakespeare, and generated ones with rules to find.

What a rule needs differs: memory of the last tokens, a look far back, or much to be known by heart.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esper.environment.families.ranges import Range, Span
from esper.environment.text import characters, shakespeare_text

Tokens = NDArray[np.int64]
Look = Mapping[str, Any]
"""What was drawn for a text, by the names of its kind's ranges."""
Write = Callable[[Look, np.random.Generator, int], Tokens]
"""Writes at least so many tokens."""

LAYOUT = Span(0, 999_999)
"""The rules of a task, as the seed of their random numbers; what is written by them draws from others."""


@dataclass(frozen=True)
class TextKind:
    """What can be written. `vocabulary` counts the tokens that may occur."""

    name: str
    meaning: str
    ranges: Mapping[str, Range]
    vocabulary: Callable[[Look], int]
    write: Write


TEXT_KINDS: dict[str, TextKind] = {}


def text_kind(name: str, vocabulary: Callable[[Look], int], **ranges: Range) -> Callable[[Write], Write]:
    """Register a function that writes."""

    def register(write: Write) -> Write:
        TEXT_KINDS[name] = TextKind(name, " ".join((write.__doc__ or "").split()), ranges, vocabulary, write)
        return write

    return register


LETTERS = "\n ',.abcdefghijklmnopqrstuvwxyz"


@text_kind("shakespeare", lambda _: len(LETTERS), place=Span(0, 999))
def shakespeare(look: Look, random: np.random.Generator, count: int) -> Tokens:
    """Some pages of Shakespeare in small letters, with little punctuation; the place is a thousandth of the plays."""
    text = "".join(letter if letter in LETTERS else " " for letter in shakespeare_text().lower())
    begin = min(look["place"] * len(text) // 1_000, len(text) - count)
    return characters(text[begin : begin + count], LETTERS).numpy()


@text_kind("chain", lambda look: look["symbols"], symbols=Span(4, 10), order=Span(1, 3), layout=LAYOUT)
def chain(look: Look, random: np.random.Generator, count: int) -> Tokens:
    """Symbols of which the last one to three decide how likely the next one is; the odds are the task's own."""
    symbols, order = look["symbols"], look["order"]
    odds = _layout(look).integers(1, 6, (symbols**order, symbols)) ** 3
    limits = odds.cumsum(axis=1)
    throws, written, place = random.random(count), np.empty(count, dtype=np.int64), 0
    for at in range(count):
        written[at] = np.searchsorted(limits[place], throws[at] * limits[place, -1], side="right")
        place = (place * symbols + written[at]) % symbols**order
    return written


@text_kind("brackets", lambda look: 2 * look["kinds"] + 1, kinds=Span(2, 6), depth=Span(3, 8))
def brackets(look: Look, random: np.random.Generator, count: int) -> Tokens:
    """Brackets of several kinds inside each other, with dots between; each is closed by its own kind."""
    kinds, throws = look["kinds"], random.random((count, 2))
    written, opened = np.empty(count, dtype=np.int64), list[int]()
    for at, (what, which) in enumerate(throws):
        if what < 0.2:
            written[at] = 2 * kinds
        elif opened and (what < 0.6 or len(opened) == look["depth"]):
            written[at] = kinds + opened.pop()
        else:
            opened.append(int(which * kinds))
            written[at] = opened[-1]
    return written


@text_kind("echo", lambda look: look["symbols"] + 1, symbols=Span(4, 16), length=Span(3, 10))
def echo(look: Look, random: np.random.Generator, count: int) -> Tokens:
    """Any symbols, a mark, the same symbols once more, a mark, and so on with others."""
    symbols, length = look["symbols"], look["length"]
    drawn = random.integers(0, symbols, (count // (2 * length + 2) + 1, length))
    marks = np.full((len(drawn), 1), symbols)
    return np.concatenate((drawn, marks, drawn, marks), axis=1).reshape(-1)[:count]


@text_kind("sums", lambda _: 13, digits=Span(1, 3))
def sums(look: Look, random: np.random.Generator, count: int) -> Tokens:
    """Sums of two numbers, digit by digit with the last digit first, as in 3+52=55 read backwards."""
    digits = look["digits"]
    numbers = random.integers(0, 10**digits, (count // (3 * digits + 4) + 1, 2))
    tens = 10 ** np.arange(digits + 1)
    first, second, both = (
        value[:, None] // tens[:places] % 10
        for value, places in ((numbers[:, 0], digits), (numbers[:, 1], digits), (numbers.sum(axis=1), digits + 1))
    )
    plus, equals, end = (np.full((len(numbers), 1), mark) for mark in (10, 11, 12))
    return np.concatenate((first, plus, second, equals, both, end), axis=1).reshape(-1)[:count]


NUMBERS, PARTS = 2, 3
"""Singular and plural; articles, nouns and verbs have both, and adjectives have neither."""


@text_kind("grammar", lambda look: 7 * look["words"] + 2, words=Span(2, 6), clauses=Span(1, 3), layout=LAYOUT)
def grammar(look: Look, random: np.random.Generator, count: int) -> Tokens:
    """Sentences: a noun phrase, perhaps with clauses in it, and a verb that must agree with it in number.

    Which words go together is the task's own.
    """
    words, written = look["words"], list[int]()
    favourites = _layout(look).integers(0, words, (2 * words, 3))
    that, stop = 7 * words, 7 * words + 1

    def phrase(depth: int) -> None:
        number, noun = random.integers(0, NUMBERS), random.integers(0, words)
        likely = favourites[words * number + noun]
        written.append(_word(0, number, random.integers(0, words), words))
        for _ in range(random.integers(0, 3)):
            written.append(6 * words + int(likely[0] if random.random() < 0.7 else random.integers(0, words)))
        written.append(_word(1, number, noun, words))
        if depth and random.random() < 0.4:
            written.append(that)
            phrase(depth - 1)
        verb = likely[1] if random.random() < 0.7 else random.integers(0, words)
        written.append(_word(2, number, verb, words))

    while len(written) < count:
        phrase(look["clauses"])
        written.append(stop)
    return np.array(written[:count])


def _word(part: int, number: np.integer[Any], word: np.integer[Any], words: int) -> int:
    """The token of a word of that part of speech in that number."""
    return int((NUMBERS * part + number) * words + word)


def _layout(look: Look) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(look["layout"]))
