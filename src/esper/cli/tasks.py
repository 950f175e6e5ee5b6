"""`esper tasks`."""

from collections.abc import Sequence
from dataclasses import fields

import tyro

from esper.cli.console import DONE, print_json
from esper.environment import DEFAULT_TASK, FAMILIES, Family, Task, all_tasks, find_family, find_task, is_family

NUMBERS = ("parameters", "slots", "horizon", "batch")
HEADER = ("task", *NUMBERS, "data", "summary")


def tasks(argv: list[str]) -> int:
    """List tasks."""

    def tasks(task: tyro.conf.Positional[tuple[str, ...]] = (), json: bool = False) -> tuple[tuple[str, ...], bool]:
        """List tasks and families of tasks. Loads no data.

        Args:
            task: Names or .toml files; all that are known by default. Of a family such as family:small, its ranges.
            json: Print JSON, for programs.
        """
        return task, json

    names, as_json = tyro.cli(tasks, args=argv, prog="esper tasks")
    chosen = [find_task(name) for name in names if not is_family(name)] if names else all_tasks()
    families = [find_family(name) for name in names if is_family(name)] if names else list(FAMILIES.values())
    rows = [_row(each) for each in chosen]
    if as_json:
        told = [{"family": f"family:{each.name}", "summary": each.summary, "draws": _ranges(each)} for each in families]
        print_json([*(dict(zip(HEADER, row, strict=True)) for row in rows), *told])
        return DONE
    tables = [_aligned([HEADER, *([f"{cell:,}" if isinstance(cell, int) else cell for cell in row] for row in rows)])]
    if names:
        tables = (tables if rows else []) + [_aligned([("drawn", "from"), *_ranges(each).items()]) for each in families]
    else:
        tables.append(_aligned([("family", "summary"), *((f"family:{each.name}", each.summary) for each in families)]))
        tables.append(f"{DEFAULT_TASK} is the default task.")
    print("\n\n".join(tables))
    return DONE


def _row(task: Task) -> tuple[str | int, ...]:
    sizes = (task.host_parameters(), len(task.slots), task.horizon, task.batch_size)
    return (task.name, *sizes, task.source, task.summary)


def _ranges(family: Family) -> dict[str, str]:
    return {each.name: str(getattr(family.ranges, each.name)) for each in fields(family.ranges)}


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns two spaces apart; those of numbers end at their right edge."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            cell.rjust(width) if name in NUMBERS else cell.ljust(width)
            for name, cell, width in zip(rows[0], row, widths, strict=True)
        )
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)
