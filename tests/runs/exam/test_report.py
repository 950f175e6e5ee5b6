"""The report on an exam: files that parse, say what the rows say, and take nothing given for markup."""

import base64
import re
import shlex
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser

import duckdb
import pytest
import tyro

from esper.cli.exam import ExamArguments
from esper.runs.directory import Unwritable
from esper.runs.exam import BadExam, ExamConfig, Terms, deciding_report, read_rows, write_report
from esper.runs.exam.deciding import summarise_families
from esper.runs.exam.page import escape
from esper.runs.exam.plane import Plane
from esper.runs.exam.report import page_of
from esper.runs.exam.statistics import Bootstrap
from esper.runs.exam.summary import summarise
from tests.runs.exam.rows import made_row, made_rows
from tests.test_results import EXAMS

TIMES, ABSENT = "\N{MULTIPLICATION SIGN}", "\N{EN DASH}"
FILES = ["exam.csv", "exam.html", "exam.md", "exam.parquet"]
TERMS = Terms("learned", bootstrap=Bootstrap(resamples=200))
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "_$\\nothing{$",
    "](https://example.org) | **`~runs\n/best.pt",
    "{{ 7 * 7 }} {% raw %} ${title}",
    "../" * 40 + "日本.pt",
)


def tiny_exam(task="toy"):
    """No growth, a heuristic that pays much for little, and a learned policy that pays less for more."""
    shape = {"none": (0.10, 100, 1), "heuristic": (0.50, 400, 2), "learned": (0.80, 300, 2)}
    return [
        made_row(policy, seed, quality + 0.02 * (seed * steps % 4), task, parameters, rollbacks=int(seed == 2))
        for policy, (quality, parameters, steps) in shape.items()
        for seed in range(4)
    ]


