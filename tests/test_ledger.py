"""Every row of the ledger has a test that names it, or waits for a file that is not there yet."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LEDGER = (ROOT / "tests" / "ledger.md").read_text()
ROWS = re.findall(r"^\| ([A-Z]\w*-[\w-]+) \| (.+) \|$", LEDGER, flags=re.MULTILINE)


def docstring_of(test: str) -> str:
    path, _, name = test.partition("::")
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return ast.get_docstring(node) or ""
    raise AssertionError(f"{test} does not exist")


def test_the_ledger_has_all_rows_once():
    names = [name for name, _ in ROWS]
    assert len(names) == len(set(names))
    assert len(names) >= 120
    assert len(ROWS) == sum(line.startswith("| ") for line in LEDGER.splitlines()) - LEDGER.count("| Row |")


@pytest.mark.parametrize(("row", "shown_by"), ROWS, ids=[name for name, _ in ROWS])
def test_row_is_shown_by_a_test_that_names_it(row, shown_by):
    if shown_by.startswith("waits for "):
        awaited = ROOT / "src" / "esper" / shown_by.removeprefix("waits for ")
        assert not awaited.exists(), f"{awaited} is there: {row} needs a test"
    else:
        assert re.search(rf"\b{row}\b", docstring_of(shown_by)), f"the docstring of {shown_by} does not name {row}"
