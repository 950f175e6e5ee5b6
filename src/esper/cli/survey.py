"""`esper survey`."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from esper.cli.console import DONE, INTERRUPTED, err, out, print_json
from esper.environment import FAMILY
from esper.runs.backends import one_thread
from esper.runs.exam import ExamBars, ExamLines
from esper.runs.survey import InvalidSurvey, Survey, SurveyConfig, SurveyTable, findings_of, read_survey


@dataclass(frozen=True)
class SurveyArguments:
    """Train every single seed, and some pairs, on tasks of a family, and say what there is to win in them.

    The same command goes on after Ctrl-C; with more tasks, seeds or pairs it adds to the file.
    """

    what: tyro.conf.Positional[str]
    """A family, such as small, or the file of a survey that was made."""
    settings: Annotated[SurveyConfig, tyro.conf.arg(name="")]
    out: Path | None = None
    """The Parquet file; by default surveys/FAMILY.parquet."""
    fit: Path | None = None
    """The file of another survey: constants are chosen there, and regressions fitted, which takes minutes."""
    quiet: bool = False
    """Say nothing unless something goes wrong."""
    json: bool = False
    """Print what was found as JSON, for programs, and nothing else."""


def survey(argv: list[str]) -> int:
    """Make a survey, or read one, and say what it found."""
    given = tyro.cli(SurveyArguments, args=argv, prog="esper survey")
    learned_from = None if given.fit is None else read_survey(given.fit)
    if given.what.endswith(".parquet"):
        if given.out is not None:
            raise InvalidSurvey("--out goes with a family; a survey that was made is only read")
        table = read_survey(Path(given.what))
    else:
        made = _made(given)
        if made is None:
            return INTERRUPTED
        table = made
    if given.json or not given.quiet:
        _tell(table, learned_from, given.json)
    return DONE


def _made(given: SurveyArguments) -> SurveyTable | None:
    """None if it was interrupted."""
    family = given.what.removeprefix(FAMILY)
    given.settings.check(family)
    path = given.out or Path("surveys") / f"{family}.parquet"
    quiet = given.quiet or given.json
    progress = ExamBars(out) if out.is_terminal and not quiet else ExamLines(err if given.json else out, quiet)
    try:
        with progress:
            table = Survey(family, given.settings, path, progress).make()
    except KeyboardInterrupt:
        err.print(f"interrupted; the same command goes on with what is beside {path}")
        return None
    if not quiet:
        out.print(f"survey: {path}")
    return table


def _tell(table: SurveyTable, learned_from: SurveyTable | None, as_json: bool) -> None:
    with one_thread():
        findings = findings_of(table, learned_from)
        if as_json:
            print_json([asdict(each) for each in findings])
            return
        out.print(f"{len(table.tasks)} tasks; score points over the host alone, test split, with 95 % intervals\n")
        out.print("| choice | score points | how |\n|---|---|---|")
        for each in findings:
            out.print(f"| {each.choice} | {each.gain} | {each.how} |", soft_wrap=True)
