"""What a garden came to, told from its events: as text, and as a page with one figure."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from esper.contracts import EsperError, Event, Stage, StageChanged
from esper.telemetry import (
    DecisionMade,
    GardenHarvested,
    GardenStarted,
    RewardPaid,
    RolledBack,
    RunFiles,
    effective,
    read_log,
)

WIDTH, HEIGHT, MARGIN = 640, 240, 40
"""Of the figure, in pixels."""
COLOURS = {"plant": "#3c8d5a", "keep": "#8c564b", "remove": "#999999", "roll back": "#d1495b"}
STYLE = "body{font:15px sans-serif;max-width:44em;margin:2em auto}td,th{padding:.2em .8em;text-align:left}"


class NoGarden(EsperError):
    """The directory holds no garden."""


@dataclass(frozen=True)
class Life:
    """A seed: where and when it was planted, what became of it, and its last measured contribution, a fraction."""

    slot: str
    blueprint: str
    planted: int
    fate: str
    contribution: float | None


@dataclass(frozen=True)
class Report:
    """Prints as text. `qualities` has one number per epoch; figures of the harvest are None before there is one."""

    host: str
    epochs: int
    parameters: int
    flops: int
    harvested: GardenHarvested | None
    lives: tuple[Life, ...]
    qualities: tuple[float, ...]
    marks: tuple[tuple[int, str, str], ...]
    """What happened when: the epoch, a word of COLOURS and the slot or the reason."""

    def __str__(self) -> str:
        lines = [f"{self.host}: {len(self.qualities)} of {self.epochs} epochs, {len(self.lives)} planted"]
        lines += [f"  {self._sentence(life)}" for life in self.lives]
        rolled = [(epoch, why) for epoch, kind, why in self.marks if kind == "roll back"]
        lines += [f"  rolled back in epoch {epoch + 1}: {why}" for epoch, why in rolled]
        lines += [f"{name}: {before:,} before, {_told(after, ' after')}" for name, before, after in self._costs()]
        if self.qualities:
            lines.append(f"quality: {self._quality()}")
        return "\n".join(lines)

    def to_html(self, path: str | Path) -> None:
        """Write a page that needs nothing else."""
        rows = "".join(
            f"<tr><td>{escape(life.slot)}</td><td>{escape(life.blueprint)}</td><td>{life.planted}</td>"
            f"<td>{escape(life.fate)}</td><td>{_points(life.contribution)}</td></tr>"
            for life in self.lives
        )
        costs = "".join(
            f"<tr><td>{name}</td><td>{was:,}</td><td>{_told(now)}</td></tr>" for name, was, now in self._costs()
        )
        page = (
            f"<!doctype html><meta charset=utf-8><title>{escape(self.host)}</title><style>{STYLE}</style>"
            f"<h1>What grew in {escape(self.host)}</h1>{self._figure()}"
            "<table><tr><th>behind</th><th>blueprint</th><th>planted after epoch</th><th>fate</th>"
            f"<th>the network lost without it</th></tr>{rows}</table>"
            f"<table><tr><th></th><th>before</th><th>after</th></tr>{costs}</table>"
            f"<p>Quality: {escape(self._quality())}.</p>"
        )
        Path(path).write_text(page, encoding="utf-8")

    def _sentence(self, life: Life) -> str:
        told = f"{life.blueprint} behind {life.slot}, planted after epoch {life.planted}: {life.fate}"
        if life.contribution is None:
            return told
        moved = "gained" if life.contribution < 0.0 else "lost"
        return f"{told}; the network {moved} {_points(abs(life.contribution))} without it"

    def _costs(self) -> list[tuple[str, int, int | None]]:
        after = self.harvested
        return [
            ("parameters", self.parameters, None if after is None else after.parameters),
            ("operations per sample", self.flops, None if after is None else after.flops),
        ]

    def _quality(self) -> str:
        live = f"{self.qualities[-1]:.4g} of the live network in the end, {max(self.qualities):.4g} at its best"
        delivered = None if self.harvested is None else self.harvested.quality
        return live if delivered is None else f"{live}, {delivered:.4g} of what is delivered"

    def _figure(self) -> str:
        """Quality over epochs, with a line where something was planted, kept, removed or rolled back."""
        known = [each for each in self.qualities if math.isfinite(each)]
        if not known:
            return ""
        low, high = min(known), max(max(known), min(known) + 1e-9)

        def x(epoch: float) -> float:
            return MARGIN + (WIDTH - 2 * MARGIN) * epoch / max(1, self.epochs)

        def y(quality: float) -> float:
            return HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * (quality - low) / (high - low)

        course = " ".join(
            f"{x(epoch + 1):.1f},{y(each):.1f}" for epoch, each in enumerate(self.qualities) if math.isfinite(each)
        )
        marks = "".join(
            f'<path d="M{x(epoch):.1f} {MARGIN}V{HEIGHT - MARGIN}" stroke="{COLOURS[kind]}">'
            f"<title>{escape(f'{kind}: {what}')}</title></path>"
            for epoch, kind, what in self.marks
        )
        happened = [kind for kind in COLOURS if any(kind == other for _, other, _ in self.marks)]
        key = "".join(
            f'<text x="{MARGIN + 110 * index}" y="20" fill="{COLOURS[kind]}">| {kind}</text>'
            for index, kind in enumerate(happened)
        )
        return (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" font-size="12" role="img">{key}{marks}'
            f'<polyline points="{course}" fill="none" stroke="#30638e" stroke-width="2"/>'
            f'<text x="0" y="{y(high):.0f}">{high:.3g}</text><text x="0" y="{y(low):.0f}">{low:.3g}</text>'
            f'<text x="0" y="{HEIGHT / 2:.0f}">quality</text>'
            f'<path d="M{MARGIN} {HEIGHT - MARGIN}H{WIDTH - MARGIN}" stroke="#999999"/>'
            f'<text x="{x(1):.0f}" y="{HEIGHT - 20}" text-anchor="middle">after epoch 1</text>'
            f'<text x="{WIDTH - MARGIN}" y="{HEIGHT - 20}" text-anchor="end">{self.epochs}</text></svg>'
        )


def report_in(directory: str | Path) -> Report:
    """The report of the garden that was told in a directory."""
    log = RunFiles(Path(directory)).events_file
    told = [record.event for record in effective(read_log(log))] if log.is_file() else []
    if not any(isinstance(event, GardenStarted) for event in told):
        raise NoGarden(f"{directory} holds no garden: give the `directory` of an esper.Gardener")
    return report_of(told)


def report_of(events: Iterable[Event]) -> Report:
    """The report of one garden's events in their order."""
    told = list(events)
    start = next(event for event in told if isinstance(event, GardenStarted))
    harvests = [event for event in told if isinstance(event, GardenHarvested)]
    harvested = harvests[-1] if harvests else None
    return Report(
        host=start.host,
        epochs=start.epochs,
        parameters=start.parameters,
        flops=start.flops,
        harvested=harvested,
        lives=tuple(_lives(told, harvested)),
        qualities=tuple(event.quality for event in told if isinstance(event, RewardPaid)),
        marks=tuple(_marks(told)),
    )


