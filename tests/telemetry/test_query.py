"""SQL sees what was written, what counts of it, and nothing else."""

import json
import math
from dataclasses import fields, replace
from datetime import datetime

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings

from esper.contracts import EpisodeEvent
from esper.telemetry import (
    AnomalyRaised,
    EventLog,
    RolledBack,
    RunFailed,
    RunFinished,
    RunHalted,
    RunInterrupted,
    RunResumed,
    read_log,
)
from esper.telemetry import query as query_module
from esper.telemetry.events import EVENTS, EpisodeStarted
from esper.telemetry.log import SCHEMA, LogUnreadable, NewerLog
from esper.telemetry.query import BadQuery, as_json, as_tsv, open_run, query
from esper.telemetry.views import VIEWS, sql_type
from tests.telemetry.cases import (
    HEAD,
    ONE_OF_EACH,
    RECORDED,
    STARTED,
    UPDATE,
    episode,
    finished,
    in_sql,
    log_of,
    round_finished,
)
from tests.telemetry.test_log import GARDEN, HOSTILE, line

RESUMED = RunResumed("round-00001.pt", ())
OUTSIDER = [1, 2, 3]


def rows(directory, sql):
    return query(directory, sql)[1]


@given(events=ONE_OF_EACH)
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_field_of_every_event_is_a_column_with_the_value_that_was_written(events, tmp_path):
    path = tmp_path / "events.jsonl"
    path.unlink(missing_ok=True)
    with EventLog(path) as log:
        for event in events:  # each in a round of its own that nothing makes void
            log.write(event, -1 if isinstance(event, RunResumed) else -2, 17)
    with open_run(tmp_path) as connection:
        for event in events:
            name, columns = type(event).__name__, [each.name for each in fields(event)]
            listed = ", ".join(f'"{column}"' for column in columns) or "1"
            (found,) = connection.execute(f"SELECT {listed} FROM {name}").fetchall()
            if columns:
                assert repr(list(found)) == repr([in_sql(getattr(event, column)) for column in columns])


def test_a_field_without_a_type_in_sql_is_refused():
    for annotation in (list[int], object, dict[int, str], tuple[int, str], set):
        with pytest.raises(TypeError, match="cannot be part of an event; use numbers, text, enums"):
            sql_type(annotation)


def test_no_field_hides_when_and_where_an_event_happened():
    for kind in EVENTS.values():
        place = {"line", "time", "round", "episode", "play", "event", "data", "void"}
        place |= {"task", "policy", "purpose"} if issubclass(kind, EpisodeEvent) else set()
        own = {each.name for each in fields(kind)}
        assert place & own == ({"task", "policy", "purpose"} if kind is EpisodeStarted else set()), kind


def test_a_run_without_events_has_all_views_and_no_rows(tmp_path):
    for content in (None, b"", b"garbage"):
        if content is not None:
            (tmp_path / "events.jsonl").write_bytes(content)
        with open_run(tmp_path) as connection:
            for view in [*VIEWS, *EVENTS]:
                answer = connection.execute(f"SELECT * FROM {view}")
                assert len(answer.description) > 2
                assert answer.fetchall() == []


def test_views_count_rounds_that_were_played_again_once(tmp_path):
    log_of(
        tmp_path,
        (0, None, [STARTED]),
        (0, 5, episode()),
        (0, None, [round_finished(0.0)]),
        (1, 6, episode()),
        (1, None, [round_finished(1.0), AnomalyRaised("k", "void", {})]),
        (2, 7, episode()[:4]),
        (1, None, [RESUMED]),
        (1, 6, episode(total=9.0)),
        (1, None, [round_finished(1.5), RunFinished(1, 2.0)]),
    )
    assert rows(tmp_path, "SELECT round, total FROM rounds") == [(0, 0.0), (1, 1.5)]
    assert rows(tmp_path, "SELECT episode, total FROM episodes") == [(5, 0.5), (6, 9.0)]
    assert rows(tmp_path, "SELECT episode, count(*) FROM decisions GROUP BY ALL ORDER BY ALL") == [(5, 4), (6, 4)]
    assert rows(tmp_path, "SELECT episode, count(*) FROM seeds GROUP BY ALL ORDER BY ALL") == [(5, 2), (6, 2)]
    assert rows(tmp_path, "SELECT * FROM anomalies") == []
    assert rows(tmp_path, "SELECT count(*), count(*) FILTER (void) FROM events") == [(74, 27)]
    assert rows(tmp_path, "SELECT state, resumed, tasks FROM runs") == [("finished", 1, ["digits", "rösti"])]


