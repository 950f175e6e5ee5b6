"""Tasks on texts, drawn from a table of ranges: what is written, a small transformer, and how it trains."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from esper.environment.families.ranges import Choice, Draws, Log, Span
from esper.environment.families.texts import TEXT_KINDS
from esper.environment.tasks import Task, text_task
from esper.environment.text import Parts, Text
from esper.growth import GPTShape

HELD_OUT = 4_096
"""Tokens to evaluate on, and to test on."""


@dataclass(frozen=True)
class TextRanges:
    """What is drawn, and from which range; in docs/families.md in words."""

    texts: Choice
    tokens: Choice
    layers: Span
    width: Choice
    heads: Choice
    context: Choice
    optimizer: Choice
    rate: Log
    batch_size: Choice
    batches: Span
    horizon: Span
    rent: Log


TEXTUAL = TextRanges(
    texts=Choice("shakespeare", "chain", "brackets", "echo", "sums", "grammar"),
    tokens=Choice(4_000, 16_000, 64_000),
    layers=Span(1, 4),
    width=Choice(16, 16, 24, 32, 32, 48, 64),
    heads=Choice(2, 4),
    context=Choice(16, 24, 32),
    optimizer=Choice("adam", "adamw"),
    rate=Log(0.003, 0.03),
    batch_size=Choice(8, 16),
    batches=Span(8, 20),
    horizon=Span(10, 30),
    rent=Log(0.002, 0.06),
)


def draw_text_task(name: str, draws: Draws, ranges: TextRanges) -> Task:
    """The task of these draws."""
    text, host = _text(draws, ranges), _host(draws, ranges)
    optimizer, rate, rent = (draws.pick(each, getattr(ranges, each)) for each in ("optimizer", "rate", "rent"))
    words = f"{host.layers} layers of {host.width}, context {host.context}; {optimizer} {rate:g}, rent {rent:g}"
    found = text_task(text, host, name, f"{text.origin}; {words}")
    return replace(
        found,
        source="written, no download",
        judged_by="loss",
        optimizer=optimizer,
        learning_rate=rate,
        seed_learning_rate=rate,
        batch_size=draws.pick("batch size", ranges.batch_size),
        batches=draws.pick("batches", ranges.batches),
        horizon=draws.pick("horizon", ranges.horizon),
        rent=rent,
        traits={**found.traits, "layers": str(host.layers), "optimizer": optimizer},
    )


def _host(draws: Draws, ranges: TextRanges) -> GPTShape:
    return GPTShape(*(draws.pick(each, getattr(ranges, each)) for each in ("layers", "width", "heads", "context")))


def _text(draws: Draws, ranges: TextRanges) -> Text:
    kind = TEXT_KINDS[draws.pick("text", ranges.texts)]
    look = tuple((name, draws.pick(f"{kind.name} {name}", among)) for name, among in kind.ranges.items())
    tokens, vocabulary = draws.pick("tokens", ranges.tokens), kind.vocabulary(dict(look))
    words = f"{kind.name}, {vocabulary} symbols, {tokens} tokens"
    read = partial(_written, kind.name, look, tokens, draws.seed("tokens written"))
    return Text(kind.name, words, vocabulary, read)


def _written(kind: str, look: tuple[tuple[str, object], ...], count: int, seed: int, data_dir: Path | None) -> Parts:
    """One text, cut in three."""
    random = np.random.Generator(np.random.PCG64(seed))
    tokens = torch.from_numpy(TEXT_KINDS[kind].write(dict(look), random, count + 2 * HELD_OUT))
    train, evaluation, test = tokens.split((count, HELD_OUT, HELD_OUT))
    return Parts(train, evaluation, test)