def _lives(events: Sequence[Event], harvested: GardenHarvested | None) -> Iterable[Life]:
    births = [
        (at, event)
        for at, event in enumerate(events)
        if isinstance(event, DecisionMade) and event.op == "GERMINATE" and not event.refused
    ]
    for number, (at, birth) in enumerate(births):
        slot = str(birth.slot)
        next_birth = next((later for later, other in births[number + 1 :] if other.slot == slot), len(events))
        own = events[at:next_birth]
        told = [event.contributions.get(slot) for event in own if isinstance(event, RewardPaid)]
        worths = [each for each in told if each is not None]
        yield Life(slot, str(birth.blueprint), birth.epoch, _fate(own, slot, harvested), worths[-1] if worths else None)


def _fate(events: Sequence[Event], slot: str, harvested: GardenHarvested | None) -> str:
    stages = [event for event in events if isinstance(event, StageChanged) and event.slot == slot]
    ends = [event for event in stages if event.after in (Stage.FOSSILIZED, Stage.PRUNED)]
    if ends:
        return f"{'kept' if ends[-1].after is Stage.FOSSILIZED else 'removed'} after epoch {ends[-1].epoch}"
    if harvested is None:
        return "still growing"
    return "delivered, as its gate would let it" if slot in harvested.delivered else "left out at the harvest"


def _marks(events: Sequence[Event]) -> Iterable[tuple[int, str, str]]:
    words = {Stage.GERMINATED: "plant", Stage.FOSSILIZED: "keep", Stage.PRUNED: "remove"}
    for event in events:
        if isinstance(event, StageChanged) and event.after in words:
            yield event.epoch, words[event.after], event.slot
        elif isinstance(event, RolledBack):
            yield event.epoch, "roll back", event.reason


def _told(cost: int | None, word: str = "") -> str:
    return "not harvested yet" if cost is None else f"{cost:,}{word}"


def _points(contribution: float | None) -> str:
    return "not measured" if contribution is None else f"{100 * contribution:.1f} points"
