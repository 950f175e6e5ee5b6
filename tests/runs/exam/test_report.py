"""The report on an exam: files that parse, say what the rows say, and take nothing given for markup."""

import base64
import os
import re
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import duckdb
import pytest

from esper.runs.directory import Unwritable
from esper.runs.exam.drawing import draw_plane
from esper.runs.exam.findings import Terms, find
from esper.runs.exam.markdown import escape, to_markdown
from esper.runs.exam.report import BadExam, read_rows, write_report
from esper.runs.exam.statistics import Bootstrap, PolicyNotPlayed, UnmatchedPairs
from esper.runs.exam.wording import ABSENT, times
from tests.runs.exam.rows import made_row, made_rows

GOLDEN = Path(__file__).with_name("tiny_exam.md")
FILES = ["exam.csv", "exam.html", "exam.md", "exam.parquet"]
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "_$\\nothing{$",
    "](https://example.org) | **`~runs\n/best.pt",
    "${title} $command",
    "../" * 40 + "日本.pt",
)


def tiny_exam(task="toy"):
    """No growth, a heuristic that pays much for little, and a learned policy that pays less for more."""
    shape = {"none": (0.10, 100, 1), "heuristic": (0.50, 400, 2), "learned": (0.80, 300, 2)}
    return [
        made_row(policy, seed, accuracy + 0.02 * (seed * steps % 4), task, parameters, rollbacks=int(seed == 2))
        for policy, (accuracy, parameters, steps) in shape.items()
        for seed in range(4)
    ]


def report_on(rows, directory, reference="learned", command="esper exam", **more):
    write_report(rows, directory, rent=0.1, reference=reference, command=command, **more)
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def markdown_of(rows, reference="learned", control="none"):
    return to_markdown(find(rows, Terms(0.1, reference, control, Bootstrap(resamples=199)), "esper exam"))


@pytest.fixture
def _no_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)


