"""`esper tasks`."""

from collections.abc import Sequence

import tyro

from esper.cli.console import DONE, print_json
from esper.environment import DEFAULT_TASK, all_tasks, find_task

HEADER = ("task", "parameters", "slots", "horizon", "batch", "data", "summary")


def tasks(argv: list[str]) -> int:
    """List tasks."""

    def tasks(task: tyro.conf.Positional[tuple[str, ...]] = (), json: bool = False) -> tuple[tuple[str, ...], bool]:
        """List the tasks. Loads no data.

        Args:
            task: Names or .toml files; all that are known by default.
            json: Print JSON, for programs.
        """
        return task, json

    names, as_json = tyro.cli(tasks, args=argv, prog="esper tasks")
    chosen = [find_task(name) for name in names] or all_tasks()
    rows = [
        (each.name, each.host_parameters(), len(each.slots), each.horizon, each.batch_size, each.source, each.summary)
        for each in chosen
    ]
    if as_json:
        print_json([dict(zip(HEADER, row, strict=True)) for row in rows])
        return DONE
    print(_aligned([HEADER, *([f"{cell:,}" if isinstance(cell, int) else cell for cell in row] for row in rows)]))
    if not names:
        print(f"\n{DEFAULT_TASK} is the default task.")
    return DONE


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns two spaces apart; those of numbers end at their right edge."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            cell.rjust(width) if 1 <= place <= 4 else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)
