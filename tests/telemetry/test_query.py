"""SQL sees what was written, what counts of it, and nothing else."""

import math
from dataclasses import fields

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings

from esper.contracts import EpisodeEvent, RansomwareSuspected
from esper.telemetry import (
    EVENTS,
    AnomalyRaised,
    EpisodeFinished,
    EventLog,
    LogUnreadable,
    NewerLog,
    RolledBack,
    RunFailed,
    RunFinished,
    RunHalted,
    RunInterrupted,
    RunResumed,
    SinkFailed,
    UpdateMade,
    WorkerReplaced,
    read_log,
)
from esper.telemetry import query as query_module
from esper.telemetry.log import SCHEMA
from esper.telemetry.query import BadQuery, open_run, query
from esper.telemetry.views import VIEWS
from tests.telemetry.cases import ONE_OF_EACH, STARTED, episode, finished, log_of, plain, round_finished
from tests.telemetry.test_log import HOSTILE, line

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
                assert repr(list(found)) == repr([plain(getattr(event, column)) for column in columns])


@pytest.mark.parametrize("kind", EVENTS.values(), ids=EVENTS)
def test_no_field_hides_when_and_where_an_event_happened(kind):
    place = {"line", "time", "round", "episode", "play", "event", "data", "void"}
    place |= {"task", "policy", "purpose"} if issubclass(kind, EpisodeEvent) else set()
    assert not place & {each.name for each in fields(kind)}


@pytest.mark.parametrize("content", [None, b"", b"garbage"], ids=["missing", "empty", "cut off"])
def test_a_run_without_events_has_all_views_and_no_rows(content, tmp_path):
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


@pytest.mark.parametrize("state", ENDS)
def test_runs_has_one_row_with_the_last_known_state(state, tmp_path):
    log_of(tmp_path, (0, None, [STARTED]), (1, None, ENDS[state]), (1, 5, episode()))
    told = "state, reason, rounds, seed, reward, backend, started <= last_event"
    reason = 'it\'s "broken"' if state in ("failed", "halted") else None
    assert rows(tmp_path, f"SELECT {told} FROM runs") == [(state, reason, 3, 7, "twin", "process", True)]


def test_a_run_that_lost_its_first_line_still_has_its_row(tmp_path):
    log_of(tmp_path, (1, 5, episode()))
    assert rows(tmp_path, "SELECT state, rounds FROM runs") == [("unknown", None)]


def test_anomalies_hold_everything_that_an_operator_should_see(tmp_path):
    log_of(
        tmp_path,
        (
            2,
            5,
            [RansomwareSuspected(4, "stem", 0.2, -0.1), RolledBack(6, "loss is nan"), finished(panic="loss is nan")],
        ),
        (2, None, [AnomalyRaised("entropy", "op head collapsed", {"entropy": 0.01}), WorkerReplaced("w1", "died", 9)]),
        (3, None, [SinkFailed("mlflow", "nobody is there")]),
    )
    assert rows(tmp_path, "SELECT * EXCLUDE (time) FROM anomalies") == [
        (2, 5, 4, "RansomwareSuspected", "slot stem", {"contribution": 0.2, "gain": -0.1}),
        (2, 5, 6, "RolledBack", "loss is nan", {}),
        (2, None, None, "entropy", "op head collapsed", {"entropy": 0.01}),
        (2, 9, None, "WorkerReplaced", "w1: died", {}),
        (3, None, None, "SinkFailed", "mlflow: nobody is there", {}),
    ]


def test_figures_of_heads_are_read_by_name_or_as_rows(tmp_path):
    head = {"steps": 8, "entropy": 0.5, "gradient_norm": 0.1, "lowest_ratio": 0.9, "highest_ratio": 1.1}
    given = dict.fromkeys((each.name for each in fields(UpdateMade)), 0)
    with EventLog(tmp_path / "events.jsonl") as log:
        log.write(RunInterrupted(), 0)
    heads = {"op": head, "slot": head | {"entropy": None}}
    data = given | {"stopped_early": False, "heads": heads, "kl": "NaN", "explained_variance": None}
    with (tmp_path / "events.jsonl").open("ab") as file:
        file.write(line("UpdateMade", data, episode=None))
    ((op, slot, kl, explained),) = rows(
        tmp_path, "SELECT heads['op'].entropy, heads['slot'].entropy, kl, explained_variance FROM updates"
    )
    assert (op, slot, explained) == (0.5, None, None)
    assert math.isnan(kl)
    assert rows(tmp_path, "SELECT head, steps, entropy FROM heads") == [("op", 8, 0.5), ("slot", 8, None)]


COERCED = {"more keys", "more fields", "null for a number", "number for text", "truth for a number", "text for a float"}
COERCED |= {"fraction for a round", "list for a map", "unknown stage", "stage is a list", "float too large"}
COERCED |= {"schema is text"}
"""What SQL casts to the type of the column, where the typed reader is stricter."""


@pytest.mark.parametrize("kind", HOSTILE)
def test_damaged_lines_neither_stop_a_query_nor_hide_their_neighbours(kind, tmp_path):
    (tmp_path / "events.jsonl").write_bytes(line(round=1) + HOSTILE[kind] + line(round=2))
    with open_run(tmp_path) as connection:
        found = [connection.execute(f"SELECT line FROM {name}").fetchall() for name in EVENTS]
    lines = [number for view in found for (number,) in view]
    assert set(lines) - {2} == {1, 3}
    assert 2 not in lines or kind in COERCED


