"""The rows of an exam as files."""

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esper.runs.exam.rows_file import (
    COLUMNS,
    MAX_BYTES,
    MAX_NAME,
    BadExam,
    check_rows,
    csv_text,
    read_rows,
    write_parquet,
)
from tests.runs.exam.rows import made_row, made_rows

HEADER = ",".join(COLUMNS)
GOOD = '"toy","learned",3,0.5,0.5,0.25,100,200,200000.0,400.0,0,1.5,"",2.0,0.43068528194400546'

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
numbers = st.floats(0, 1e300)
rows_of_any_kind = st.builds(
    made_row,
    policy=names,
    task=names,
    seed=st.integers(0, 2**63 - 1),
    accuracy=st.floats(0, 1),
    area=st.floats(0, 1),
    parameters=st.integers(1, 10**15),
    training_flops=numbers,
    seconds=numbers,
)


def written(tmp_path, text):
    path = tmp_path / "exam.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_csv_file_has_all_fields_growth_and_score(tmp_path):
    assert csv_text([made_row(seed=3)], rent=0.1) == f"{HEADER}\n{GOOD}\n"


@given(st.lists(rows_of_any_kind, min_size=1, max_size=5, unique_by=lambda row: (row.task, row.policy, row.seed)))
def test_rows_read_back_to_the_last_bit(tmp_path_factory, rows):
    path = written(tmp_path_factory.getbasetemp(), csv_text(rows, rent=0.3))
    assert read_rows(path) == rows


def test_whole_numbers_among_fractions_read_back(tmp_path):
    rows = [made_row(accuracy=1, area=0, seconds=2)]
    assert read_rows(written(tmp_path, csv_text(rows, rent=0))) == rows


def test_parquet_has_the_columns_of_the_csv_file_typed(tmp_path):
    rows = [made_row("it's <b>", 2**40, 0.25), *made_rows(none=[0.1, 0.3])]
    path = tmp_path / "it's.parquet"
    write_parquet(rows, 0.1, path)
    found = duckdb.connect().read_parquet(str(path))
    assert tuple(found.columns) == COLUMNS
    assert [str(each) for each in found.types] == ["VARCHAR"] * 2 + ["BIGINT"] + ["DOUBLE"] * 3 + ["BIGINT"] * 2 + [
        "DOUBLE"
    ] * 2 + ["BIGINT", "DOUBLE", "VARCHAR"] + ["DOUBLE"] * 2
    assert found.fetchall() == [(*vars(row).values(), row.growth, row.score(0.1)) for row in rows]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the columns are not those of an exam: it lacks task, policy"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (f"{HEADER}\n", "there are no rows"),
        (f"{HEADER},more\n{GOOD},1\n", "it has 'more'"),
        (f"{HEADER},more,most\n", "it has 'more' and 1 more"),
        (f"{HEADER.replace('seed,', '')}\n", "it lacks seed"),
        (f"{HEADER.replace('task,policy', 'policy,task')}\n", "repeated or in another order"),
        (f"{HEADER},score\n", "repeated or in another order"),
        (f"{HEADER}\n{GOOD},7\n", "line 2: there are 16 values for 15 columns"),
        (f"{HEADER}\n{GOOD}\n\n", "line 3: there are 0 values for 15 columns"),
        (f"{HEADER}\n{GOOD}\n{GOOD}\n", "'learned' has 2 rows for seed 3 of task 'toy'"),
        (f'{HEADER}\n"toy,{GOOD[6:]}', "line 2: this is not CSV"),
        (f'{HEADER}\n"toy"x{GOOD[5:]}', "line 2: this is not CSV"),
        (f"{HEADER}\n{'x' * 200_000}", "this is not CSV: field larger than field limit"),
    ],
)
def test_a_file_that_no_exam_wrote_is_refused_with_the_reason(tmp_path, text, message):
    path = written(tmp_path, text)
    with pytest.raises(BadExam, match=message) as caught:
        read_rows(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("column", "cell", "message"),
    [
        ("task", "", "'task' must have 1 to 4,096 characters, and has 0"),
        ("seed", "1.0", "line 2: 'seed' must be an integer, and is '1.0'"),
        ("seed", "1_0", "'seed' must be an integer"),
        ("seed", " 1", "'seed' must be an integer"),
        ("seed", "٣", "'seed' must be an integer"),
        ("seed", "9" * 19, "'seed' must be from 0 to 9223372036854775807"),
        ("seed", "9" * 5_000, "'seed' must be an integer, and is '9999"),
        ("seed", "-1", "'seed' must be from 0 to"),
        ("accuracy", "nan", "'accuracy' must be a number, and is 'nan'"),
        ("accuracy", "", "'accuracy' must be a number, and is ''"),
        ("accuracy", "75.0", r"'accuracy' must be from 0 to 1, and is 75\.0"),
        ("area", "-0.1", "'area' must be from 0 to 1"),
        ("host_parameters", "0", "'host_parameters' must be from 1 to"),
        ("parameters", "0", "'growth' must be parameters / host_parameters"),
        ("training_flops", "inf", "'training_flops' must be a number"),
        ("training_flops", "1e999", "'training_flops' must be finite and at least 0, and is inf"),
        ("seconds", "-1", r"'seconds' must be finite and at least 0, and is -1\.0"),
        ("growth", "3.0", r"line 2: 'growth' must be parameters / host_parameters = 2\.0, and is 3\.0"),
        ("score", "1e999", "'score' must be finite, and is inf"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(tmp_path, column, cell, message):
    cells = GOOD.split(",")
    cells[COLUMNS.index(column)] = cell
    with pytest.raises(BadExam, match=message):
        read_rows(written(tmp_path, f"{HEADER}\n{','.join(cells)}\n"))


def test_a_file_that_is_not_there_is_said(tmp_path):
    with pytest.raises(BadExam, match=r"there is no such file; give the exam\.csv"):
        read_rows(tmp_path)


def test_a_file_beyond_all_bounds_is_not_read(tmp_path):
    path = tmp_path / "exam.csv"
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(BadExam, match="larger than 32,000,000 bytes"):
        read_rows(path)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"accuracy": float("nan")},
            "'accuracy' must be from 0 to 1, and is nan .seed 0, policy 'learned', task 'toy'",
        ),
        ({"seconds": "1"}, "'seconds' must be a number, and is '1'"),
        ({"seed": 1.0}, r"'seed' must be an integer, and is 1\.0"),
        ({"rollbacks": True}, "'rollbacks' must be an integer, and is True"),
        ({"policy": None}, "'policy' must be text, and is None"),
        ({"policy": "runs/\udcff"}, "'policy' must be text that UTF-8 can hold"),
        ({"task": "t" * (MAX_NAME + 1)}, "'task' must have 1 to 4,096 characters, and has 4,097"),
    ],
)
def test_rows_that_no_exam_can_have_made_are_refused(changed, message):
    row = made_row(**changed)
    with pytest.raises(BadExam, match=message):
        check_rows([made_row(seed=1), row])
