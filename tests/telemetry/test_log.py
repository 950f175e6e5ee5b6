"""What is written is read again, whatever happens to the file."""

import errno
import json
import math
import os
import re
import resource
import time
import tracemalloc
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from esper.contracts import Event, Stage, StageChanged
from esper.telemetry import (
    AnomalyRaised,
    CheckpointWritten,
    DecisionMade,
    EpisodeFinished,
    EventLog,
    LogReport,
    Record,
    RolledBack,
    RoundFinished,
    RunFailed,
    RunInterrupted,
    RunResumed,
    effective,
    read_log,
)
from esper.telemetry import log as log_module
from esper.telemetry.events import EVENTS
from esper.telemetry.log import SCHEMA, LogUnreadable, LogUnwritable, NewerLog, line_of
from tests.telemetry.cases import ONE_OF_EACH, RECORDED, STARTED, decision, episode, finished, log_of, round_finished


def line(event: str = "RolledBack", data: object = None, **changed: object) -> bytes:
    """A line like those of the writer, but for what is changed."""
    data = {"epoch": 4, "reason": "loss"} if data is None else data
    envelope = {"schema": SCHEMA, "time": 1.5, "round": 3, "episode": 17, "event": event, "data": data} | changed
    return json.dumps(envelope).encode() + b"\n"


def events_in(path, **options):
    return [record.event for record in read_log(path, **options)]


@given(events=ONE_OF_EACH)
@settings(max_examples=30)
def test_every_event_comes_back_as_it_was(tmp_path_factory, events):
    path = tmp_path_factory.mktemp("log") / "events.jsonl"
    with EventLog(path) as log:
        log.write_all(events, 3, 17)
    assert repr(events_in(path)) == repr(list(events))  # NaN is not equal to itself
    assert {(record.round, record.episode) for record in read_log(path)} == {(3, 17)}
    for text in path.read_bytes().splitlines():
        parsed = json.loads(text, parse_constant=lambda token: pytest.fail(token))
        assert list(parsed) == ["schema", "time", "round", "episode", "event", "data"]


GARDEN = {"GardenStarted", "GardenHarvested"}
"""Events that the version before did not have."""


def test_a_log_of_the_version_before_is_read_and_what_it_lacks_is_not_measured():
    report = LogReport()
    records = list(read_log(RECORDED / "events.jsonl", report))
    assert {type(record.event).__name__ for record in records} == EVENTS.keys() - GARDEN
    assert (report.lines, report.damaged, report.unknown, report.older) == (140, 1, 0, 138)
    said = [json.loads(line_of(record)) for record in records]
    written = (RECORDED / "events.jsonl").read_text(encoding="utf-8").splitlines()
    known = [json.loads(text) for text in written if text.endswith("}")]
    for now, then in zip(said, known, strict=True):
        lacking = {name: value for name, value in now["data"].items() if name not in then["data"]}
        assert now == {**then, "schema": SCHEMA, "data": {**then["data"], **lacking}}
        assert set(lacking.values()) <= {None}
    anomaly = records[-9].event
    assert isinstance(anomaly, AnomalyRaised)
    assert (math.isnan(anomaly.figures["lowest_ratio"]), anomaly.figures["highest_ratio"]) == (True, math.inf)


def test_text_outside_ascii_is_kept_readable_and_enums_go_by_name(tmp_path):
    path = log_of(tmp_path, (0, 5, [StageChanged(1, "räume.Ω", Stage.DORMANT, Stage.GERMINATED, ("日本",))]))
    text = path.read_text(encoding="utf-8")
    assert '{"epoch":1,"slot":"räume.Ω","before":"DORMANT","after":"GERMINATED","reasons":["日本"]}' in text


def test_a_name_that_is_no_unicode_does_not_stop_the_log(tmp_path):
    path = log_of(tmp_path, (0, None, [RunFailed("cannot open caf\udce9.toml")]))
    assert events_in(path) == [RunFailed("cannot open caf?.toml")]


def test_a_text_that_looks_like_a_number_or_nothing_stays_a_text(tmp_path):
    for text in ("null", "NaN", "3", "true", ""):
        path = log_of(tmp_path, (0, 1, [finished(panic=text)]))
        assert events_in(path)[-1] == finished(panic=text)


