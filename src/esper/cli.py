"""The `esper` command. What a user can mend is said in one message on stderr, with exit code 2."""

import argparse
import sys
from collections.abc import Sequence

import esper
from esper.contracts import EsperError
from esper.environment import DEFAULT_TASK, Task, all_tasks, find_task


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except EsperError as error:
        print(f"esper: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("esper: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="esper", description="Grow a neural network while it trains.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"esper {esper.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    listing = commands.add_parser(
        "tasks", help="list the tasks", description="List the tasks. Loads no data.", allow_abbrev=False
    )
    listing.add_argument("task", nargs="*", metavar="TASK", help="a name or a .toml file (default: all that are known)")
    listing.set_defaults(run=_list_tasks)
    return parser


def _list_tasks(arguments: argparse.Namespace) -> int:
    chosen = [find_task(name) for name in arguments.task] or all_tasks()
    header = ("task", "parameters", "slots", "horizon", "batch", "data", "summary")
    print(_table(header, [_row(each) for each in chosen], right={1, 2, 3, 4}))
    if not arguments.task:
        print(f"\n{DEFAULT_TASK} is the default task.")
    return 0


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


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], right: set[int]) -> str:
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


if __name__ == "__main__":
    raise SystemExit(main())