def test_a_recorded_run_is_seen_without_what_it_played_again():
    assert rows(RECORDED, "SELECT round FROM rounds") == [(0,), (1,)]
    assert rows(RECORDED, "SELECT count(*), count(DISTINCT play) FROM decisions") == [(20, 4)]
    assert rows(RECORDED, "SELECT state, resumed, reward, rounds FROM runs") == [("interrupted", 1, "frugal", 2)]
    heads = rows(RECORDED, "SELECT heads['op'].steps, heads['style'].entropy BETWEEN 0 AND 1 FROM updates")
    assert rows(RECORDED, "SELECT steps FROM heads WHERE head = 'op' ORDER BY round") == [(each,) for each, _ in heads]
    assert rows(RECORDED, "SELECT total FROM episodes WHERE policy = 'random'") == [(-math.inf,)]


def test_figures_of_heads_are_read_and_those_that_an_older_log_lacks_are_null(tmp_path):
    assert rows(RECORDED, "SELECT count(*), count(kl), count(entropy) > 0 FROM heads") == [(16, 0, True)]
    silent = replace(HEAD, steps=0, entropy=None, kl=None)
    log_of(tmp_path, (0, None, [replace(UPDATE, heads={"op": HEAD, "slot": silent})]))
    assert rows(tmp_path, "SELECT head, kl FROM heads ORDER BY head") == [("op", 0.02), ("slot", None)]
    assert rows(tmp_path, "SELECT heads['op'].kl FROM updates") == [(0.02,)]


def test_what_older_logs_lack_is_the_only_thing_that_may_be_missing(tmp_path):
    log_of(tmp_path, (0, None, [UPDATE, UPDATE, UPDATE]))
    path = tmp_path / "events.jsonl"
    whole, without_kl, without_steps = path.read_bytes().splitlines(keepends=True)
    without_kl, without_steps = without_kl.replace(b',"kl":0.02', b""), without_steps.replace(b'"steps":50,', b"")
    path.write_bytes(whole + without_kl + without_steps)
    assert rows(tmp_path, "SELECT line, heads['op'].kl, heads['op'].steps FROM UpdateMade") == [
        (1, 0.02, 50), (2, None, 50),
    ]  # fmt: skip
    assert [record.event.heads["op"].kl for record in read_log(path)] == [0.02, None]


def test_a_seed_has_one_row_for_its_life(tmp_path):
    log_of(tmp_path, (0, 5, episode()))
    told = "slot, blueprint, style, tempo, alpha_target, germinated, training, blending, holding, fossilized, pruned"
    assert rows(tmp_path, f"SELECT {told}, stage, contribution FROM seeds") == [
        ("stem", "norm", "GATED", "FAST", "FULL", 0, None, None, None, None, 1, "PRUNED", 0.01),
        ("stem", "conv", "GATED", "SLOW", "HALF", 5, 6, 7, 8, 11, None, "FOSSILIZED", 0.03),
    ]
    changes = rows(tmp_path, "SELECT changes FROM seeds")[1][0]
    assert [each["epoch"] for each in changes] == [5, 6, 7, 8, 9, 10, 11]
    assert changes[4] == {"epoch": 9, "stage": "BLENDING"}


