"""Commands that look at runs. They read directories and change nothing in them."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tyro

from esper.cli.console import DONE, UNWELL, out, print_json, table_of
from esper.gardener import report_in
from esper.runs import RunDirectory, RunState, TrainConfig, find_runs
from esper.runs.comparison import RunOutcome, changed_settings, differing_settings, draw_outcomes, outcome_of
from esper.telemetry import RunFiles
from esper.telemetry.doctor import diagnose
from esper.telemetry.query import as_json, as_tsv
from esper.telemetry.query import query as ask

DEFAULT_ROOT = Path("runs")
LATEST = 5
"""Rounds and evaluations that `show` shows."""


def runs(argv: list[str]) -> int:
    """List runs."""

    def runs(directory: tyro.conf.Positional[Path] = DEFAULT_ROOT, json: bool = False) -> tuple[Path, bool]:
        """List the runs below a directory.

        Args:
            directory: Where to look.
            json: Print JSON, for programs.
        """
        return directory, json

    root, for_programs = tyro.cli(runs, args=argv, prog="esper runs")
    found = [] if root == DEFAULT_ROOT and not root.exists() else find_runs(root)
    rows = [_row(run) for run in found]
    if for_programs:
        print_json(rows)
    elif not rows:
        out.print(f"no runs in {root}; 'esper train' makes one")
    else:
        out.print(table_of(("run", "state", "rounds", "best return", "age"), [_shown(row) for row in rows]))
    return DONE


def _row(run: RunDirectory) -> dict[str, Any]:
    status = run.status()
    told = {} if status is None else asdict(status)
    kept = {name: told.get(name) for name in ("round", "rounds", "best", "best_round", "updated")}
    return {"run": str(run.path), "state": run.state(), **kept, "created": run.config_file.stat().st_mtime}


def _shown(row: dict[str, Any]) -> tuple[str, ...]:
    done = "-" if row["round"] is None else f"{row['round']}/{row['rounds']}"
    best = "-" if row["best"] is None else f"{row['best']:+.3f} (round {row['best_round'] + 1})"
    return row["run"], row["state"], done, best, _age(time.time() - row["created"])


def _age(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def show(argv: list[str]) -> int:
    """Show one run."""

    def show(run: tyro.conf.Positional[Path], json: bool = False) -> tuple[Path, bool]:
        """Show one run, or what grew in a garden.

        Args:
            run: Directory of the run or of the gardener.
            json: Print JSON, for programs.
        """
        return run, json

    path, for_programs = tyro.cli(show, args=argv, prog="esper show")
    if _is_garden(path):
        report = report_in(path)
        print_json(asdict(report)) if for_programs else print(report)
        return DONE
    directory = RunDirectory.open(path)
    status, state, outcome = directory.status(), directory.state(), outcome_of(directory)
    changed = changed_settings(directory.config(), TrainConfig())
    if for_programs:
        told = None if status is None else asdict(status)
        print_json({"state": state, "status": told, "settings": changed, **asdict(outcome)})
        return DONE
    out.print(f"{directory.path}: {state}" + (f", {status.round} of {status.rounds} rounds" if status else ""))
    if status is not None and status.reason:
        out.print(f"reason: {status.reason}")
    if state in {RunState.KILLED, RunState.INTERRUPTED, RunState.FAILED}:
        out.print(f"go on with: esper resume {directory.path}")
    listed = ", ".join(f"{name} = {value}" for name, value in changed.items())
    out.print(f"settings other than the defaults: {listed or 'none'}")
    for title, rows in (("last rounds", outcome.trained), ("evaluations", outcome.evaluated)):
        if rows:
            out.print(table_of(list(rows[0]), [list(row.values()) for row in rows[-LATEST:]], title))
    return DONE


def _is_garden(path: Path) -> bool:
    """Gardens have events and none of the settings of a run."""
    files = RunFiles(path)
    return files.events_file.is_file() and not files.config_file.is_file()


def compare(argv: list[str]) -> int:
    """Show runs side by side."""

    def compare(
        runs: tyro.conf.Positional[tuple[Path, ...]], picture: Path | None = None, json: bool = False
    ) -> tuple[tuple[Path, ...], Path | None, bool]:
        """Show runs side by side: return, quality, growth, cost, and the settings in which they differ.

        Args:
            runs: Directories of runs.
            picture: Where to draw their learning curves, as a PNG.
            json: Print JSON, for programs.
        """
        return runs, picture, json

    paths, picture, for_programs = tyro.cli(compare, args=argv, prog="esper compare")
    directories = [RunDirectory.open(path) for path in paths]
    outcomes = [outcome_of(directory) for directory in directories]
    settings = differing_settings({str(each.path): each.config() for each in directories})
    if for_programs:
        print_json({"runs": [each.figures() for each in outcomes], "settings": settings})
    else:
        figures = {name: [each.figures()[name] for each in outcomes] for name in RunOutcome.COLUMNS[1:]}
        for title, rows in (("what came of them", figures), ("settings that differ", settings)):
            if rows:
                out.print(table_of(("", *map(str, paths)), [[name, *of] for name, of in rows.items()], title))
    if picture is not None:
        drawn = draw_outcomes(outcomes, picture)
        out.print(f"picture: {picture}" if drawn else 'no picture: pip install "esper-growth[demo]"')
    return DONE


def doctor(argv: list[str]) -> int:
    """Say what looks wrong with a run."""

    def doctor(run: tyro.conf.Positional[Path]) -> Path:
        """Say what looks wrong with a run, live, finished or crashed; exits 0 if nothing does, 1 otherwise.

        Args:
            run: Directory of the run.
        """
        return run

    diagnosis = diagnose(RunDirectory.open(tyro.cli(doctor, args=argv, prog="esper doctor")))
    print("\n".join(diagnosis.lines()))
    return DONE if diagnosis.healthy else UNWELL


def query(argv: list[str]) -> int:
    """Ask a run's events by SQL."""

    def query(
        run: tyro.conf.Positional[Path], sql: tyro.conf.Positional[str], json: bool = False
    ) -> tuple[Path, str, bool]:
        """Ask a run's events by SQL. Into a pipe or file the answer goes as tab-separated text, exact to the last bit.

        Views: runs, rounds, episodes, decisions, seeds, updates, evaluations, anomalies, events; docs/events.md lists
        their columns.

        Args:
            run: Directory of the run or of the gardener.
            sql: One SELECT statement.
            json: Print JSON, for programs.
        """
        return run, sql, json

    run, sql, for_programs = tyro.cli(query, args=argv, prog="esper query")
    if not _is_garden(run):
        RunDirectory.open(run)
    columns, rows = ask(run, sql)
    if for_programs:
        print(as_json(columns, rows))
    elif out.is_terminal:
        out.print(table_of(columns, rows))
    else:
        print(as_tsv(columns, rows))
    return DONE
