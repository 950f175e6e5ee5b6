"""What an exam has measured so far survives on disk; what cannot be read of it costs no more than itself."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from esper.contracts import Style, Topology
from esper.growth import Fossil
from esper.runs.directory import Unwritable
from esper.runs.exam.results import MAX_BYTES, ExamResults
from esper.telemetry.exam_rows import BadExam
from tests.runs.exam.rows import made_row

FOSSILS = (
    Fossil("block1", Topology.CNN, 8, "conv_light", Style.GATED, 0.7000000000000001),
    *(Fossil(f"layer{style.name}", Topology.DENSE, 4, "mlp", style, 1.0) for style in Style),
)
ROW = asdict(made_row())
FOSSIL = {"slot": "a", "topology": "cnn", "channels": 4, "blueprint": "norm", "style": "GATED", "alpha": 1.0}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rows.jsonl"


def filled(path):
    """Three lines."""
    results = ExamResults(path)
    results.add_row(made_row(seed=1, quality=1 / 3, seconds=0.1), FOSSILS)
    results.add_trial("toy", "schedule 3", 700_000, -0.1)
    results.add_row(made_row("none\n\u2028é", seed=2), ())
    return results


def record(**changed):
    return json.dumps({"row": ROW, "fossils": [FOSSIL], **changed})


def test_rows_with_fossils_and_trials_read_back_to_the_last_bit(path):
    results, again = filled(path), ExamResults(path)
    assert again.rows == results.rows
    assert again.trials == results.trials == {("toy", "schedule 3", 700_000): -0.1}
    row, fossils = again.rows["toy", "learned", 1]
    assert (row, fossils) == (made_row(seed=1, quality=1 / 3, seconds=0.1), FOSSILS)
    assert all(type(each.style) is Style and type(each.topology) is Topology for each in fossils)
    assert again.left_out == 0


def test_lines_as_older_versions_wrote_them_are_read(path):
    path.write_text(record() + '\n{"trial": ["toy", "schedule 0", 1], "worth": 1}\n')
    results = ExamResults(path)
    assert (len(results.rows), results.trials, results.left_out) == (1, {("toy", "schedule 0", 1): 1.0}, 0)


def test_every_line_is_on_disk_at_once_and_reading_makes_no_file(path):
    results = ExamResults(path)
    assert not path.exists()
    for count in range(1, 4):
        results.add_trial("toy", "schedule 0", count, 0.5)
        assert len(ExamResults(path).trials) == count


def test_a_line_that_a_crash_cut_short_is_left_out_and_spoils_no_later_one(path):
    filled(path)
    whole = path.read_bytes()
    for torn in (2, 30, len(whole) - 1):
        path.write_bytes(whole[:-torn])
        results = ExamResults(path)
        assert results.left_out == 1
        assert path.read_bytes() == whole[:-torn], "reading changes nothing"
        results.add_row(made_row("none", seed=3), ())
        results.add_row(made_row("none", seed=4), ())
        again = ExamResults(path)
        assert again.rows == results.rows
        assert {("toy", "none", 3), ("toy", "none", 4)} <= set(again.rows)
        assert again.left_out == 1


BAD_LINES = [
    "{",
    "3",
    "[]",
    "{}",
    "[" * 100_000,
    "\udcff",
    '{"trial": ["toy", "schedule 0"], "worth": 1}',
    '{"trial": ["toy", "schedule 0", 1]}',
    '{"trial": ["toy", "schedule 0", 1], "worth": "much"}',
    '{"trial": ["toy", "schedule 0", 1], "worth": NaN}',
    '{"trial": ["toy", "schedule 0", 1], "worth": 1e999}',
    record(row={}),
    record(row=ROW | {"quality": 1.5}),
    record(row=ROW | {"quality": "good"}),
    record(fossils=3),
    record(fossils=[{}]),
    record(fossils=[FOSSIL | {"style": "BOLD"}]),
    record(fossils=[FOSSIL | {"topology": "flat"}]),
    record(fossils=[FOSSIL | {"alpha": None}]),
]


def test_a_bad_line_is_left_out_and_all_others_are_kept(path):
    known = filled(path)
    lines = path.read_bytes().splitlines()
    for bad in BAD_LINES:
        path.write_bytes(b"\n".join([*lines[:2], bad.encode(errors="surrogateescape"), lines[2]]) + b"\n")
        results = ExamResults(path)
        assert results.left_out == 1, bad[:80]
        assert (results.rows, results.trials) == (known.rows, known.trials)


def test_a_file_beyond_all_bounds_is_refused(path):
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(BadExam, match="larger than 256,000,000 bytes, more than any exam writes; move it away"):
        ExamResults(path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")
def test_a_full_disk_is_said_with_the_way_on(path):
    results = ExamResults(path)
    path.symlink_to("/dev/full")
    with pytest.raises(Unwritable, match=r"rows\.jsonl cannot be written \(No space left on device\); make room"):
        results.add_trial("toy", "schedule 0", 1, 0.5)
    assert results.trials == {}, "what is not on disk is not known"
