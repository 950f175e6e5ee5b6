"""What an exam has measured so far survives on disk, or is refused with the line that is wrong."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from esper.contracts import Style, Topology
from esper.growth import Fossil
from esper.runs.directory import Unwritable
from esper.runs.exam.results import MAX_BYTES, ExamResults
from esper.runs.exam.rows_file import BadExam
from tests.runs.exam.rows import made_row

FOSSILS = (
    Fossil("block1", Topology.CNN, 8, "conv_light", Style.GATED, 0.7000000000000001),
    *(Fossil(f"layer{style.name}", Topology.DENSE, 4, "mlp", style, 1.0) for style in Style),
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rows.jsonl"


def filled(path):
    """Three lines."""
    ledger = ExamResults(path)
    ledger.add_row(made_row(seed=1, accuracy=1 / 3, seconds=0.1), FOSSILS)
    ledger.add_trial("toy", "schedule 3", 700_000, -0.1)
    ledger.add_row(made_row("none\n\u2028é", seed=2), ())
    return ledger


def test_rows_with_fossils_and_trials_read_back_to_the_last_bit(path):
    ledger = filled(path)
    again = ExamResults(path)
    assert again.rows == ledger.rows
    assert again.trials == ledger.trials == {("toy", "schedule 3", 700_000): -0.1}
    row, fossils = again.rows["toy", "learned", 1]
    assert (row, fossils) == (made_row(seed=1, accuracy=1 / 3, seconds=0.1), FOSSILS)
    assert all(type(each.style) is Style and type(each.topology) is Topology for each in fossils)


def test_a_ledger_that_is_not_there_is_empty_and_is_not_made(path):
    ledger = ExamResults(path)
    assert (ledger.rows, ledger.trials) == ({}, {})
    assert not path.exists()


def test_every_line_is_on_disk_at_once(path):
    ledger = ExamResults(path)
    for count in range(1, 4):
        ledger.add_trial("toy", "schedule 0", count, 0.5)
        assert len(ExamResults(path).trials) == count


@pytest.mark.parametrize("torn", [1, 2, 30, "all but one"])
def test_a_last_line_cut_short_by_a_crash_is_dropped_and_cut_off_the_file(path, torn):
    filled(path)
    lines = path.read_bytes().splitlines(keepends=True)
    left = 1 if torn == "all but one" else len(lines[-1]) - torn
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][:left])
    ledger = ExamResults(path)
    assert list(ledger.rows) == [("toy", "learned", 1)]
    assert path.read_bytes() == b"".join(lines[:-1])
    ledger.add_row(made_row("none", seed=3), ())
    assert list(ExamResults(path).rows) == [("toy", "learned", 1), ("toy", "none", 3)]


def test_a_file_of_nothing_but_a_torn_line_becomes_empty(path):
    path.write_text('{"row": {"ta')
    assert ExamResults(path).rows == {}
    assert path.read_bytes() == b""


ROW = asdict(made_row())
FOSSIL = {"slot": "a", "topology": "cnn", "channels": 4, "blueprint": "norm", "style": "GATED", "alpha": 1.0}


def record(**changed):
    return json.dumps({"row": ROW, "fossils": [FOSSIL], **changed})


def test_a_line_written_by_hand_is_read(path):
    path.write_text(record() + "\n")
    assert len(ExamResults(path).rows) == 1


BAD_LINES = [
    ("{", "Expecting property name"),
    ("", "Expecting value"),
    ("3", "not iterable"),
    ("[]", "must be integers"),
    ("{}", "'row'"),
    ("[" * 100_000, "recursion"),
    ('{"trial": ["toy", "schedule 0"], "worth": 1}', "not enough values"),
    ('{"trial": ["toy", "schedule 0", 1]}', "'worth'"),
    ('{"trial": ["toy", "schedule 0", 1], "worth": "much"}', "could not convert"),
    ('{"trial": ["toy", "schedule 0", 1], "worth": NaN}', "a trial is worth nan"),
    ('{"trial": ["toy", "schedule 0", Infinity], "worth": 1}', "cannot convert float infinity"),
    (f'{{"trial": ["toy", "schedule 0", 1], "worth": 1{"0" * 400}}}', "too large"),
    (record(row={}), "missing value for field"),
    (record(row=ROW | {"accuracy": 1.5}), "'accuracy' must be from 0 to 1, and is 1.5"),
    (record(row=ROW | {"accuracy": "good"}), 'wrong value type for field "accuracy"'),
    (record(row=ROW | {"colour": "red"}), 'can not match "colour"'),
    (record(fossils=3), "not iterable"),
    (record(fossils=[{}]), "missing value for field"),
    (record(fossils=[FOSSIL | {"style": "BOLD"}]), "'BOLD'"),
    (record(fossils=[FOSSIL | {"topology": "flat"}]), "'flat' is not a valid Topology"),
    (record(fossils=[FOSSIL | {"alpha": None}]), 'wrong value type for field "alpha"'),
]


@pytest.mark.parametrize(("line", "reason"), BAD_LINES, ids=[reason for _, reason in BAD_LINES])
def test_a_bad_line_is_refused_with_the_file_its_number_and_what_to_do(path, line, reason):
    filled(path)
    whole = path.read_text().splitlines()
    path.write_text("\n".join([*whole[:2], line, whole[2]]) + "\n")
    before = path.read_bytes()
    with pytest.raises(BadExam, match=r"line 3: .*; remove the file to start anew") as caught:
        ExamResults(path)
    assert str(caught.value).startswith(f"{path}, line 3: ")
    assert reason in str(caught.value)
    assert path.read_bytes() == before


def test_a_file_that_is_no_text_or_beyond_all_bounds_is_refused(path):
    path.write_bytes(b"\xff\xfe\x00\n")
    with pytest.raises(BadExam, match=r"rows\.jsonl is not text; remove it to start anew"):
        ExamResults(path)
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(BadExam, match=r"more than 256,000,000 bytes, which no exam writes; remove it"):
        ExamResults(path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")
def test_a_full_disk_is_said_with_the_way_on(tmp_path):
    ledger = ExamResults(tmp_path / "rows.jsonl")
    (tmp_path / "rows.jsonl").symlink_to("/dev/full")
    with pytest.raises(Unwritable, match=r"rows\.jsonl cannot be written \(No space left on device\); make room"):
        ledger.add_trial("toy", "schedule 0", 1, 0.5)
    assert ledger.trials == {}, "what is not on disk is not known"