def test_numbers_of_numpy_become_plain_ones(tmp_path):
    drawn = replace(finished(), total=np.float32(0.5), epochs=np.int64(9), quality=np.float64("inf"))
    (event,) = events_in(log_of(tmp_path, (0, 1, [drawn])))
    assert event == finished(quality=math.inf)
    assert type(event.total) is float


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
        assert events_in(log.path) == [STARTED]
        log.sync()
    with EventLog(log.path) as again:
        again.write(RunInterrupted(), 1)
    assert events_in(log.path) == [STARTED, RunInterrupted()]


def test_what_is_written_to_nowhere_is_gone_without_complaint():
    with EventLog(Path(os.devnull)) as log:
        log.write_all(episode(), 0, 5)
        log.sync()
        assert log.size == 0


def test_cutting_the_file_anywhere_loses_at_most_the_line_that_was_cut(tmp_path):
    path = log_of(tmp_path, (0, None, [STARTED]), (1, None, [RunFailed("é\n")]))
    raw, events = path.read_bytes(), events_in(path)
    for end in range(len(raw)):
        path.write_bytes(raw[:end])
        report = LogReport()
        whole = raw[:end].count(b"\n")
        assert events_in(path, report=report) == events[:whole]
        assert (report.lines, report.damaged) == (whole, 0)
        with EventLog(path) as log:
            log.write(RunInterrupted(), 1)
        cut_before_the_newline = raw[end : end + 1] == b"\n"
        assert events_in(path) == [*events[: whole + cut_before_the_newline], RunInterrupted()]


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
RAMP = {"epoch": 1, "slot": "s", "alpha": 0.5, "target": 1.0, "ticks": 1}
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
    "endless digits in an event": line().replace(b": 4", b": " + b"1" * 10_000),
    "huge number": line(episode=2**63),
    "huge number in an event": line(data={"epoch": 10**30, "reason": "loss"}),
    "huge number as text": line(data={"epoch": str(10**30), "reason": "loss"}),
    "truth for a number": line(round=True),
    "fraction for a round": line(round=3.5),
    "no episode": line().replace(b'"episode": 17, ', b""),
    "no time": line(time="soon"),
    "beyond all time": line(time=1e300),
    "before all time": line(time=-1.0),
    "time is infinite": line(time="Infinity"),
    "schema is text": line(schema=str(SCHEMA)),
    "schema is endless": line(schema=10**400),
    "no fields": line(data={}),
    "no data": line(data=[]),
    "another field": line(data={"epoch": 4, "cause": "loss"}),
    "null for a number": line(data={"epoch": None, "reason": "loss"}),
    "number for text": line(data={"epoch": 4, "reason": 5}),
    "half a character": line(data={"epoch": 4, "reason": "\ud800"}),
    "bytes that are no text": line().replace(b"loss", b"lo\xffss"),
    "event is a list": line(event=["RolledBack"]),
    "unknown stage": line("StageChanged", CHANGE | {"before": "DEAD"}),
    "stage is a list": line("StageChanged", CHANGE | {"before": []}),
    "text for a list": line("StageChanged", CHANGE | {"reasons": "x"}),
    "word for a float": line("AlphaRetargeted", RAMP | {"alpha": "much"}),
    "list for a float": line("AlphaRetargeted", RAMP | {"alpha": []}),
    "float too large": line("AlphaRetargeted", RAMP | {"alpha": 10**400}),
    "list for a map": line("AnomalyRaised", {"kind": "k", "message": "m", "figures": []}),
}


def test_a_damaged_line_is_counted_and_its_neighbours_are_read(tmp_path):
    path = tmp_path / "events.jsonl"
    for kind, hostile in HOSTILE.items():
        report = LogReport()
        path.write_bytes(line(round=1) + hostile + line(round=2))
        assert [record.round for record in read_log(path, report)] == [1, 2], kind
        assert (report.lines, report.damaged, report.unknown) == (3, 1, 0), kind
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
    path.write_bytes(line() + b"x" * 5000)
    report = LogReport()
    assert len(list(read_log(path, report))) == 1
    assert report == LogReport(lines=1, offset=len(line())), "what has no end yet is left for later"


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
    path.write_bytes(line() + b'{"schema": %d, "whatever": []}\n' % (SCHEMA + 1))
    wanted = f"holds events of schema {SCHEMA + 1}, and this version reads up to {SCHEMA}; update esper"
    with pytest.raises(NewerLog, match=wanted):
        list(read_log(path))


def test_lines_of_an_older_schema_are_read_if_they_fit_and_told_of(tmp_path):
    path, report = tmp_path / "events.jsonl", LogReport()
    path.write_bytes(line(schema=0) + line(schema=0, data={"epoch": 4}) + line())
    assert len(list(read_log(path, report))) == 2
    assert (report.older, report.damaged) == (2, 0)
    assert report.warnings()[0] == "2 of 3 lines were written by an older version, with another schema"


