"""Files of a recording give back what was written, or nothing: whatever was done to them, file and row are named."""

import re
from dataclasses import replace

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from esper.environment import FIELDS
from esper.runs.directory import Unwritable
from esper.runs.recordings import BadRecording, RecordingSchema, part, read_part, write_part
from esper.runs.recordings.schema import COLUMNS
from tests.runs.recordings.recordings import same


def rewritten(source, path, select="SELECT * FROM source", schema=None):
    """The file, with other columns or with another word about itself."""
    meta = (schema or read_part(source)[0].to_json()).replace("'", "''")
    with duckdb.connect() as database:
        database.execute(f"CREATE VIEW source AS FROM read_parquet('{source}')")
        database.execute(f"COPY ({select}) TO '{path}' (FORMAT parquet, KV_METADATA {{esper: '{meta}'}})")
    return path


def refused(path) -> str:
    with pytest.raises(BadRecording, match=re.escape(str(path))) as error:
        read_part(path)
    return str(error.value)


def test_reading_gives_what_was_written_bit_for_bit(recorded, tmp_path):
    path = tmp_path / "it's [odd] *.parquet"
    write_part(path, recorded.trajectories, recorded.schema)
    assert path.read_bytes() == recorded.file.read_bytes()
    schema, found = read_part(path)
    assert schema == recorded.schema
    assert schema.fields == FIELDS
    for one, two in zip(found, recorded.trajectories, strict=True):
        assert same(one, two)
        assert one.codec == two.codec
        assert one.observation["slots"].shape == (one.steps + 1, 2, len(FIELDS.slots))


def test_a_part_that_cannot_be_written_leaves_nothing(recorded, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Unwritable, match="cannot be written"):
        write_part(tmp_path / "file" / "a.parquet", recorded.trajectories, recorded.schema)
    (tmp_path / "a.parquet").mkdir()
    with pytest.raises(Unwritable, match="cannot be written"):
        write_part(tmp_path / "a.parquet", recorded.trajectories, recorded.schema)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.parquet", "file"]


SQL = [
    (
        "SELECT * REPLACE (list_prepend('nan'::FLOAT, host[2:]) AS host) FROM source WHERE policy = 'heuristic'",
        "row 0: step 0: host [0] is nan; give a finite number",
    ),
    (
        "SELECT * REPLACE (list_prepend(CASE policy WHEN 'heuristic' THEN 9 ELSE choice_op[1] END::SMALLINT, "
        "choice_op[2:]) AS choice_op) FROM source",
        "row 2: step 0: choice_op is 9; give 0 to 5",
    ),
    ("SELECT * EXCLUDE (score) FROM source", "has other columns than a recording (score)"),
    ("SELECT *, 1 AS more FROM source", "has other columns than a recording (more)"),
    ("SELECT * REPLACE (score::FLOAT AS score) FROM source", "has other columns than a recording (score)"),
    ("SELECT * FROM source LIMIT 0", "has 0 rows; a file of a recording has 1 to 4,096 episodes"),
    ("SELECT s.* FROM source s, range(1000)", "has 6,000 rows"),
    ("SELECT * REPLACE (NULL::BIGINT AS seed) FROM source", "row 0: seed is missing"),
    ("SELECT * REPLACE (NULL::DOUBLE[] AS rewards) FROM source", "row 0: rewards is missing"),
    ("SELECT * REPLACE (list_append(host[2:], NULL) AS host) FROM source", "row 0: host has an entry that is missing"),
    ("SELECT * REPLACE ([]::DOUBLE[] AS rewards) FROM source", "row 0: it has 0 steps"),
    ("SELECT * REPLACE (rewards[2:] AS rewards) FROM source", "row 0: "),
    ("SELECT * REPLACE (mask_op[2:] AS mask_op) FROM source", "row 0: mask_op has 41 numbers; shape (7, 6) needs 42"),
    ("SELECT * REPLACE (slot_names[1:1] AS slot_names) FROM source", "row 0: "),
    ("SELECT * REPLACE (['a', 'a'] AS slot_names) FROM source", "row 0: slot_names names something twice"),
    ("SELECT * REPLACE (['a', NULL] AS slot_names) FROM source", "row 0: slot_names has an entry that is no name"),
    ("SELECT * REPLACE ([]::VARCHAR[] AS slot_names) FROM source", "row 0: slot_names has 0 entries"),
    ("SELECT * REPLACE (['b', 'a'] AS slot_names) FROM source", "row 0: it is not what was written"),
    ("SELECT * REPLACE (score + 1 AS score) FROM source", "row 0: it is not what was written: its checksum differs"),
    ("SELECT * REPLACE (list_reverse(rewards) AS rewards) FROM source WHERE rewards[1] != rewards[6]", "row 0: it is"),
]