class Page(HTMLParser):
    """Tags with their attributes, and the text, of a page whose tags all close."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text, self.open = [], [], "", []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *each) for each in attrs]
        if tag not in {"meta", "img"}:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.text += data


def test_the_files_and_a_picture_of_every_plane_are_written_and_parse(tmp_path):
    rows = tiny_exam()
    files = report_on(rows, tmp_path / "new" / "exam")
    assert list(files) == [*FILES, "toy-parameters.png", "toy-training-flops.png"]
    assert all(files[name].startswith(b"\x89PNG") for name in files if name.endswith(".png"))
    assert read_rows(tmp_path / "new" / "exam" / "exam.csv") == rows
    (count,) = duckdb.connect().read_parquet(str(tmp_path / "new" / "exam" / "exam.parquet")).count("*").fetchall()
    assert count == (12,)
    page = Page(files["exam.html"].decode())
    assert page.tags.count("h1") == 1
    assert page.tags.count("table") == 2
    assert page.tags.count("img") == 2


def test_tasks_of_the_same_name_have_pictures_of_their_own(tmp_path):
    rows = [replace(row, task=task) for task in ("a/toy.toml", "b/toy.toml") for row in tiny_exam()]
    pictures = [name for name in report_on(rows, tmp_path) if name.endswith(".png")]
    assert sorted(pictures) == [
        "toy-parameters-2.png", "toy-parameters.png", "toy-training-flops-2.png", "toy-training-flops.png",
    ]  # fmt: skip


def test_markdown_is_the_golden_one(tmp_path):
    """ESPER_GOLDEN=1 writes it anew."""
    found = report_on(tiny_exam(), tmp_path, command="esper exam --task toy")["exam.md"].decode()
    if os.environ.get("ESPER_GOLDEN"):
        GOLDEN.write_text(found)
    assert found == GOLDEN.read_text()


def test_a_second_report_replaces_the_first_and_says_the_same(tmp_path):
    first = report_on(tiny_exam(), tmp_path)
    (tmp_path / "exam.md").write_text("old")
    second = report_on(tiny_exam(), tmp_path)
    assert {name: first[name] for name in FILES[:3]} == {name: second[name] for name in FILES[:3]}


def test_the_page_needs_nothing_else(tmp_path):
    text = report_on(tiny_exam(), tmp_path)["exam.html"].decode()
    page = Page(text)
    assert not {"script", "link", "iframe", "object", "a"} & set(page.tags)
    sources = [value for _, name, value in page.attributes if name in {"src", "srcset", "href"}]
    assert len(sources) == 2
    assert all(value.startswith("data:image/svg+xml;base64,") for value in sources)
    assert not re.search(r"https?:|//\w|@import|url\(", re.sub(r'src="data:[^"]*"', "", text))
    assert "default-src 'none'" in text
    assert 'name="viewport"' in text
    for value in sources:
        drawing = ET.fromstring(base64.b64decode(value.partition(",")[2]))
        links = [link for each in drawing.iter() for name, link in each.attrib.items() if name.endswith("href")]
        assert all(link.startswith("#") for link in links)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return Page(report_on(tiny_exam(), tmp_path_factory.mktemp("plain"))["exam.html"].decode())


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_that_was_given_becomes_markup(tmp_path, plain, name):
    rows = [replace(row, policy=name if row.policy == "learned" else row.policy, task=name) for row in tiny_exam()]
    files = report_on(rows, tmp_path, reference=name, command=name)
    page = Page(files["exam.html"].decode())
    assert page.tags == plain.tags
    assert page.text.count(name) == plain.text.count("learned") + plain.text.count("toy") + 1
    assert read_rows(tmp_path / "exam.csv") == rows
    lines = files["exam.md"].decode().splitlines()
    assert f"# Exam: {escape(name)}" in lines
    tables = [re.sub(r"\\.", "", line) for line in lines if line.startswith("|")]
    assert {line.count("|") for line in tables} == {13, 6}
    assert not any(re.search(r"[<`~$]", line) for line in tables)


def test_a_command_cannot_leave_its_block(tmp_path):
    text = report_on(tiny_exam(), tmp_path, command="esper exam\n```\n# free")["exam.md"].decode()
    assert "````sh\nesper exam\n```\n# free\n````\n" in text


@pytest.mark.usefixtures("_no_matplotlib")
def test_without_matplotlib_the_page_says_why_it_has_no_figures(tmp_path):
    page = Page(report_on(tiny_exam(), tmp_path)["exam.html"].decode())
    assert "img" not in page.tags
    assert "no figures, because matplotlib is not installed" in page.text
    assert "on the front are none and learned" in page.text


def test_fronts_name_who_is_on_them_and_who_is_behind_whom():
    text = markdown_of(tiny_exam())
    assert "Accuracy against parameters: on the front are none and learned; behind learned is heuristic." in text
    alone = markdown_of(made_rows(learned=[0.5, 0.6]), control=None)
    assert "Accuracy against training FLOPs: on the front is learned." in alone
    assert "minus every other policy" not in alone
    assert "Control without growth: none was played." in alone


def test_one_seed_is_said_and_has_no_intervals():
    text = markdown_of([row for row in tiny_exam() if row.seed == 0])
    assert "There is one seed only" in text
    assert (
        f"| **learned** | 80.0 | 80.0 | 69.0 | {times(3)} | 300 | +350.00 | {times(3)} | 600 | 40.0 | 0 | 1.5 |" in text
    )
    assert "| heuristic | +30.00 | 100 [21, 100] | +32.88 | 100 [21, 100] |" in text


def test_few_seeds_are_said_and_many_are_not():
    assert "fewer than 20 seeds" in markdown_of(tiny_exam())
    many = made_rows(learned=[0.5, 0.6] * 10, none=[0.1] * 20)
    assert "fewer than 20 seeds" not in markdown_of(many)


def test_several_tasks_have_a_section_each_and_one_together():
    rows = tiny_exam("toy") + tiny_exam("game") + [made_row("extra", seed, 0.3, "game") for seed in range(4)]
    text = markdown_of(rows)
    assert re.findall("^## (.*)", text, flags=re.MULTILINE) == [
        "toy",
        "game",
        "All tasks together",
        "How to read this",
    ]
    together = text.partition("## All tasks together")[2]
    assert "3 policies played on every task" in together
    assert "extra" not in together
    assert "| none | **+69.00** [+6" in together


def test_a_task_without_the_control_leaves_open_what_it_would_be_divided_by():
    rows = [row for row in tiny_exam() if row.policy != "none"]
    text = markdown_of(rows)
    assert f"{times(3)} | 300 | {ABSENT} | {ABSENT} | 600 |" in text


@pytest.mark.usefixtures("_no_matplotlib")
def test_another_control_can_be_named(tmp_path):
    rows = [replace(row, policy="still" if row.policy == "none" else row.policy) for row in tiny_exam()]
    assert f"| {ABSENT} | {times(1)} |" in report_on(rows, tmp_path, control="still")["exam.md"].decode()
    with pytest.raises(PolicyNotPlayed, match=r"no row is of the control policy 'stil'; did you mean 'still'\?"):
        report_on(rows, tmp_path, control="stil")


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ([], BadExam, "there are no rows"),
        (tiny_exam()[:-1], UnmatchedPairs, "seed 3 of task 'toy', which 'none' has and 'learned' lacks"),
        ([*tiny_exam(), tiny_exam()[0]], BadExam, "'none' has 2 rows for seed 0 of task 'toy'"),
        (
            tiny_exam()[:8],
            PolicyNotPlayed,
            "no row of task 'toy' is of the reference policy 'learned'; known: none, heur",
        ),
        (
            [*tiny_exam(), made_row("none", 9, 0.5, "game")],
            PolicyNotPlayed,
            "no row of task 'game' is of the reference",
        ),
        ([made_row(accuracy=1.5)], BadExam, "'accuracy' must be from 0 to 1"),
    ],
)
def test_rows_that_are_refused_leave_no_file(tmp_path, rows, error, message):
    with pytest.raises(error, match=message):
        report_on(rows, tmp_path / "exam")
    assert not (tmp_path / "exam").exists()


def test_a_rent_that_is_no_number_is_refused(tmp_path):
    with pytest.raises(BadExam, match="the rent must be finite, and is nan"):
        write_report(tiny_exam(), tmp_path, rent=float("nan"), reference="learned", command="")


@pytest.mark.usefixtures("_no_matplotlib")
@pytest.mark.parametrize("name", FILES)
def test_what_cannot_be_written_is_said_and_leaves_no_parts(tmp_path, name):
    (tmp_path / name / "in the way").mkdir(parents=True)
    with pytest.raises(Unwritable, match=r"the report cannot be written to .*; give another directory"):
        report_on(tiny_exam(), tmp_path)
    assert not list(tmp_path.glob(".*"))


@pytest.mark.usefixtures("_no_matplotlib")
def test_a_file_in_place_of_the_directory_is_said(tmp_path):
    (tmp_path / "exam").write_text("mine")
    with pytest.raises(Unwritable, match="the report cannot be written to"):
        report_on(tiny_exam(), tmp_path / "exam")
    assert (tmp_path / "exam").read_text() == "mine"


@pytest.mark.parametrize("flops", [[0.0] * 4, [0.0, 1e3, 1e6, 1e15], [7.0] * 4, [100.0, 101.0, 102.0, 103.0]])
def test_any_cost_can_be_drawn(flops):
    rows = [made_row("learned", seed, 0.5, training_flops=each) for seed, each in enumerate(flops)]
    found = find(rows, Terms(0.1, "learned", None, Bootstrap(resamples=99)), "")
    for plane in found.sections[0].planes:
        assert ET.fromstring(draw_plane(plane)).tag.endswith("svg")


def test_more_policies_than_colours_can_be_drawn():
    rows = made_rows(**{f"policy {index}": [0.1, index / 40] for index in range(30)})
    plane = find(rows, Terms(0.1, "policy 3", None, Bootstrap(resamples=99)), "").sections[0].planes[0]
    assert draw_plane(plane, "png").startswith(b"\x89PNG")


def test_the_report_says_what_was_kept_most_often(tmp_path):
    kept = ["block0 conv", "block0 conv", "block0 conv, block1 norm", ""]
    grown = [made_row("learned", seed, 0.9, kept=each) for seed, each in enumerate(kept)]
    report_on([*grown, *(made_row("none", seed, 0.5, parameters=100) for seed in range(4))], tmp_path)
    lines = (tmp_path / "exam.md").read_text().splitlines()
    (line,) = [line for line in lines if "block0 conv: 2 seeds" in line]
    assert "| 1.00 |" in line
    assert "block0 conv, block1 norm: 1 seed; nothing: 1 seed" in line
    assert not any("nothing: 4 seeds" in line for line in lines)