def test_the_advice_fits_what_the_system_said(tmp_path, monkeypatch):
    path = tmp_path / "events.jsonl"
    for code, cure in {errno.ENOSPC: "make room", errno.EACCES: "mend its rights", errno.EIO: "mend that"}.items():

        def refuse(*_, code=code):
            raise OSError(code, os.strerror(code))

        said = re.escape(f"{path} cannot be written ({os.strerror(code)}); {cure}, then resume the run")
        with EventLog(path) as log, monkeypatch.context() as patched:
            patched.setattr(os, "write", refuse)
            with pytest.raises(LogUnwritable, match=said):
                log.write(STARTED, 0)


def test_a_place_that_cannot_be_written_is_refused_at_once(tmp_path):
    for place, reason in {"absent/log": "No such file or directory", ".": "Is a directory"}.items():
        with pytest.raises(LogUnwritable, match=rf"cannot be written \({reason}\)"):
            EventLog(tmp_path / place)
    with EventLog(Path("/dev/full")) as log, pytest.raises(LogUnwritable, match=r"/dev/full cannot .*; make room"):
        log.write(STARTED, 0)


def test_a_disk_that_fills_in_the_middle_of_a_line_costs_that_line_only(tmp_path):
    path, report = log_of(tmp_path, (0, None, [STARTED])), LogReport()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with EventLog(path) as log:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 40, before[1]))
        try:
            with pytest.raises(LogUnwritable, match=r"File too large"):
                log.write(CheckpointWritten("round-00001.pt"), 1)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        log.write(RunInterrupted(), 1)
        log.write(RunInterrupted(), 2)
    assert events_in(path, report=report) == [STARTED, RunInterrupted(), RunInterrupted()]
    assert report.damaged == 1


def test_a_closed_log_takes_nothing(tmp_path):
    log = EventLog(tmp_path / "log")
    log.close()
    log.close()
    for use in (lambda: log.write(STARTED, 0), log.sync):
        with pytest.raises(LogUnwritable, match="the log is closed; open it again"):
            use()


def test_what_is_no_file_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "events.jsonl")
    with pytest.raises(LogUnreadable, match="is not a file"):
        list(read_log(tmp_path / "events.jsonl"))


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
    assert effective(iter(records)) == [records[i] for i in (0, 1, 4, 5, 8, 9)]
    assert effective([*records[:2], record(0, resumed)]) == [records[0], record(0, resumed)], "a run knows its start"


def test_only_the_wanted_events_are_read_and_what_is_void_is_still_known():
    path, report = RECORDED / "events.jsonl", LogReport()
    wanted = (RoundFinished, EpisodeFinished)
    some = effective(read_log(path, report, only=wanted))
    everything = effective(read_log(path))
    assert some == [each for each in everything if isinstance(each.event, (*wanted, RunResumed))]
    assert Counter(type(each.event) for each in some) == {RoundFinished: 2, EpisodeFinished: 5, RunResumed: 1}
    assert (report.lines, report.damaged, report.older) == (140, 1, 138)


def test_rounds_of_a_long_log_are_read_fast_and_without_holding_the_rest(tmp_path):
    path = tmp_path / "events.jsonl"
    chances = {head: tuple(i / 7 for i in range(6)) for head in ("op", "slot", "blueprint", "style", "tempo")}
    told = b"".join(line_of(Record(1.0, 0, 5, decision(at, "WAIT", probabilities=chances))) for at in range(300))
    with path.open("wb") as file:
        for number in range(100):
            file.write(told + line_of(record(number, round_finished(float(number)))))
    assert path.stat().st_size > 20_000_000
    started = time.process_time()
    assert sum(isinstance(each.event, DecisionMade) for each in read_log(path)) == 30_000
    whole, started = time.process_time() - started, time.process_time()
    rounds = effective(read_log(path, only=(RoundFinished,)))
    some = time.process_time() - started
    tracemalloc.start()
    try:
        assert effective(read_log(path, only=(RoundFinished,))) == rounds
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [each.event.total for each in rounds] == list(range(100))
    assert peak < 2_000_000
    assert some < 0.7 * whole


def test_rolled_back_line_of_the_documentation_is_what_is_written():
    text = line_of(Record(1767225600.25, 3, 17, RolledBack(4, "..."))).decode()
    assert text.strip() in log_module.__doc__
