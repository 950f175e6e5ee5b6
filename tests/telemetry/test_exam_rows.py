"""The rows of an exam as files."""

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esper.runs.exam.parquet import write_parquet
from esper.telemetry.exam_rows import COLUMNS, MAX_BYTES, BadExam, check_rows, csv_text, read_rows, values_of
from tests.runs.exam.rows import made_row, made_rows
from tests.test_results import EXAMS

HEADER = ",".join(COLUMNS)
GOOD = '"toy","learned",3,0.1,"accuracy",0.5,1.0,0.5,0.25,100,200,200000.0,400.0,0,1.5,"",2.0,0.43068528194400546'

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
numbers = st.floats(0, 1e300)
rows_of_any_kind = st.builds(
    made_row,
    policy=names,
    task=names,
    seed=st.integers(0, 2**63 - 1),
    quality=st.floats(0, 1),
    area=st.floats(0, 1),
    parameters=st.integers(1, 10**15),
    training_flops=numbers,
    seconds=numbers,
)


def written(tmp_path, text):
    path = tmp_path / "exam.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_csv_file_has_all_fields_growth_and_score():
    assert csv_text([made_row(seed=3)]) == f"{HEADER}\n{GOOD}\n"


def test_committed_rows_are_written_again_byte_for_byte():
    assert EXAMS
    for exam in EXAMS:
        assert csv_text(read_rows(exam / "exam.csv")).encode() == (exam / "exam.csv").read_bytes()


@settings(max_examples=50)
@given(st.lists(rows_of_any_kind, min_size=1, max_size=5, unique_by=lambda row: (row.task, row.policy, row.seed)))
def test_rows_read_back_to_the_last_bit(tmp_path_factory, rows):
    path = written(tmp_path_factory.getbasetemp(), csv_text(rows))
    assert read_rows(path) == rows


def test_whole_numbers_among_fractions_read_back(tmp_path):
    rows = [made_row(quality=1, area=0, seconds=2)]
    assert read_rows(written(tmp_path, csv_text(rows))) == rows


def test_parquet_has_the_columns_of_the_csv_file_typed(tmp_path):
    rows = [made_row("it's <b>", 2**40, 0.25), *made_rows(none=[0.1, 0.3])]
    path = tmp_path / "it's.parquet"
    write_parquet(rows, path)
    found = duckdb.connect().read_parquet(str(path))
    assert tuple(found.columns) == tuple(COLUMNS)
    texts, counts = {"task", "policy", "judged_by", "kept"}, {"seed", "host_parameters", "parameters", "rollbacks"}
    kinds = ["VARCHAR" if name in texts else "BIGINT" if name in counts else "DOUBLE" for name in COLUMNS]
    assert [str(each) for each in found.types] == kinds
    assert found.fetchall() == [tuple(values_of(row, COLUMNS)) for row in rows]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 0: the columns are ''; they must be task,policy,seed"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (f"{HEADER}\n", "there are no rows"),
        (f"{HEADER},more\n{GOOD},1\n", "line 1: the columns are"),
        (f"{HEADER}\n{GOOD},7\n", "line 2: there are 19 values for 18 columns"),
        (f"{HEADER}\n{GOOD}\n\n", "line 3: there are 0 values for 18 columns"),
        (f"{HEADER}\n{GOOD}\n{GOOD}\n", "'learned' has 2 rows for seed 3 of task 'toy'"),
        (f'{HEADER}\n"toy,{GOOD[6:]}', "line 2: ',' expected after"),
        (f"{HEADER}\n{'x' * 200_000}", "line 2: field larger than field limit"),
    ],
)
def test_a_file_that_no_exam_wrote_is_refused_with_the_reason(tmp_path, text, message):
    path = written(tmp_path, text)
    with pytest.raises(BadExam, match=message) as caught:
        read_rows(path)
    assert str(caught.value).startswith(str(path))


BAD_CELLS = [
    ("task", "", "Expected `str` of length >= 1 - at `$.task`"),
    ("seed", "1.0", "'seed' must be 1, and is '1.0'"),
    ("seed", "1_0", "at `$.seed`"),
    ("seed", "٣", "at `$.seed`"),
    ("seed", "9" * 20, "at `$.seed`"),
    ("seed", "9" * 5_000, "at `$.seed`"),
    ("seed", "-1", "Expected `int` >= 0 - at `$.seed`"),
    ("quality", "nan", "at `$.quality`"),
    ("quality", "", "Expected `float`, got `str` - at `$.quality`"),
    ("quality", "75.0", "Expected `float` <= 1.0 - at `$.quality`"),
    ("host_parameters", "0", "Expected `int` >= 1 - at `$.host_parameters`"),
    ("training_flops", "inf", "at `$.training_flops`"),
    ("seconds", "-1.0", "Expected `float` >= 0.0 - at `$.seconds`"),
    ("growth", "3.0", "'growth' must be 2.0, and is '3.0'"),
    ("score", "much", "'score' must be 0.43068528194400546, and is 'much'"),
]


def test_a_value_that_cannot_be_is_refused_by_line_and_name(tmp_path):
    for column, cell, message in BAD_CELLS:
        cells = GOOD.split(",")
        cells[list(COLUMNS).index(column)] = cell
        path = written(tmp_path, f"{HEADER}\n{','.join(cells)}\n")
        with pytest.raises(BadExam, match=r"exam\.csv, line 2: ") as caught:
            read_rows(path)
        assert message in str(caught.value)


def test_a_file_that_is_not_there_or_beyond_all_bounds_is_said(tmp_path):
    with pytest.raises(BadExam, match=r"there is no such file; give the exam\.csv"):
        read_rows(tmp_path)
    path = tmp_path / "exam.csv"
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(BadExam, match="larger than 32,000,000 bytes"):
        read_rows(path)


def test_rows_that_no_exam_can_have_made_are_refused_by_number_and_name():
    for changed in (
        {"quality": float("nan")},
        {"seconds": "1"},
        {"seed": 1.0},
        {"rollbacks": True},
        {"policy": None},
        {"policy": "runs/\udcff"},
        {"task": "t" * 4_097},
    ):
        (name,) = changed
        with pytest.raises(BadExam, match=rf"row 2 cannot be of an exam: Expected .* - at `\$\.{name}`"):
            check_rows([made_row(seed=1), made_row(**changed)])
