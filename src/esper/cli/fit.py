"""`esper fit`."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from esper.cli.console import DONE, out
from esper.controller import networks_to_bytes
from esper.runs import Unwritable, write_whole
from esper.runs.backends import one_thread
from esper.runs.survey import FitConfig, InvalidFit, fit_gain_networks, read_survey


@dataclass(frozen=True)
class FitArguments:
    """Make a policy from what was surveyed: a ranker, which plants what it predicts to gain most."""

    what: tyro.conf.Positional[Literal["ranker"]]
    surveys: tyro.conf.Positional[tuple[Path, ...]]
    """What 'esper survey' wrote, one file or several."""
    settings: Annotated[FitConfig, tyro.conf.arg(name="")]
    out: Path = Path("ranker.safetensors")
    """Where to; play it as ranker:FILE."""


def fit(argv: list[str]) -> int:
    """Fit a ranker."""
    given = tyro.cli(FitArguments, args=argv, prog="esper fit")
    given.settings.check()
    if not given.surveys:
        raise InvalidFit("no survey was given; name at least one file that 'esper survey' wrote")
    tables = [read_survey(path) for path in given.surveys]
    for path, table in zip(given.surveys, tables, strict=True):
        if table.fields != tables[0].fields:
            raise InvalidFit(f"{path} has other observations than {given.surveys[0]}; survey both with one esper")
    tasks = [task for table in tables for task in table.tasks]
    with one_thread():
        content = networks_to_bytes(fit_gain_networks(tasks, tables[0].fields, given.settings))
    try:
        write_whole(given.out, content)
    except OSError as error:
        raise Unwritable.because(given.out, error, "; give another --out") from error
    out.print(f"{given.out}: of {len(tasks)} tasks, SHA-256 {hashlib.sha256(content).hexdigest()}")
    return DONE