def test_episodes_of_one_seed_in_one_round_are_told_apart(tmp_path):
    policies = ("greedy", "heuristic", "random")
    log_of(tmp_path, *((3, 600_000, episode(policy=policy, purpose="compare")) for policy in policies))
    by_policy = "policy, purpose, count(*) FROM {} GROUP BY ALL ORDER BY policy"
    for view, count in (("episodes", 1), ("decisions", 4), ("rewards", 4), ("seeds", 2), ("StageChanged", 12)):
        assert rows(tmp_path, f"SELECT {by_policy.format(view)}") == [(each, "compare", count) for each in policies]
    assert rows(tmp_path, "SELECT count(DISTINCT play) FROM decisions JOIN episodes USING (play)") == [(3,)]


def test_an_episode_whose_end_was_lost_keeps_its_seeds(tmp_path):
    log_of(tmp_path, (0, 5, episode()[:-1]), (0, 6, episode()[:-1]))
    found = rows(tmp_path, "SELECT episode, task, blueprint, contribution FROM seeds")
    assert found == [(each, None, *seed) for each in (5, 6) for seed in (("norm", 0.01), ("conv", 0.03))]


ENDS = {
    "finished": [RunFinished(None, 1.0)],
    "failed": [RunFailed('it\'s "broken"')],
    "halted": [RunHalted('it\'s "broken"')],
    "interrupted": [RunInterrupted()],
    "unknown": [RunInterrupted(), RESUMED],
}


def test_runs_has_one_row_with_the_last_known_state(tmp_path):
    for state, end in ENDS.items():
        (tmp_path / state).mkdir()
        log_of(tmp_path / state, (0, None, [STARTED]), (1, None, end), (1, 5, episode()))
        told = "state, reason, rounds, seed, reward, backend, started <= last_event"
        reason = 'it\'s "broken"' if state in ("failed", "halted") else None
        assert rows(tmp_path / state, f"SELECT {told} FROM runs") == [(state, reason, 3, 7, "twin", "process", True)]
    log_of(tmp_path, (1, 5, episode()))
    assert rows(tmp_path, "SELECT state, rounds FROM runs") == [("unknown", None)], "its first line was lost"


def test_anomalies_hold_everything_that_an_operator_should_see():
    found = rows(RECORDED, "SELECT * EXCLUDE (time) FROM anomalies")
    assert repr(found) == repr([
        (2, 11, 4, "RewardHackingSuspected", "slot layer0", {"contribution": 0.25, "gain": 0.125}),
        (2, 11, 5, "RansomwareSuspected", "slot layer1", {"contribution": 0.5, "gain": -0.25}),
        (2, 11, 5, "RolledBack", "loss is nan", {}),
        (2, None, None, "ratio_explosion", "it jumped", {"lowest_ratio": math.nan, "highest_ratio": math.inf}),
        (2, 9, None, "WorkerReplaced", "w1: it died", {}),
        (2, None, None, "SinkFailed", "mlflow: nobody is there", {}),
    ])  # fmt: skip


COERCED = {"null for a number", "number for text", "truth for a number", "fraction for a round", "list for a map"}
COERCED |= {"unknown stage", "stage is a list", "float too large", "schema is text"}
"""What SQL casts to the type of the column, where the typed reader is stricter."""


def test_damaged_lines_neither_stop_a_query_nor_hide_their_neighbours(tmp_path):
    """Every second line is good."""
    (tmp_path / "events.jsonl").write_bytes(b"".join(line() + hostile for hostile in HOSTILE.values()) + line())
    with open_run(tmp_path) as connection:
        found = [connection.execute(f"SELECT line FROM {name}").fetchall() for name in EVENTS]
    lines = {number for view in found for (number,) in view}
    assert {number for number in lines if number % 2} == set(range(1, 2 * len(HOSTILE) + 2, 2))
    shown = {kind for at, kind in enumerate(HOSTILE, start=1) if 2 * at in lines}
    assert shown <= COERCED, shown - COERCED


def test_lines_are_numbered_as_in_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(query_module, "BATCH_LINES", 2)
    (tmp_path / "events.jsonl").write_bytes(line() + b"\n" + line() + b"{\n" + line() + line())
    assert rows(tmp_path, "SELECT line FROM events") == [(1,), (3,), (5,), (6,)]