@pytest.mark.parametrize(("select", "message"), SQL)
def test_a_file_that_was_tampered_with_is_refused(recorded, tmp_path, select, message):
    assert message in refused(rewritten(recorded.file, tmp_path / "hostile.parquet", select))


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ('{"version": 2}', "is a recording of version 2, and this esper reads 1"),
        ('{"version": 1}', "says of itself what cannot be read (it lacks "),
        ("[]", "is no recording; give what 'esper record' wrote"),
        ("{", "says of itself what cannot be read"),
        ("[" * 5000, "says of itself what cannot be read"),
    ],
)
def test_a_file_that_says_nonsense_of_itself_is_refused(recorded, tmp_path, schema, message):
    assert message in refused(rewritten(recorded.file, tmp_path / "hostile.parquet", schema=schema))


def test_other_heads_or_features_than_the_arrays_have_are_refused(recorded, tmp_path):
    heads = replace(recorded.schema, heads={**recorded.schema.heads, "op": 7}).to_json()
    assert "has other heads" in refused(rewritten(recorded.file, tmp_path / "heads.parquet", schema=heads))
    fields = replace(recorded.schema, fields=replace(FIELDS, host=FIELDS.host[1:])).to_json()
    assert "row 0: host has" in refused(rewritten(recorded.file, tmp_path / "fields.parquet", schema=fields))


def test_what_unpacks_to_more_than_a_recording_can_have_is_refused_before_it_is_unpacked(
    recorded, tmp_path, monkeypatch
):
    select = f"SELECT * REPLACE (range(500_000)::{COLUMNS['rewards']} AS rewards) FROM source LIMIT 1"
    path = rewritten(recorded.file, tmp_path / "bomb.parquet", select)
    monkeypatch.setattr(part, "MOST_NUMBERS", 100_000)
    assert "unpacks to 50" in refused(path)


def test_no_file_a_large_one_and_one_of_something_else_are_refused(recorded, tmp_path):
    assert "is no file of up to 256,000,000 bytes" in refused(tmp_path / "nothing.parquet")
    with (tmp_path / "large.parquet").open("wb") as file:
        file.truncate(300_000_000)
    assert "is no file of up to 256,000,000 bytes" in refused(tmp_path / "large.parquet")
    (tmp_path / "text.parquet").write_text("PAR1 and no more")
    assert "cannot be read as a recording" in refused(tmp_path / "text.parquet")
    with duckdb.connect() as database:
        database.execute(f"COPY (SELECT 1 AS one) TO '{tmp_path}/other.parquet' (FORMAT parquet)")
    assert "is no recording" in refused(tmp_path / "other.parquet")


def same_or_refused(path, recorded) -> bool:
    """Whether the file could still be read; then every episode is as it was."""
    try:
        schema, found = read_part(path)
    except BadRecording:
        return False
    assert schema == recorded.schema
    assert all(same(one, two) for one, two in zip(found, recorded.trajectories, strict=True))
    return True


@pytest.mark.parametrize("examples", [12, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_file_of_which_any_byte_or_the_end_was_changed_is_refused_or_read_as_it_was(recorded, tmp_path, examples):
    content, path = recorded.file.read_bytes(), tmp_path / "fuzzed.parquet"

    @settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, len(content) - 1), st.integers(1, 255), st.booleans())
    def check(place, change, is_cut):
        damaged = content[:place] if is_cut else _flipped(content, place, change)
        path.write_bytes(damaged)
        assert not (same_or_refused(path, recorded) and is_cut)

    check()


def _flipped(content: bytes, place: int, change: int) -> bytes:
    return content[:place] + bytes([content[place] ^ change]) + content[place + 1 :]


def test_a_schema_survives_its_own_words(recorded):
    assert RecordingSchema.from_json(recorded.schema.to_json()) == recorded.schema