def report_on(rows, directory, terms=TERMS, command="esper exam"):
    write_report(rows, directory, terms, command)
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def markdown_of(rows, terms=TERMS):
    return page_of(summarise(rows, terms), "esper exam", {}).render()["exam.md"]


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


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The files of a report with pictures."""
    directory = tmp_path_factory.mktemp("plain") / "new" / "exam"
    return directory, report_on(tiny_exam(), directory)


@pytest.mark.parametrize("exam", EXAMS, ids=lambda path: path.name)
def test_a_committed_report_is_what_its_rows_say_line_by_line(exam):
    published, rows = (exam / "exam.md").read_text(), read_rows(exam / "exam.csv")
    (command,) = re.findall(r"```sh\n(.*)\n```", published)
    settings = tyro.cli(ExamArguments, args=shlex.split(command)[2:], default=ExamArguments(ExamConfig())).settings
    terms = settings.terms()
    if settings.tasks:
        families = summarise_families(rows, settings.stages(), terms, settings.surveyed())
        drawn = dict.fromkeys((path.with_suffix(".svg").name for path in exam.glob("*.png")), b"<svg/>")
        found = deciding_report.page_of(families, terms, command, drawn).render()
    else:
        found = page_of(summarise(rows, terms), command, {}).render()
    assert found["exam.md"].splitlines() == published.splitlines()


def test_the_files_and_a_picture_of_every_plane_are_written_and_parse(plain):
    directory, files = plain
    assert list(files) == [*FILES, "toy-parameters.png", "toy-training-flops.png"]
    assert all(files[name].startswith(b"\x89PNG") for name in files if name.endswith(".png"))
    assert read_rows(directory / "exam.csv") == tiny_exam()
    (count,) = duckdb.connect().read_parquet(str(directory / "exam.parquet")).count("*").fetchall()
    assert count == (12,)
    page = Page(files["exam.html"].decode())
    assert [page.tags.count(tag) for tag in ("h1", "table", "img")] == [1, 2, 2]


def test_the_page_needs_nothing_else(plain):
    text = plain[1]["exam.html"].decode()
    page = Page(text)
    assert not {"script", "link", "iframe", "object", "a"} & set(page.tags)
    sources = [value for _, name, value in page.attributes if name in {"src", "srcset", "href"}]
    assert len(sources) == 2
    assert all(value.startswith("data:image/svg+xml;base64,") for value in sources)
    assert not re.search(r"https?:|//\w|@import|url\(", re.sub(r'src="data:[^"]*"', "", text))
    assert ("meta", "content", "default-src 'none'; style-src 'unsafe-inline'; img-src data:") in page.attributes
    for value in sources:
        drawing = ET.fromstring(base64.b64decode(value.partition(",")[2]))
        links = [link for each in drawing.iter() for name, link in each.attrib.items() if name.endswith("href")]
        assert all(link.startswith("#") for link in links)


def test_a_second_report_replaces_the_first_and_says_the_same(plain):
    directory, files = plain
    (directory / "exam.md").write_text("old")
    second = report_on(tiny_exam(), directory)
    assert all(files[name] == second[name] for name in files if name != "exam.parquet")


@pytest.mark.usefixtures("_no_matplotlib")
@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_that_was_given_becomes_markup(tmp_path, name):
    plain = Page(report_on(tiny_exam(), tmp_path / "plain")["exam.html"].decode())
    rows = [replace(row, policy=name if row.policy == "learned" else row.policy, task=name) for row in tiny_exam()]
    files = report_on(rows, tmp_path / "hostile", replace(TERMS, reference=name), command=name)
    page = Page(files["exam.html"].decode())
    assert page.tags == plain.tags
    assert page.text.count(name) == plain.text.count("learned") + plain.text.count("toy") + 1
    assert read_rows(tmp_path / "hostile" / "exam.csv") == rows
    lines = files["exam.md"].decode().splitlines()
    assert f"# Exam: {escape(name)}" in lines
    tables = [re.sub(r"\\.", "", line) for line in lines if line.startswith("|")]
    assert {line.count("|") for line in tables} == {14, 6}
    assert not any(re.search(r"[<`~$]", line) for line in tables)


def test_hostile_names_can_be_drawn():
    rows = made_rows(**{name: [0.1, 0.2] for name in HOSTILE})
    summary = summarise(rows, replace(TERMS, reference=HOSTILE[0]))
    drawn = Plane("parameters", summary.tasks[0], rows, summary.terms.reference).draw("svg")
    assert ET.fromstring(drawn).tag.endswith("svg")


def test_a_command_cannot_leave_its_block():
    text = page_of(summarise(tiny_exam(), TERMS), "esper exam\n```\n# free", {}).render()["exam.md"]
    assert "````sh\nesper exam\n```\n# free\n````\n" in text


@pytest.mark.usefixtures("_no_matplotlib")
def test_without_matplotlib_the_page_says_why_it_has_no_figures(tmp_path):
    files = report_on(tiny_exam(), tmp_path)
    page = Page(files["exam.html"].decode())
    assert list(files) == FILES
    assert "img" not in page.tags
    assert "no figures, because matplotlib is not installed" in page.text


def test_a_policy_alone_is_compared_with_nobody():
    text = markdown_of(made_rows(learned=[0.5, 0.6]))
    assert "minus every other policy" not in text
    assert "1 policy on 2 seeds (0 to 1), host of 100 parameters." in text


def test_one_seed_is_said_and_has_no_intervals():
    text = markdown_of([row for row in tiny_exam() if row.seed == 0])
    assert "There is one seed only" in text
    assert (
        f"| **learned** | 80.0 | 80.0 | 69.0 | 0.400 | {TIMES}3.00 | 300 | +350.00 "
        f"| {TIMES}3.00 | 600 | 40.0 | 0 | 1.5 |" in text
    )
    assert "| heuristic | +30.00 | 100 [21, 100] | +32.88 | 100 [21, 100] |" in text


def test_few_seeds_are_said_and_many_are_not():
    assert "fewer than 20 seeds" in markdown_of(tiny_exam())
    assert "fewer than 20 seeds" not in markdown_of(made_rows(learned=[0.5, 0.6] * 10, none=[0.1] * 20))


def test_several_tasks_have_a_section_each_and_one_together():
    rows = tiny_exam("toy") + tiny_exam("game") + [made_row("extra", seed, 0.3, "game") for seed in range(4)]
    text = markdown_of(rows)
    titles = re.findall("^## (.*)", text, flags=re.MULTILINE)
    assert titles == ["toy", "game", "All tasks together", "How to read this"]
    together = text.partition("## All tasks together")[2]
    assert "3 policies on 4 seeds" in together
    assert "extra" not in together
    assert "| policy | accuracy % | normalised IQM % | score | growth |" in together
    assert re.search(r"\| \*\*learned\*\* \| 82\.0 \[.*\] \| 100\.0 \[.*\] \| 71\.0", together)
    assert "| none | **+69.00** [+6" in together
    assert "Normalised IQM is over qualities on a scale that the tasks share" in text
    assert "Normalised" not in markdown_of(tiny_exam())


def test_without_a_control_what_it_would_be_divided_by_is_left_open():
    both = [row for task in ("toy", "game") for row in tiny_exam(task) if row.policy != "none"]
    text = markdown_of(both)
    assert f"{TIMES}3.00 | 300 | {ABSENT} | {ABSENT} | 600 |" in text
    assert re.search(
        rf"\| \*\*learned\*\* \| 82\.0 \[.*\] \| {ABSENT} \| 71\.0", text.partition("## All tasks together")[2]
    )


def test_the_report_says_what_was_kept_most_often():
    kept = ["block0 conv", "block0 conv", "block0 conv, block1 norm", ""]
    rows = [made_row("learned", seed, 0.9, kept=each) for seed, each in enumerate(kept)]
    lines = markdown_of([*rows, *(made_row("none", seed, 0.5, parameters=100) for seed in range(4))]).splitlines()
    assert "| learned | 1.00 | block0 conv: 2 seeds; block0 conv, block1 norm: 1 seed; nothing: 1 seed |" in lines
    assert not any("nothing: 4 seeds" in line for line in lines)


def test_rows_that_are_refused_leave_no_file(tmp_path):
    with pytest.raises(BadExam, match="there are no rows"):
        report_on([], tmp_path / "exam")
    assert not (tmp_path / "exam").exists()


@pytest.mark.usefixtures("_no_matplotlib")
def test_what_cannot_be_written_is_said_and_leaves_no_parts(tmp_path):
    for name in FILES:
        (tmp_path / name / name / "in the way").mkdir(parents=True)
        with pytest.raises(Unwritable, match=r"cannot be written \(.*\)"):
            report_on(tiny_exam(), tmp_path / name)
        assert not list((tmp_path / name).glob(".*"))
    (tmp_path / "file").write_text("mine")
    with pytest.raises(Unwritable, match=r"file cannot be written \(File exists\); mend that, or give another --out"):
        report_on(tiny_exam(), tmp_path / "file")


def test_any_cost_can_be_drawn():
    for flops in ([0.0] * 4, [0.0, 1e3, 1e6, 1e15], [7.0] * 4, [100.0, 101.0, 102.0, 103.0]):
        rows = [made_row("learned", seed, 0.5, training_flops=each) for seed, each in enumerate(flops)]
        summary = summarise(rows, TERMS)
        assert (
            ET.fromstring(Plane("training_flops", summary.tasks[0], rows, summary.terms.reference).draw("svg"))
            is not None
        )


def test_more_policies_than_colours_can_be_drawn():
    rows = made_rows(**{f"policy {index}": [0.1, index / 40] for index in range(30)})
    summary = summarise(rows, replace(TERMS, reference="policy 3"))
    assert Plane("parameters", summary.tasks[0], rows, summary.terms.reference).draw("png").startswith(b"\x89PNG")


def test_tasks_of_the_same_name_have_pictures_of_their_own(tmp_path):
    rows = [row for task in ("a/toy.toml", "b/toy.toml") for row in made_rows(task, learned=[0.5, 0.6])]
    names = [name for name in report_on(rows, tmp_path) if name.endswith(".png")]
    assert names == [f"toy-{cost}{suffix}.png" for cost in ("parameters", "training-flops") for suffix in ("-2", "")]
