"""What is written is read again, whatever happens to the file."""

import json
import os
import resource
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from esper.contracts import Event, Stage, StageChanged
from esper.telemetry import (
    EVENTS,
    AnomalyRaised,
    CheckpointWritten,
    EventLog,
    LogReport,
    LogUnreadable,
    LogUnwritable,
    NewerLog,
    NullLog,
    Record,
    RolledBack,
    RunFailed,
    RunInterrupted,
    RunResumed,
    effective,
    read_log,
)
from esper.telemetry import log as log_module
from esper.telemetry.events import PARTS
from esper.telemetry.log import SCHEMA
from tests.telemetry.cases import ONE_OF_EACH, STARTED, episode, finished, log_of, round_finished, values_of


def line(event: str = "RolledBack", data: object = None, **changed: object) -> bytes:
    """A line like those of the writer, but for what is changed."""
    data = {"epoch": 4, "reason": "loss"} if data is None else data
    envelope = {"schema": SCHEMA, "time": 1.5, "round": 3, "episode": 17, "event": event, "data": data} | changed
    return json.dumps(envelope).encode() + b"\n"


@pytest.mark.parametrize("name", EVENTS)
def test_every_event_comes_back_as_it_was(name, tmp_path):
    @settings(max_examples=20)
    @given(event=values_of(EVENTS[name]))
    def check(event: Event) -> None:
        path = tmp_path / "events.jsonl"
        path.unlink(missing_ok=True)
        with EventLog(path) as log:
            log.write(event, 3, 17)
        (record,) = read_log(path)
        assert repr(record.event) == repr(event)  # NaN is not equal to itself
        assert (record.round, record.episode) == (3, 17)

    check()


@given(events=ONE_OF_EACH)
@settings(max_examples=10)
def test_every_line_is_json_of_six_keys_that_any_reader_takes(events):
    for event in events:
        text = log_module.line_of(Record(1.5, 0, None, event))
        parsed = json.loads(text, parse_constant=lambda token: pytest.fail(token))
        assert list(parsed) == ["schema", "time", "round", "episode", "event", "data"]
        assert text.count("\n") == 1


def test_events_are_registered_by_defining_them():
    assert {"StageChanged", "RansomwareSuspected", "RunStarted", "UpdateMade", "WorkerReplaced"} <= EVENTS.keys()
    assert not {"Event", "EpisodeEvent", *(part.__name__ for part in PARTS)} & EVENTS.keys()


def test_text_outside_ascii_is_kept_readable_and_enums_go_by_name(tmp_path):
    path = log_of(tmp_path, (0, 5, [StageChanged(1, "räume.Ω", Stage.DORMANT, Stage.GERMINATED, ("日本",))]))
    text = path.read_text(encoding="utf-8")
    assert '{"epoch":1,"slot":"räume.Ω","before":"DORMANT","after":"GERMINATED","reasons":["日本"]}' in text


def test_a_name_that_is_no_unicode_does_not_stop_the_log(tmp_path):
    path = log_of(tmp_path, (0, None, [RunFailed("cannot open caf\udce9.toml")]))
    assert [record.event for record in read_log(path)] == [RunFailed("cannot open caf?.toml")]


def test_numbers_of_numpy_become_plain_ones(tmp_path):
    given = replace(finished(), total=np.float32(0.5), epochs=np.int64(9), ops={"WAIT": np.int64(5)})
    (record,) = read_log(log_of(tmp_path, (0, 1, [given])))
    assert record.event == finished()
    assert type(record.event.total) is float


@pytest.mark.parametrize("changed", [{"total": None}, {"task": 3}, {"epochs": 1.5}, {"epochs": 2**63}, {"ops": [1]}])
def test_what_could_not_be_read_again_is_not_written(changed, tmp_path):
    with EventLog(tmp_path / "events.jsonl") as log, pytest.raises((TypeError, AttributeError), match=r".+"):
        log.write(replace(finished(), **changed), 0, 1)
    assert (tmp_path / "events.jsonl").read_bytes() == b""