def test_lines_are_numbered_as_in_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(query_module, "BATCH_LINES", 2)
    (tmp_path / "events.jsonl").write_bytes(line() + b"\n" + line() + b"{\n" + line() + line())
    assert rows(tmp_path, "SELECT line FROM events") == [(1,), (3,), (5,), (6,)]


def test_a_newer_log_is_refused(tmp_path):
    (tmp_path / "events.jsonl").write_bytes(line() + line(schema=SCHEMA + 1))
    with pytest.raises(NewerLog, match=f"schema {SCHEMA + 1}"):
        open_run(tmp_path)


def test_what_is_no_file_is_not_read(tmp_path):
    (tmp_path / "events.jsonl").mkdir()
    with pytest.raises(LogUnreadable, match="is not a file"):
        query(tmp_path, "SELECT 1")


def test_text_in_events_is_never_sql(tmp_path):
    text = "'; DROP VIEW rounds; --\0\"$1 {}\\"
    path = log_of(tmp_path, (0, 5, [RolledBack(1, text), finished(task=text)]), (0, None, [RunFailed(text)]))
    assert rows(tmp_path, "SELECT reason, task FROM RolledBack") == [(text, text)]
    assert rows(tmp_path, "SELECT reason FROM runs") == [(text,)]
    assert rows(tmp_path, "SELECT * FROM rounds") == []
    assert len(list(read_log(path))) == 3


def test_a_directory_of_any_name_can_be_asked(tmp_path):
    odd = tmp_path / "it's [a] *run*; DROP"
    odd.mkdir()
    log_of(odd, (0, None, [STARTED]))
    assert rows(odd, "SELECT seed FROM runs") == [(7,)]


ESCAPES = {
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
}
WRITES = {
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
    "delete": "DELETE FROM log.events",
    "insert": "INSERT INTO log.events SELECT * FROM log.events",
    "drop": "DROP VIEW rounds",
    "create": "CREATE TABLE mine (a INT)",
    "call": "CALL pragma_version()",
}


@pytest.mark.parametrize("sql", (ESCAPES | WRITES).values(), ids=(ESCAPES | WRITES))
def test_sql_reaches_nothing_outside_the_run_and_changes_nothing(sql, tmp_path):
    secret = tmp_path / "secret.csv"
    secret.write_text("a,b\n1,2\n")
    log_of(tmp_path, (0, None, [STARTED]))
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    asked = sql.format(secret=secret, folder=tmp_path)
    with pytest.raises(BadQuery, match="Views: runs, rounds"):
        query(tmp_path, asked)
    with pytest.raises(BadQuery, match=r"2 statements were given; give one SELECT"):
        query(tmp_path, f"SELECT 1; {asked}")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    "name", sorted(ESCAPES.keys() | WRITES.keys() - {"delete", "insert", "drop", "create", "call"})
)
def test_the_bare_connection_is_shut_as_well(name, tmp_path):
    secret = tmp_path / "secret.csv"
    secret.write_text("a,b\n1,2\n")
    with open_run(tmp_path) as connection, pytest.raises(duckdb.Error, match=r"(?i)disabled|locked|exist|registered"):
        connection.execute((ESCAPES | WRITES)[name].format(secret=secret, folder=tmp_path)).fetchall()
    assert list(tmp_path.iterdir()) == [secret]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT * FROM round", "there is no view 'round'; did you mean 'rounds'[?]"),
        ("SELECT * FROM zebra", "there is no view 'zebra'; known: runs, rounds, episodes"),
        ("SELECT * FROM stage_changed", "did you mean 'StageChanged'[?]"),
        ("SELECT totl FROM rounds", r'column "totl" not found(.|\n)*"total"(.|\n)*Views: runs'),
        ("SELEC 1", r'syntax error at or near "SELEC"'),
        ("SELECT $1", "Values were not provided"),
        ("SELECT now()", "write ::TIMESTAMP behind them"),
        ("", "0 statements were given; give one SELECT"),
        ("-- nothing", "0 statements were given"),
        ("SELECT 1; SELECT 2", "2 statements were given"),
        ("SELECT '\ud800'", "surrogates not allowed"),
        ("SELECT error('stop')", "stop"),
    ],
)
def test_wrong_sql_is_answered_with_the_reason_and_the_views(sql, message, tmp_path):
    with pytest.raises(BadQuery, match=message):
        query(tmp_path, sql)


def test_a_query_that_wants_too_much_memory_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(query_module, "SPARE_MEGABYTES", 100)
    with pytest.raises(BadQuery, match="Out of Memory"):
        query(tmp_path, "SELECT list(range) FROM range(1_000_000_000)")


@pytest.mark.parametrize(
    "sql",
    ["DESCRIBE rounds", "SUMMARIZE rounds", "SHOW TABLES", "EXPLAIN SELECT 1", "VALUES (1)", "FROM rounds;",
     "WITH a AS (SELECT 1) FROM a", "PIVOT episodes ON policy USING count(*)"],
)  # fmt: skip
def test_everything_that_only_reads_is_answered(sql, tmp_path):
    log_of(tmp_path, (0, 5, episode()), (0, None, [round_finished(1.0)]))
    columns, found = query(tmp_path, sql)
    assert len(found) >= 1
    assert all(len(row) == len(columns) for row in found)


def test_episodes_have_the_fields_of_their_event_behind_time_and_place(tmp_path):
    columns, _ = query(tmp_path, "SELECT * FROM episodes")
    assert columns == ["time", "round", "episode", "play", *(each.name for each in fields(EpisodeFinished))]