def test_a_newer_log_and_what_is_no_file_are_refused(tmp_path):
    (tmp_path / "events.jsonl").write_bytes(line() + line(schema=SCHEMA + 1))
    with pytest.raises(NewerLog, match=f"schema {SCHEMA + 1}"):
        open_run(tmp_path)
    (tmp_path / "folder" / "events.jsonl").mkdir(parents=True)
    with pytest.raises(LogUnreadable, match="is not a file"):
        query(tmp_path / "folder", "SELECT 1")


def test_neither_text_in_events_nor_the_name_of_a_run_is_ever_sql(tmp_path):
    text = "'; DROP VIEW rounds; --\0\"$1 {}\\"
    odd = tmp_path / "it's [a] *run*; DROP"
    odd.mkdir()
    path = log_of(odd, (0, 5, [RolledBack(1, text), finished(task=text)]), (0, None, [RunFailed(text)]))
    assert rows(odd, "SELECT reason, task FROM RolledBack") == [(text, text)]
    assert rows(odd, "SELECT reason FROM runs") == [(text,)]
    assert rows(odd, "SELECT * FROM rounds") == []
    assert len(list(read_log(path))) == 3


OUTSIDE = {
    "read_text": "SELECT * FROM read_text('{secret}')",
    "read_csv": "SELECT * FROM read_csv('{secret}')",
    "read_json": "SELECT * FROM read_json('{secret}')",
    "read_blob": "SELECT * FROM read_blob('{secret}')",
    "read_parquet": "SELECT * FROM read_parquet('{secret}')",
    "path as a table": "SELECT * FROM '{secret}'",
    "glob": "SELECT * FROM glob('{folder}/*')",
    "sniff": "SELECT * FROM sniff_csv('{secret}')",
    "web": "SELECT * FROM 'https://example.org/a.csv'",
    "environment": "SELECT getenv('HOME')",
    "python variable": "SELECT * FROM OUTSIDER",
    "secrets": "SELECT * FROM duckdb_secrets()",
    "copy out": "COPY (SELECT 1) TO '{folder}/stolen.csv'",
    "copy in": "COPY log.events FROM '{secret}'",
    "attach": "ATTACH '{folder}/other.db'",
    "export": "EXPORT DATABASE '{folder}/all'",
    "install": "INSTALL httpfs",
    "load": "LOAD '{secret}'",
    "unlock": "SET enable_external_access = true",
    "unlock by pragma": "PRAGMA enable_external_access = true",
    "reset": "RESET lock_configuration",
    "secret": "CREATE SECRET (TYPE s3)",
}
CHANGES = {
    "delete": "DELETE FROM log.events",
    "insert": "INSERT INTO log.events SELECT * FROM log.events",
    "drop": "DROP VIEW rounds",
    "create": "CREATE TABLE mine (a INT)",
    "call": "CALL pragma_version()",
}


def test_sql_reaches_nothing_outside_the_run_and_changes_nothing(tmp_path):
    secret = tmp_path / "secret.csv"
    secret.write_text("a,b\n1,2\n")
    log_of(tmp_path, (0, None, [STARTED]))
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for sql in (OUTSIDE | CHANGES).values():
        with pytest.raises(BadQuery, match="Views: runs, rounds"):
            query(tmp_path, sql.format(secret=secret, folder=tmp_path))
    with pytest.raises(BadQuery, match=r"2 statements were given; give one SELECT"):
        query(tmp_path, f"SELECT 1; {CHANGES['drop']}")
    with open_run(tmp_path) as bare:
        for sql in OUTSIDE.values():
            with pytest.raises(duckdb.Error, match=r"(?i)disabled|locked|exist|registered"):
                bare.execute(sql.format(secret=secret, folder=tmp_path)).fetchall()
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