def test_a_type_that_readers_would_not_know_is_refused(tmp_path):
    @dataclass(frozen=True)
    class Surprise(Event):
        pass

    with EventLog(tmp_path / "log") as log, pytest.raises(TypeError, match="Surprise is not a known event; define it"):
        log.write(Surprise(), 0)


def test_a_batch_is_one_write(tmp_path, monkeypatch):
    sizes = []
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: sizes.append(len(data)) or write(file, data))
    path = log_of(tmp_path, (0, 1, episode()), (0, 2, []))
    assert sizes == [path.stat().st_size]


def test_other_processes_see_an_event_as_soon_as_it_is_written(tmp_path):
    with EventLog(tmp_path / "events.jsonl") as log:
        log.write(STARTED, 0)
        assert [record.event for record in read_log(log.path)] == [STARTED]
        log.sync()


def test_an_existing_log_is_appended_to(tmp_path):
    log_of(tmp_path, (0, None, [STARTED]))
    path = log_of(tmp_path, (1, None, [RunInterrupted()]))
    assert [record.event for record in read_log(path)] == [STARTED, RunInterrupted()]


def test_cutting_the_file_anywhere_loses_at_most_the_line_that_was_cut(tmp_path):
    path = log_of(tmp_path, (0, None, [STARTED]), (0, 5, [finished(task="ö")]), (1, None, [RunFailed("é\n")]))
    raw, events = path.read_bytes(), [record.event for record in read_log(path)]
    for end in range(len(raw)):
        path.write_bytes(raw[:end])
        report = LogReport()
        whole = raw[:end].count(b"\n")
        assert [record.event for record in read_log(path, report)] == events[:whole]
        assert (report.lines, report.damaged) == (whole, 0)
        with EventLog(path) as log:
            log.write(RunInterrupted(), 1)
        *kept, last = [record.event for record in read_log(path)]
        cut_before_the_newline = raw[end : end + 1] == b"\n"
        assert kept == events[: whole + cut_before_the_newline]
        assert last == RunInterrupted()


def test_reading_goes_on_where_it_stopped_while_the_file_grows(tmp_path):
    path, report = tmp_path / "events.jsonl", LogReport()
    first, second = line(), line(round=4)
    assert list(read_log(path, report)) == []
    path.write_bytes(first + second[:20])
    assert [record.round for record in read_log(path, report)] == [3]
    assert list(read_log(path, report)) == []
    path.write_bytes(first + second)
    assert [record.round for record in read_log(path, report)] == [4]
    assert report == LogReport(lines=2, offset=len(first + second))


