"""Where commands print, and what their exit codes mean."""

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

DONE, UNWELL, USER_ERROR, HALTED, INTERRUPTED = 0, 1, 2, 3, 130

out = Console(highlight=False, markup=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


def print_json(value: object) -> None:
    """One JSON document on stdout, for programs."""
    print(json.dumps(value, indent=1, default=str))


def table_of(columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None = None) -> Table:
    """A table for people: numbers to four digits, and to the right."""
    table = Table(title=title, title_justify="left")
    for place, column in enumerate(columns):
        numeric = any(isinstance(row[place], int | float) for row in rows)
        table.add_column(column, justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*map(_cell, row))
    return table


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