WRONG = {
    "SELECT * FROM round": "there is no view 'round'; did you mean 'rounds'[?]",
    "SELECT * FROM zebra": "there is no view 'zebra'; known: runs, rounds, episodes",
    "SELECT * FROM stage_changed": "did you mean 'StageChanged'[?]",
    "SELECT totl FROM rounds": r'column "totl" not found(.|\n)*"total"(.|\n)*Views: runs',
    "SELEC 1": r'syntax error at or near "SELEC"',
    "SELECT $1": "Values were not provided",
    "SELECT now()": "write ::TIMESTAMP behind them",
    "": "0 statements were given; give one SELECT",
    "-- nothing": "0 statements were given",
    "SELECT 1; SELECT 2": "2 statements were given",
    "SELECT '\ud800'": "surrogates not allowed",
    "SELECT error('stop')": "stop",
}


def test_wrong_sql_is_answered_with_the_reason_and_the_views(tmp_path):
    for sql, message in WRONG.items():
        with pytest.raises(BadQuery, match=message):
            query(tmp_path, sql)


def test_a_query_that_wants_too_much_memory_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(query_module, "SPARE_MEGABYTES", 100)
    with pytest.raises(BadQuery, match="Out of Memory"):
        query(tmp_path, "SELECT list(range) FROM range(1_000_000_000)")


def test_everything_that_only_reads_is_answered():
    for sql in (
        "DESCRIBE rounds", "SUMMARIZE rounds", "SHOW TABLES", "EXPLAIN SELECT 1", "VALUES (1)", "FROM rounds;",
        "WITH a AS (SELECT 1) FROM a", "PIVOT episodes ON policy USING count(*)",
    ):  # fmt: skip
        columns, found = query(RECORDED, sql)
        assert found, sql
        assert all(len(row) == len(columns) for row in found), sql


EXACT = """
    SELECT 0.1::DOUBLE + 0.2 AS share, 9007199254740993 AS whole, 'a\tb\nc\\d\re' AS said, NULL AS nothing,
        'nan'::DOUBLE AS lost, true AS fact, TIMESTAMP '2026-01-02 03:04:05.25' AS at,
        MAP {1.50: [1.5, '-inf'::DOUBLE]} AS nested, [1.10::DECIMAL(9, 2)] AS exact, 'é' AS said
"""


def test_an_answer_as_tsv_keeps_every_digit_and_one_line_per_row():
    columns, answer = query(RECORDED, EXACT)
    names, cells = (line.split("\t") for line in as_tsv(columns, answer).split("\n"))
    assert names == columns
    assert cells == [
        "0.30000000000000004", "9007199254740993", r"a\tb\nc\\d\re", "", "NaN", "true", "2026-01-02T03:04:05.250000",
        '{"1.50":[1.5,"-Infinity"]}', "[1.10]", "é",
    ]  # fmt: skip
    assert float(cells[0]) == answer[0][0]


def test_an_answer_as_json_keeps_every_value_of_every_column():
    columns, answer = query(RECORDED, EXACT)
    (row,) = json.loads(as_json(columns, answer), parse_constant=pytest.fail)
    assert row == {
        "share": 0.1 + 0.2, "whole": 9007199254740993, "said": "a\tb\nc\\d\re", "nothing": None, "lost": "NaN",
        "fact": True, "at": "2026-01-02T03:04:05.250000", "nested": {"1.50": [1.5, "-Infinity"]}, "exact": [1.1],
        "said_9": "é",
    }  # fmt: skip
    assert datetime.fromisoformat(row["at"]) == answer[0][6]


def test_whatever_a_view_holds_can_be_written_out():
    """The recorded run was written before there were alphas and gardens."""
    with open_run(RECORDED) as connection:
        for view in {*VIEWS, *EVENTS} - {"alphas", *GARDEN}:
            found = connection.execute(f"SELECT * FROM {view}")
            columns, answer = [name for name, *_ in found.description], found.fetchall()
            assert len(json.loads(as_json(columns, answer))) == len(answer) > 0, view
            assert {line.count("\t") for line in as_tsv(columns, answer).split("\n")} == {len(columns) - 1}
    assert json.loads(as_json(["a"], [])) == []