NESTED = line(data="here").decode().replace('"here"', "[" * 90_000 + "]" * 90_000).rstrip()
CHANGE = {"epoch": 1, "slot": "s", "before": "PRUNED", "after": "EMBARGOED", "reasons": []}
HOSTILE = {
    "not json": b"what?\n",
    "not text": b"\xff\xfe\x00\n",
    "zeros of a lost page": b"\0" * 4096 + b"\n",
    "no object": b"[1, 2]\n",
    "a number": b"7\n",
    "nested deeply": NESTED.encode() + b"\n",
    "opened endlessly": b"[" * 200_000 + b"\n",
    "not a number": line().replace(b"1.5", b"NaN"),
    "endless digits": line().replace(b"17", b"1" * 10_000),
    "huge number": line(episode=2**63),
    "truth for a number": line(round=True),
    "fraction for a round": line(round=3.5),
    "no episode": line().replace(b'"episode": 17, ', b""),
    "more keys": line(more=1),
    "no time": line(time="soon"),
    "beyond all time": line(time=1e300),
    "before all time": line(time=-1.0),
    "time is infinite": line(time="Infinity"),
    "schema is text": line(schema=str(SCHEMA)),
    "no fields": line(data={}),
    "no data": line(data=[]),
    "more fields": line(data={"epoch": 4, "reason": "loss", "more": 1}),
    "another field": line(data={"epoch": 4, "cause": "loss"}),
    "null for a number": line(data={"epoch": None, "reason": "loss"}),
    "number for text": line(data={"epoch": 4, "reason": 5}),
    "half a character": line(data={"epoch": 4, "reason": "\ud800"}),
    "event is a list": line(event=["RolledBack"]),
    "unknown stage": line("StageChanged", CHANGE | {"before": "DEAD"}),
    "stage is a list": line("StageChanged", CHANGE | {"before": []}),
    "text for a list": line("StageChanged", CHANGE | {"reasons": "x"}),
    "text for a float": line("AlphaRetargeted", {"epoch": 1, "slot": "s", "alpha": "0.5", "target": 1.0, "ticks": 1}),
    "list for a float": line("AlphaRetargeted", {"epoch": 1, "slot": "s", "alpha": [], "target": 1.0, "ticks": 1}),
    "float too large": line("AlphaRetargeted", {"epoch": 1, "slot": "s", "alpha": 10**400, "target": 1, "ticks": 1}),
    "list for a map": line("AnomalyRaised", {"kind": "k", "message": "m", "figures": []}),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_damaged_line_is_counted_and_its_neighbours_are_read(kind, tmp_path):
    path, report = tmp_path / "events.jsonl", LogReport()
    path.write_bytes(line(round=1) + HOSTILE[kind] + line(round=2))
    assert [record.round for record in read_log(path, report)] == [1, 2]
    assert (report.lines, report.damaged, report.unknown) == (3, 1, 0)
    assert report.warnings() == ("1 of 3 lines are damaged and were left out",)


def test_a_line_of_any_length_is_passed_over_without_holding_it(tmp_path, monkeypatch):
    monkeypatch.setattr(log_module, "MAX_LINE_BYTES", 1000)
    path = tmp_path / "events.jsonl"
    for excess in (*range(-3, 4), 2500, 10_000):
        report = LogReport()
        long = line(data={"epoch": 1, "reason": "x"})
        long = long.replace(b"x", b"x" * (1001 + excess - len(long)))
        path.write_bytes(line(round=1) + long + line(round=2))
        rounds = [record.round for record in read_log(path, report)]
        assert rounds == ([1, 2] if len(long) > 1000 else [1, 3, 2])
        assert report.damaged == (len(long) > 1000)
        assert report.offset == path.stat().st_size


def test_a_long_line_without_end_is_left_for_later(tmp_path, monkeypatch):
    monkeypatch.setattr(log_module, "MAX_LINE_BYTES", 1000)
    path, report = tmp_path / "events.jsonl", LogReport()
    path.write_bytes(line() + b"x" * 5000)
    assert len(list(read_log(path, report))) == 1
    assert report == LogReport(lines=1, offset=len(line()))


def test_unknown_events_are_counted_and_the_first_few_named(tmp_path):
    path, report = tmp_path / "events.jsonl", LogReport()
    path.write_bytes(line() + b"".join(line(f"Novel{i}\x1b[2J" + "x" * 99) for i in range(9)))
    assert len(list(read_log(path, report))) == 1
    assert (report.unknown, report.damaged, len(report.unknown_names)) == (9, 0, 5)
    (warning,) = report.warnings()
    assert warning.startswith("9 of 10 events are of unknown types ('Novel0")
    assert "\x1b" not in warning


def test_a_newer_log_is_refused_with_what_to_do(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(line() + line(schema=SCHEMA + 1, data={"what": "ever"}, more=True))
    wanted = f"holds events of schema {SCHEMA + 1}, and this version reads up to {SCHEMA}; update esper"
    with pytest.raises(NewerLog, match=wanted):
        list(read_log(path))


def test_lines_of_an_older_schema_are_read_if_they_fit_and_told_of(tmp_path):
    path, report = tmp_path / "events.jsonl", LogReport()
    path.write_bytes(line(schema=0) + line(schema=0, data={"epoch": 4}) + line())
    assert len(list(read_log(path, report))) == 2
    assert (report.older, report.damaged) == (2, 0)
    assert report.warnings()[0] == "2 of 3 lines were written by an older version, with another schema"


def test_full_disk_says_where_why_and_what_to_do():
    with (
        EventLog(Path("/dev/full")) as log,
        pytest.raises(LogUnwritable, match=r"/dev/full cannot be written: No space left on device; make room"),
    ):
        log.write(STARTED, 0)


def test_a_disk_that_fills_in_the_middle_of_a_line_costs_that_line_only(tmp_path):
    path = log_of(tmp_path, (0, None, [STARTED]))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with EventLog(path) as log:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 40, before[1]))
        try:
            with pytest.raises(LogUnwritable, match="File too large"):
                log.write(CheckpointWritten("round-00001.pt"), 1)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        log.write(RunInterrupted(), 1)
        log.write(RunInterrupted(), 2)
    report = LogReport()
    assert [record.event for record in read_log(path, report)] == [STARTED, RunInterrupted(), RunInterrupted()]
    assert report.damaged == 1


