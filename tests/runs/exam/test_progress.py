"""What a person sees of an exam while it goes on."""

from io import StringIO

import pytest
from rich.console import Console

from esper.runs.exam.progress import ExamBars, ExamLines

HOSTILE = "runs/[/b][red]x.toml"


def watched(kind, terminal=False, **more):
    said = StringIO()
    return kind(Console(file=said, width=120, force_terminal=terminal), **more), said


@pytest.mark.parametrize(("total", "lines"), [(100, 10), (10, 10), (3, 3), (1, 1)])
def test_lines_say_every_tenth_of_a_stage_and_its_end(total, lines):
    watcher, said = watched(ExamLines)
    with watcher:
        watcher.stage("tiny: none", total, 0)
        for _ in range(total):
            watcher.advance()
    first, *rest = said.getvalue().splitlines()
    assert first == f"tiny: none: {total} episodes"
    assert len(rest) == lines
    assert rest[-1].startswith(f"  {total}/{total}  left 0:00")


def test_lines_start_from_what_is_known():
    watcher, said = watched(ExamLines)
    watcher.stage("tiny: none", 10, 8)
    watcher.advance()
    assert said.getvalue().startswith("tiny: none: 10 episodes, 8 of them known\n  9/10  left ")


def test_quiet_lines_say_only_what_went_wrong():
    watcher, said = watched(ExamLines, quiet=True)
    with watcher:
        watcher.stage("tiny: none", 1, 0)
        watcher.advance()
        assert said.getvalue() == ""
        watcher.note("a worker was replaced")
    assert said.getvalue() == "a worker was replaced\n"


def test_bars_count_a_stage_from_what_is_known_to_its_end():
    watcher, said = watched(ExamBars, terminal=True)
    with watcher:
        watcher.advance()
        watcher.stage("tiny: none", 9, 4)
        for _ in range(5):
            watcher.advance()
        watcher.note("a worker was replaced")
    assert "tiny: none" in said.getvalue()
    assert "9/9" in said.getvalue()
    assert "a worker was replaced" in said.getvalue()


@pytest.mark.parametrize("kind", [ExamBars, ExamLines])
def test_names_are_not_taken_for_markup(kind):
    watcher, said = watched(kind)
    with watcher:
        watcher.stage(HOSTILE, 1, 0)
        watcher.advance()
        watcher.note(f"lost {HOSTILE}")
    assert said.getvalue().count(HOSTILE) >= 2
