"""`esper watch` and `esper report`."""

import shlex
from importlib.util import find_spec
from pathlib import Path

import torch
import tyro

import esper
from esper.cli.console import DONE, out
from esper.contracts import EsperError
from esper.dashboard import write_report

DEFAULT_ROOT = Path("runs")
EXTRA = ("starlette", "uvicorn")


class MissingDashboard(EsperError):
    """What the server needs is not installed."""


class BadPort(EsperError):
    """A port that there cannot be."""


def watch(argv: list[str]) -> int:
    """Show runs and exams on a live page."""

    def watch(
        directory: tyro.conf.Positional[Path] = DEFAULT_ROOT, host: str = "127.0.0.1", port: int = 8642
    ) -> tuple[Path, str, int]:
        """Show a run, an exam, or a directory of them on a live page, until Ctrl-C. Reads only.

        Args:
            directory: A run, an exam, or where several of them are.
            host: Address to listen on. Any but this machine's own lets others look, who need the token that is printed.
            port: Port to listen on; 0 for any that is free.
        """
        return directory, host, port

    directory, host, port = tyro.cli(watch, args=argv, prog="esper watch")
    missing = [module for module in EXTRA if find_spec(module) is None]
    if missing:
        raise MissingDashboard(
            f"the page needs {' and '.join(missing)}, not installed here; pip install 'esper-growth[dashboard]', or "
            "write a file with 'esper report', which needs neither"
        )
    if not 0 <= port <= 65_535:
        raise BadPort(f"--port {port}; give a number from 1 to 65535, or 0 for any that is free")
    from esper.dashboard.server import serve  # an extra: everything else does without it
    from esper.dashboard.sources import find_sources

    find_sources(directory)  # says what is wrong with the directory before the port is taken
    serve(directory, host, port, lambda address: out.print(f"{directory}: {address}  (Ctrl-C ends)"))
    return DONE


def report(argv: list[str]) -> int:
    """Write runs and exams to one HTML file."""

    def report(
        directories: tyro.conf.Positional[tuple[Path, ...]], out: Path = Path("report.html")
    ) -> tuple[tuple[Path, ...], Path]:
        """Write runs, exams and trainings to one HTML file that opens by double click, without network.

        Args:
            directories: Runs, exams, or directories of them.
            out: Where to.
        """
        return directories, out

    directories, path = tyro.cli(report, args=argv, prog="esper report")
    command = shlex.join(["esper", "report", *argv])
    size = write_report(directories, path, command, {"esper": esper.__version__, "torch": str(torch.__version__)})
    out.print(f"{path}: {size / 1e6:.1f} MB")
    return DONE