@pytest.mark.parametrize(("place", "reason"), [("absent/log", "No such file or directory"), (".", "Is a directory")])
def test_a_place_that_cannot_be_written_is_refused_at_once(place, reason, tmp_path):
    with pytest.raises(LogUnwritable, match=f"cannot be written: {reason}"):
        EventLog(tmp_path / place)


def test_a_closed_log_takes_nothing(tmp_path):
    log = EventLog(tmp_path / "log")
    log.close()
    log.close()
    with pytest.raises(LogUnwritable, match="the log is closed"):
        log.write(STARTED, 0)
    with pytest.raises(LogUnwritable, match="the log is closed"):
        log.sync()


def test_what_is_no_file_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "events.jsonl")
    with pytest.raises(LogUnreadable, match="is not a file"):
        list(read_log(tmp_path / "events.jsonl"))


def test_null_log_has_the_interface_of_the_log_and_writes_nothing():
    with NullLog() as log:
        log.write(STARTED, 0, None)
        log.write_all(episode(), 0, 5)
        log.sync()
    public = {name for name in vars(EventLog) if not name.startswith("_")}
    assert public <= set(vars(NullLog))


def record(round_number: int, event: Event) -> Record:
    return Record(1.0, round_number, None, event)


def test_rounds_that_were_played_again_count_once():
    resumed = RunResumed("round-00001.pt", ())
    records = [
        record(0, STARTED),
        record(0, round_finished(0.0)),
        record(1, round_finished(1.0)),
        record(2, AnomalyRaised("k", "m", {})),
        record(1, resumed),
        record(1, round_finished(1.5)),
        record(2, round_finished(2.0)),
        record(3, RunInterrupted()),
        record(2, replace(resumed, checkpoint="round-00002.pt")),
        record(2, round_finished(2.5)),
    ]
    kept = effective(iter(records))
    assert [each.event.total for each in kept if hasattr(each.event, "total")] == [0.0, 1.5, 2.5]
    assert kept == [records[i] for i in (0, 1, 4, 5, 8, 9)]


def test_a_run_resumed_before_its_first_round_ended_still_knows_how_it_started():
    records = [record(0, STARTED), record(0, round_finished(0.0)), record(0, RunResumed("round-00000.pt", ()))]
    assert effective(records) == [records[0], records[2]]


def test_processes_that_only_write_load_no_database():
    code = "import sys, esper.telemetry; sys.exit('duckdb' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_rolled_back_line_of_the_documentation_is_what_is_written():
    text = log_module.line_of(Record(1767225600.25, 3, 17, RolledBack(4, "...")))
    assert text.strip() in log_module.__doc__
