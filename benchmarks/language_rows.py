"""The rows of `language.py` in a file that processes share, the table and the figure."""

import csv
import fcntl
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from scipy import stats

from esper.environment import derive
from esper.runs.seeds import EXAM_SEEDS


class Key(NamedTuple):
    """Which training: at what budget, by which arm, with which seed."""

    budget: float
    arm: str
    seed: int


@dataclass(frozen=True)
class Row:
    """The end of one training. `fossils` is what grew, as JSON; `worth` the return on the evaluation split."""

    budget: float
    arm: str
    seed: int
    bits: float
    evaluation_bits: float
    parameters: int
    flops: float
    seconds: float
    kept: str = ""
    fossils: str = "[]"
    worth: float = 0.0

    @property
    def key(self) -> Key:
        return Key(self.budget, self.arm, self.seed)


COLUMNS = {each.name: each.type for each in fields(Row)}
ADDING = 0
"""The byte of the lock file that is locked by who adds a row. Those behind it are claims."""


class Rows:
    """The rows so far. Processes of one machine may share the file, and each of them may be killed at any time.

    Locks are on bytes of a file beside it and end with the process that has them.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._locks = path.with_suffix(".lock").open("w")
        self.known: dict[Key, Row] = {}
        self.read()

    def read(self) -> None:
        """Take over what others have added. A last line that has no end is not read."""
        text = self._path.read_text(encoding="utf-8") if self._path.exists() else ""
        for line in csv.DictReader(text[: text.rfind("\n") + 1].splitlines()):
            row = Row(**{name: kind(line[name]) for name, kind in COLUMNS.items()})  # type: ignore[operator]
            self.known[row.key] = row

    @contextmanager
    def claim(self, key: Key, wait: bool = True) -> Iterator[bool]:
        """Whether that row is this process's to play. Of a row that another one plays, not unless it waits for it."""
        place = 1 + derive(0, *map(str, key)) % 2**40
        how = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
        try:
            fcntl.lockf(self._locks, how, 1, place)
        except BlockingIOError:
            yield False
            return
        try:
            self.read()
            yield key not in self.known
        finally:
            fcntl.lockf(self._locks, fcntl.LOCK_UN, 1, place)

    def add(self, row: Row) -> Row:
        """Keep it. A line that somebody could not finish goes."""
        fcntl.lockf(self._locks, fcntl.LOCK_EX, 1, ADDING)
        try:
            with self._path.open("a+b") as file:
                file.seek(0)
                whole = file.read().rfind(b"\n") + 1
                file.truncate(whole)
                cells = [astuple(row)] if whole else [tuple(COLUMNS), astuple(row)]
                file.write(_lines(cells).encode())
        finally:
            fcntl.lockf(self._locks, fcntl.LOCK_UN, 1, ADDING)
        self.known[row.key] = row
        return row


def _lines(rows: Iterable[Iterable[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


# What is told


def means(rows: Iterable[Row]) -> Iterator[tuple[float, str, list[Row]]]:
    """The rows on held-out seeds, by budget and arm."""
    held = [row for row in rows if row.seed in EXAM_SEEDS]
    for budget in sorted({row.budget for row in held}):
        for arm in dict.fromkeys(row.arm for row in held if row.budget == budget):
            yield budget, arm, [row for row in held if (row.budget, row.arm) == (budget, arm)]


def interval(numbers: Sequence[float]) -> float:
    """Half of a 95 % interval of the mean."""
    if len(numbers) < 2:
        return float("nan")
    return float(stats.t.ppf(0.975, len(numbers) - 1) * stats.sem(numbers))


def table_of(rows: Rows, reference: str) -> Iterator[str]:
    """Bits of every arm, and how many more they are than the reference has on the same seeds."""
    yield f"| budget | arm | seeds | bits per character | more than {reference} | parameters | FLOPs | seconds |"
    yield "|---|---|---|---|---|---|---|---|"
    for budget, arm, own in means(rows.known.values()):
        bits = [row.bits for row in own]
        others = [rows.known.get(Key(budget, reference, row.seed)) for row in own if arm != reference]
        pairs = [row.bits - other.bits for row, other in zip(own, others, strict=False) if other]
        more = f"{fmean(pairs):+.3f} ± {interval(pairs):.3f}" if pairs else ""
        size, flops, seconds = (fmean(getattr(row, name) for row in own) for name in ("parameters", "flops", "seconds"))
        cells = (f"{budget:g}", arm, len(own), f"{fmean(bits):.3f} ± {interval(bits):.3f}", more)
        yield f"| {' | '.join(map(str, cells))} | {size:,.0f} | {flops:.3g} | {seconds:.0f} |"


BEST_SCHEDULE = "best fixed schedule"
SCHEDULES = ("stack:", "search:")


def lines_of(rows: Iterable[Row], deciders: Sequence[str]) -> dict[str, list[list[Row]]]:
    """What the figure shows, budget by budget: every static depth, the fixed schedule that was best on the evaluation
    split, and who decides.
    """
    lines: dict[str, list[list[Row]]] = {}
    found = list(means(rows))
    for budget in dict.fromkeys(budget for budget, _, _ in found):
        arms = {arm: own for at, arm, own in found if at == budget and "@" not in arm}
        schedules = [own for arm, own in arms.items() if arm.startswith(SCHEDULES)]
        if schedules:
            arms[BEST_SCHEDULE] = min(schedules, key=lambda own: fmean(row.evaluation_bits for row in own))
        for arm, own in arms.items():
            if arm.startswith("depth:") or arm in (BEST_SCHEDULE, *deciders):
                lines.setdefault(arm, []).append(own)
    depths = sorted((arm for arm in lines if arm.startswith("depth:")), key=lambda arm: int(arm.partition(":")[2]))
    return {arm: lines[arm] for arm in (*depths, BEST_SCHEDULE, *deciders) if arm in lines}


def draw_figure(rows: Rows, deciders: Sequence[str], path: Path) -> None:
    """Bits against training FLOPs. At each point of the best fixed schedule stands which it is."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    axes = figure.add_subplot()
    for at, (name, points) in enumerate(lines_of(rows.known.values(), deciders).items()):
        x, y = ([fmean(getattr(row, what) for row in own) for own in points] for what in ("flops", "bits"))
        arms = [0.0 if len(own) < 2 else interval([row.bits for row in own]) for own in points]
        static = name.startswith("depth:")
        look: dict[str, Any] = {"linestyle": "-", "linewidth": 1.0} if static else {"linestyle": "--", "linewidth": 2.0}
        axes.errorbar(x, y, arms, label=name, marker="osD^v<>"[at % 7], capsize=2, color=f"C{at % 10}", **look)
        if name == BEST_SCHEDULE:
            for left, low, own in zip(x, y, points, strict=True):
                axes.annotate(own[0].arm, (left, low), (4, -10), textcoords="offset points", fontsize=6)
    axes.set_xscale("log")
    axes.set_xlabel("training FLOPs")
    axes.set_ylabel("bits per character, test split")
    axes.grid(color="#e6e6e6")
    figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=140)
