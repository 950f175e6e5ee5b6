"""Every row of the ledger has a test that names it, or waits for a file that is not there yet."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
LEDGER = (ROOT / "tests" / "ledger.md").read_text()
ROWS = re.findall(r"^\| ([A-Z]\w*-[\w-]+) \| (.+) \|$", LEDGER, flags=re.MULTILINE)


@cache
def docstrings(path: str) -> dict[str, str]:
    """What the functions of a file say, by their names."""
    functions = (node for node in ast.walk(ast.parse((ROOT / path).read_text())) if isinstance(node, ast.FunctionDef))
    return {function.name: ast.get_docstring(function) or "" for function in functions}


def complaint(row: str, shown_by: str) -> str | None:
    if shown_by.startswith("waits for "):
        awaited = shown_by.removeprefix("waits for ")
        return f"{row} waits for {awaited}, which is there" if (ROOT / "src" / "esper" / awaited).exists() else None
    path, _, name = shown_by.partition("::")
    said = docstrings(path).get(name)
    if said is None:
        return f"{row}: {shown_by} does not exist"
    return None if re.search(rf"\b{row}\b", said) else f"{row}: the docstring of {shown_by} does not name it"


def test_the_ledger_has_all_rows_once():
    names = [name for name, _ in ROWS]
    assert len(names) == len(set(names))
    assert len(names) >= 120
    assert len(ROWS) == sum(line.startswith("| ") for line in LEDGER.splitlines()) - LEDGER.count("| Row |")


def test_every_row_is_shown_by_a_test_that_names_it():
    assert [wrong for row in ROWS if (wrong := complaint(*row))] == []
