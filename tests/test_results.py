"""What is published is what was measured: the tables and the controller in this repository."""

import re
from pathlib import Path

import pytest

from esper.controller import SHIPPED, load_network, shipped_file
from esper.environment import FIELDS
from esper.runs.exam import read_rows

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "exams" / "results"
EXAMS = sorted(path.parent for path in RESULTS.glob("*/exam.csv"))


def tables(text: str) -> list[str]:
    """The lines of all tables whose first column is called policy or against, headers left out."""
    found, inside = [], False
    for line in text.splitlines():
        if line.startswith(("| policy |", "| against |")):
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside and not re.fullmatch(r"[|:\- ]+", line):
            found.append(line)
    return found


@pytest.mark.parametrize("document", ["README.md", "docs/results.md", "docs/tamiyo.md", "docs/tamiyo-small.md"])
def test_every_line_of_a_published_table_is_that_of_a_committed_exam(document):
    measured = {line for exam in EXAMS for line in tables((exam / "exam.md").read_text())}
    published = tables((ROOT / document).read_text())
    assert published
    assert [line for line in published if line not in measured] == []


@pytest.mark.parametrize("exam", EXAMS, ids=lambda path: path.name)
def test_every_policy_of_a_committed_exam_sat_it_on_the_same_seeds(exam):
    rows = read_rows(exam / "exam.csv")
    seeds = {policy: {row.seed for row in rows if row.policy == policy} for policy in {row.policy for row in rows}}
    assert len(seeds) > 1
    assert len({frozenset(each) for each in seeds.values()}) == 1


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_controller_is_whole_and_has_a_model_card(name):
    network = load_network(shipped_file(name), FIELDS)
    assert sum(weight.numel() for weight in network.parameters()) > 100_000
    assert SHIPPED[name] in (ROOT / "docs" / f"{name}.md").read_text()
