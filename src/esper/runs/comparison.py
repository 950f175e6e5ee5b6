"""What came of runs, side by side: from their directories alone, live, finished or crashed."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from esper.runs.config import TrainConfig
from esper.runs.directory import RunDirectory
from esper.telemetry.query import query
from esper.telemetry.sinks import flattened

TRAINED = """
    SELECT round + 1 AS round, total AS return, quality, gain, growth, episodes_per_second FROM rounds ORDER BY round
"""
EVALUATED = """
    SELECT round + 1 AS round, total AS return, low, high, quality, growth, best FROM evaluations ORDER BY round
"""
SPENT = "SELECT count(*) AS episodes, coalesce(sum(seconds), 0) AS seconds FROM episodes"


@dataclass(frozen=True)
class RunOutcome:
    """What came of one run. Rows are in the order of rounds, which count from 1."""

    COLUMNS: ClassVar[tuple[str, ...]] = (
        "run", "state", "rounds", "episodes", "core minutes", "best return", "at round", "return", "low", "high",
        "quality", "growth",
    )  # fmt: skip

    run: str
    state: str
    trained: tuple[dict[str, Any], ...]
    """Means over the training episodes of every round."""
    evaluated: tuple[dict[str, Any], ...]
    """Greedy play on the evaluation seeds."""
    episodes: int
    """Of all kinds."""
    seconds: float
    """That they took, all workers together."""

    def figures(self) -> dict[str, Any]:
        """One number a column; those of the last evaluation are None if there was none."""
        best = max(self.evaluated, key=lambda row: row["return"], default={})
        last = self.evaluated[-1] if self.evaluated else {}
        spent = (self.run, self.state, len(self.trained), self.episodes, self.seconds / 60)
        names = ("return", "low", "high", "quality", "growth")
        row = (*spent, best.get("return"), best.get("round"), *(last.get(name) for name in names))
        return dict(zip(self.COLUMNS, row, strict=True))


def outcome_of(directory: RunDirectory) -> RunOutcome:
    """What came of a run so far."""
    trained, evaluated, spent = (_rows(directory.path, sql) for sql in (TRAINED, EVALUATED, SPENT))
    return RunOutcome(str(directory.path), directory.state(), trained, evaluated, **spent[0])


def _rows(run: Path, sql: str) -> tuple[dict[str, Any], ...]:
    columns, rows = query(run, sql)
    return tuple(dict(zip(columns, row, strict=True)) for row in rows)


def changed_settings(config: TrainConfig, default: TrainConfig) -> dict[str, Any]:
    """The settings that are not the default, by names with dots."""
    usual = flattened(asdict(default))
    return {name: value for name, value in flattened(asdict(config)).items() if usual.get(name) != value}


def differing_settings(configs: Mapping[str, TrainConfig]) -> dict[str, list[Any]]:
    """The settings in which runs differ, by names with dots: one value for each run."""
    flat = [flattened(asdict(config)) for config in configs.values()]
    names = dict.fromkeys(name for each in flat for name in each)
    found = {name: [each.get(name) for each in flat] for name in names}
    return {name: values for name, values in found.items() if any(value != values[0] for value in values)}


def draw_outcomes(outcomes: Sequence[RunOutcome], out: Path) -> bool:
    """Draw the learning curves of runs over each other as a PNG; False if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure  # an extra: training does without it
    except ImportError:
        return False
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    learning, worth = figure.subplots(1, 2)
    for outcome in outcomes:
        rounds, returns = ([row[name] for row in outcome.trained] for name in ("round", "return"))
        (line,) = learning.plot(rounds, returns, alpha=0.35, lw=1)
        at, mean, low, high = ([row[name] for row in outcome.evaluated] for name in ("round", "return", "low", "high"))
        learning.plot(at, mean, marker="o", ms=4, color=line.get_color(), label=outcome.run)
        learning.fill_between(at, low, high, color=line.get_color(), alpha=0.12, lw=0)
        growth, quality = ([row[name] for row in outcome.evaluated] for name in ("growth", "quality"))
        worth.plot(growth, [100 * each for each in quality], marker="o", ms=4, color=line.get_color())
    learning.set(xlabel="round", ylabel="return", title="thin: training; dots: greedy, with 95 % intervals")
    worth.set(xlabel="parameters / host parameters", ylabel="evaluation quality (%)", title="evaluations in turn")
    figure.legend(loc="outside lower center", frameon=False, fontsize=9)
    figure.savefig(out, dpi=130)
    return True
