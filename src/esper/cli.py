"""The `esper` command. What a user can mend is said in one message on stderr, with exit code 2."""

import argparse
import hashlib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

import esper
from esper.contracts import EsperError, nearest
from esper.environment import DEFAULT_TASK, Task, all_tasks, find_task
from esper.rl import CHECKPOINT_VERSION, RLError, export_checkpoint, load_checkpoint, upgrade_checkpoint
from esper.runs import (
    Panel,
    Quiet,
    RoundLines,
    Run,
    RunDirectory,
    RunState,
    TrainConfig,
    comparison_table,
    draw_run,
    exam,
    find_preset,
    find_runs,
    load_config,
    narrate_episode,
)
from esper.runs.doctor import diagnose
from esper.runs.exam import ExamConfig
from esper.telemetry import Level
from esper.telemetry.query import query

DONE, UNWELL, USER_ERROR, HALTED, INTERRUPTED = 0, 1, 2, 3, 130
EXIT_CODES = {RunState.FINISHED: DONE, RunState.INTERRUPTED: INTERRUPTED, RunState.HALTED: HALTED}

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(arguments)
    except (EsperError, RLError) as error:
        print(f"esper: {type(error).__name__}: {error}", file=sys.stderr)
        return USER_ERROR
    except KeyboardInterrupt:
        print("esper: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe has gone: nobody is left to tell
        sys.stderr.close()
        return DONE
    except SystemExit as stop:  # how the parser ends after --help or a wrong flag
        return stop.code if isinstance(stop.code, int) else USER_ERROR


class UnknownCommand(EsperError):
    """No command has that name."""


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in {"-h", "--help"}:
        print(_overview())
        return DONE if arguments else USER_ERROR
    if arguments[0] == "--version":
        print(f"esper {esper.__version__}")
        return DONE
    name, *rest = arguments
    if name not in COMMANDS:
        raise UnknownCommand(f"no command '{name}'; {nearest(name, COMMANDS)}")
    return COMMANDS[name](rest)


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = (f"  {name:<{width}}  {(run.__doc__ or '').splitlines()[0]}" for name, run in COMMANDS.items())
    return "\n".join(
        [
            "usage: esper COMMAND ...",
            "",
            "Grow a neural network while it trains.",
            "",
            "commands:",
            *lines,
            "",
            "'esper COMMAND --help' explains a command.",
        ]
    )


@dataclass(frozen=True)
class TrainArguments:
    """Train a controller; the run's directory keeps everything, also after Ctrl-C or a crash."""

    settings: Annotated[TrainConfig, tyro.conf.arg(name="")]
    preset: str = "default"
    """Where settings start from: quick (a few minutes on 2 cores), default (about an hour), thorough."""
    config: Path | None = None
    """A config.toml whose settings replace those of the preset; flags replace both."""
    out: Path | None = None
    """Directory of the run, new or empty; by default below runs/."""
    quiet: bool = False
    """Say nothing unless something goes wrong."""


def _train(argv: list[str]) -> int:
    """train a controller"""
    default = TrainArguments(_base_settings(argv))
    words = (tyro.conf.EnumChoicesFromValues,)
    given = tyro.cli(TrainArguments, args=argv, default=default, prog="esper train", config=words)
    given.settings.check()
    name = f"{Path(given.settings.task[0]).stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    directory = RunDirectory.create(given.out or Path("runs") / name, given.settings)
    return _finish(directory, given.settings, given.quiet, resume=False)


def _base_settings(argv: list[str]) -> TrainConfig:
    """What the flags change: the preset, with the settings of a config file in place of its own."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--preset", default="default")
    parser.add_argument("--config", type=Path)
    known, _ = parser.parse_known_args(argv)
    preset = find_preset(known.preset)
    return preset if known.config is None else load_config(known.config, preset)


def _resume(argv: list[str]) -> int:
    """go on with a run that was interrupted, killed or failed"""

    def resume(run: tyro.conf.Positional[Path], quiet: bool = False) -> tuple[Path, bool]:
        """Go on with a run from its newest checkpoint; the end is the same as without the interruption.

        Args:
            run: Directory of the run.
            quiet: Say nothing unless something goes wrong.
        """
        return run, quiet

    path, quiet = tyro.cli(resume, args=argv, prog="esper resume")
    directory = RunDirectory.open(path)
    config = directory.config()
    config.check()
    if directory.state() is RunState.FINISHED:
        out.print(f"{path} is finished: all {config.rounds} rounds are done. 'esper show {path}' shows it.")
        return DONE
    return _finish(directory, config, quiet, resume=True)


def _finish(directory: RunDirectory, config: TrainConfig, quiet: bool, resume: bool) -> int:
    """Train to the end and say how it went and what to do next."""
    progress = Quiet(err) if quiet else Panel(out) if out.is_terminal else RoundLines(out)
    run = Run(directory, config, progress)
    try:
        state = run.resume() if resume else run.start()
    finally:
        if isinstance(progress, Panel):
            progress.close()
    path = directory.path
    if state is RunState.FINISHED and not quiet:
        if progress.comparison:
            out.print(comparison_table(progress.comparison))
        picture = path / "summary.png"
        if config.telemetry.level is not Level.OFF and draw_run(directory.events_file, picture):
            out.print(f"picture: {picture}")
        out.print(f"done: {path}\nnext: esper play --policy {path} --task {config.task[0]}", soft_wrap=True)
    elif state is RunState.INTERRUPTED:
        err.print(f"interrupted after {run.counters.round} rounds; go on with: esper resume {path}", soft_wrap=True)
    elif state is RunState.HALTED:
        reason = directory.status()
        err.print(f"esper: halted: {reason.reason if reason else ''}", soft_wrap=True)
    return EXIT_CODES[state]


def _play(argv: list[str]) -> int:
    """play one episode and tell what happens, epoch by epoch"""

    def play(
        policy: str = "heuristic",
        task: str = DEFAULT_TASK,
        seed: int = 0,
        reward: str = "twin",
        data_dir: str = "",
        picture: Path | None = None,
    ) -> None:
        """Play one episode with any policy, told epoch by epoch.

        Args:
            policy: none, random, heuristic, schedule:FILE, a shipped controller such as tamiyo-small, the directory of
                a run, or a checkpoint file; sampled:CONTROLLER draws its actions.
            task: Name of a task, or a .toml file.
            seed: Of the episode: first weights, data order, and everything that is drawn.
            reward: Reward mode.
            data_dir: Where data sets lie that are not part of this package.
            picture: Where to draw the episode, as a PNG.
        """
        narrate_episode(policy, task, seed, reward, data_dir or None, out, picture)

    tyro.cli(play, args=argv, prog="esper play")
    return DONE


@dataclass(frozen=True)
class ExamArguments:
    """Play every policy on the same held-out seeds and report with intervals; the same command goes on after Ctrl-C."""

    settings: Annotated[ExamConfig, tyro.conf.arg(name="")]
    out: Path = Path("exam")
    """Directory of the rows and the report: new, empty, or that of the same exam."""
    quiet: bool = False
    """Say nothing unless something goes wrong."""


def _exam(argv: list[str]) -> int:
    """compare policies on held-out seeds, with intervals"""
    given = tyro.cli(ExamArguments, args=argv, default=ExamArguments(ExamConfig()), prog="esper exam")
    given.settings.check()
    watcher = exam.ExamBars(out) if out.is_terminal and not given.quiet else exam.ExamLines(out, given.quiet)
    held = exam.Exam(given.settings, given.out, watcher)
    try:
        with watcher:
            held.hold()
    except KeyboardInterrupt:
        err.print(f"interrupted; the same command goes on with what is in {given.out}", markup=False, soft_wrap=True)
        return INTERRUPTED
    if not given.quiet:
        out.print((given.out / "exam.md").read_text(encoding="utf-8"), markup=False, soft_wrap=True)
        out.print(f"report: {given.out / 'exam.html'}", markup=False, soft_wrap=True)
    return DONE


def _runs(argv: list[str]) -> int:
    """list runs with state, progress, best and age"""

    def runs(directory: tyro.conf.Positional[Path] = Path("runs")) -> Path:
        """List the runs below a directory.

        Args:
            directory: Where to look.
        """
        return directory

    root = tyro.cli(runs, args=argv, prog="esper runs")
    found = find_runs(root)
    if not found:
        out.print(f"no runs in {root}; 'esper train' makes one")
        return DONE
    table = Table()
    for name in ("run", "state", "rounds", "best return", "age"):
        table.add_column(name, justify="left" if name in {"run", "state"} else "right")
    for run in found:
        status = run.status()
        best = "-" if status is None or status.best is None else f"{status.best:+.3f} (round {status.best_round})"
        done = "-" if status is None else f"{status.round}/{status.rounds}"
        age = _age(time.time() - run.config_file.stat().st_mtime)
        table.add_row(str(run.path), run.state().value, done, best, age)
    out.print(table)
    return DONE


def _age(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _show(argv: list[str]) -> int:
    """show one run: state, settings, last rounds and evaluations"""

    def show(run: tyro.conf.Positional[Path]) -> Path:
        """Show one run.

        Args:
            run: Directory of the run.
        """
        return run

    directory = RunDirectory.open(tyro.cli(show, args=argv, prog="esper show"))
    status, state = directory.status(), directory.state()
    out.print(f"{directory.path}: {state.value}" + (f", {status.round} of {status.rounds} rounds" if status else ""))
    if status is not None and status.reason:
        out.print(f"reason: {status.reason}")
    if state in {RunState.KILLED, RunState.INTERRUPTED, RunState.FAILED}:
        out.print(f"go on with: esper resume {directory.path}", soft_wrap=True)
    settings = directory.config()
    changed = [line for line in settings.to_toml().splitlines() if line not in TrainConfig().to_toml().splitlines()]
    out.print("settings other than the defaults: " + (", ".join(changed) or "none"), soft_wrap=True)
    for title, sql in (
        (
            "last rounds",
            "SELECT round + 1 AS round, total AS return, accuracy, gain, growth, episodes_per_second "
            "FROM (SELECT * FROM rounds ORDER BY round DESC LIMIT 5) ORDER BY round",
        ),
        (
            "evaluations",
            "SELECT round + 1 AS round, total AS return, low, high, accuracy, growth, best "
            "FROM (SELECT * FROM evaluations ORDER BY round DESC LIMIT 5) ORDER BY round",
        ),
    ):
        out.print(_sql_table(title, *query(directory.path, sql)))
    return DONE


def _doctor(argv: list[str]) -> int:
    """say what looks wrong with a run, why, and what to try"""

    def doctor(run: tyro.conf.Positional[Path]) -> Path:
        """Say what looks wrong with a run, live, finished or crashed; exits 0 if nothing does, 1 otherwise.

        Args:
            run: Directory of the run.
        """
        return run

    diagnosis = diagnose(RunDirectory.open(tyro.cli(doctor, args=argv, prog="esper doctor")))
    print("\n".join(diagnosis.lines()))
    return DONE if diagnosis.healthy else UNWELL


def _query(argv: list[str]) -> int:
    """ask a run's events by SQL"""

    def ask(run: tyro.conf.Positional[Path], sql: tyro.conf.Positional[str]) -> tuple[Path, str]:
        """Ask a run's events by SQL.

        Views: runs, rounds, episodes, decisions, seeds, updates, evaluations, anomalies, events; docs/events.md lists
        their columns.

        Args:
            run: Directory of the run.
            sql: One SELECT statement.
        """
        return run, sql

    run, sql = tyro.cli(ask, args=argv, prog="esper query")
    RunDirectory.open(run)
    columns, rows = query(run, sql)
    if out.is_terminal:
        out.print(_sql_table(None, columns, rows))
    else:
        print("\n".join("\t".join(map(_cell, row)) for row in [columns, *rows]))
    return DONE


def _sql_table(title: str | None, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*map(_cell, row))
    return table


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _tasks(argv: list[str]) -> int:
    """list the tasks"""

    def tasks(task: tyro.conf.Positional[tuple[str, ...]] = ()) -> tuple[str, ...]:
        """List the tasks. Loads no data.

        Args:
            task: Names or .toml files; all that are known by default.
        """
        return task

    names = tyro.cli(tasks, args=argv, prog="esper tasks")
    chosen = [find_task(name) for name in names] or all_tasks()
    header = ("task", "parameters", "slots", "horizon", "batch", "data", "summary")
    print(_aligned(header, [_row(each) for each in chosen], right={1, 2, 3, 4}))
    if not names:
        print(f"\n{DEFAULT_TASK} is the default task.")
    return DONE


def _row(each: Task) -> tuple[str, ...]:
    return (
        each.name,
        f"{each.host_parameters():,}",
        str(len(each.slots)),
        str(each.horizon),
        str(each.batch_size),
        each.source,
        each.summary,
    )


def _aligned(header: Sequence[str], rows: Sequence[Sequence[str]], right: set[int]) -> str:
    """Aligned columns, two spaces apart; those in `right` end at their right edge."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    lines = (
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (header, *rows)
    )
    return "\n".join(lines)


def _checkpoint(argv: list[str]) -> int:
    """show a checkpoint, upgrade one of an older version, or export what is needed to play"""

    def checkpoint(
        what: tyro.conf.Positional[Literal["show", "upgrade", "export"]],
        file: tyro.conf.Positional[Path],
        out: Path = Path("controller.pt"),
    ) -> tuple[str, Path, Path]:
        """Show a checkpoint, rewrite one of an older version in place, or write what is needed to play to a small file.

        Args:
            what: show, upgrade or export.
            file: The checkpoint.
            out: Where to export to.
        """
        return what, file, out

    what, path, to = tyro.cli(checkpoint, args=argv, prog="esper checkpoint")
    if what == "export":
        export_checkpoint(path, to)
        print(f"{to}: {to.stat().st_size:,} bytes, SHA-256 {hashlib.sha256(to.read_bytes()).hexdigest()}")
        return DONE
    if what == "upgrade":
        found = upgrade_checkpoint(path)
        print(
            f"{path}: version {found}, "
            + ("upgraded" if found != CHECKPOINT_VERSION else "which is the newest; nothing to do")
        )
        return DONE
    content = load_checkpoint(path)
    print(f"{path}: {sum(weight.numel() for weight in content.weights.values()):,} weights")
    for title, values in (("counters", content.counters), ("network", content.schema), ("beside", content.extra)):
        plain = {name: value for name, value in values.items() if isinstance(value, int | float | str)}
        print(f"{title}: " + ", ".join(f"{name} {value}" for name, value in plain.items()))
    return DONE


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "train": _train,
    "resume": _resume,
    "play": _play,
    "exam": _exam,
    "runs": _runs,
    "show": _show,
    "doctor": _doctor,
    "query": _query,
    "tasks": _tasks,
    "checkpoint": _checkpoint,
}
