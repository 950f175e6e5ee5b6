"""How much is told: by level, more after an anomaly, less when the disk has had enough."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esper.contracts import EpisodeEvent
from esper.telemetry import (
    EVENTS,
    AnomalyRaised,
    Escalation,
    InvalidTelemetry,
    Level,
    Record,
    TelemetryConfig,
    UpdateExamined,
    belongs,
    line_of,
)
from esper.telemetry.detail import DETAILS, MEGABYTE
from tests.telemetry.cases import ONE_OF_EACH

ANOMALY = AnomalyRaised("kl_spike", "it jumped", {"kl": 1.0})
LOOK = UpdateExamined({}, {}, {})


@given(events=ONE_OF_EACH)
def test_every_level_tells_what_the_one_below_tells_and_more(events):
    told = {level: {type(event) for event in events if belongs(event, level)} for level in Level}
    assert told[Level.OFF] == set()
    assert told[Level.BRIEF] < told[Level.NORMAL] < told[Level.DETAILED] == set(EVENTS.values())
    assert told[Level.DETAILED] - told[Level.NORMAL] == set(DETAILS)
    assert not any(issubclass(kind, EpisodeEvent) for kind in told[Level.BRIEF])


def levels(escalation, rounds, size=0):
    return [escalation.level(number, size)[0] for number in rounds]


def test_an_anomaly_asks_for_details_of_the_next_rounds_and_then_it_is_as_before():
    escalation = Escalation(TelemetryConfig(escalate_rounds=2))
    assert levels(escalation, [4]) == [Level.NORMAL]
    escalation.see(ANOMALY, 4)
    assert levels(escalation, range(5, 8)) == [Level.DETAILED, Level.DETAILED, Level.NORMAL]
    assert escalation.level(5, 0)[1] == "kl_spike in round 5"


def test_another_anomaly_begins_the_rounds_anew():
    escalation = Escalation(TelemetryConfig(escalate_rounds=2))
    escalation.see(ANOMALY, 4)
    escalation.see(ANOMALY, 6)
    assert levels(escalation, range(7, 10)) == [Level.DETAILED, Level.DETAILED, Level.NORMAL]


@pytest.mark.parametrize("level", [Level.OFF, Level.BRIEF, Level.NORMAL, Level.DETAILED])
def test_without_an_anomaly_the_level_is_the_one_that_was_asked_for(level):
    assert levels(Escalation(TelemetryConfig(level=level)), range(3)) == [level] * 3


def test_a_run_that_tells_nothing_does_not_begin_to_after_an_anomaly():
    escalation = Escalation(TelemetryConfig(level=Level.OFF))
    escalation.see(ANOMALY, 0)
    assert levels(escalation, [1]) == [Level.OFF]


def test_no_rounds_of_escalation_are_none():
    escalation = Escalation(TelemetryConfig(escalate_rounds=0))
    escalation.see(ANOMALY, 0)
    assert levels(escalation, [1]) == [Level.NORMAL]


def test_details_after_anomalies_end_with_their_budget():
    record = Record(0.0, 1, None, LOOK)
    escalation = Escalation(TelemetryConfig(escalate_megabytes=2.5 * len(line_of(record)) / MEGABYTE))
    for number, wanted in enumerate([Level.DETAILED] * 3 + [Level.NORMAL] * 2):
        escalation.see(ANOMALY, number)
        level, reason = escalation.level(number + 1, 0)
        assert level is wanted
        escalation.weigh(record)
    assert reason.startswith("details after anomalies have their")


def test_what_is_told_anyway_does_not_count_as_detail():
    escalation = Escalation(TelemetryConfig(escalate_megabytes=1e-6))
    escalation.weigh(Record(0.0, 1, None, ANOMALY))
    escalation.see(ANOMALY, 0)
    assert levels(escalation, [1]) == [Level.DETAILED]


@given(st.integers(0, 4 * MEGABYTE), st.sampled_from([Level.BRIEF, Level.NORMAL, Level.DETAILED]))
def test_a_log_that_has_its_size_is_brief_whatever_happens(size, asked):
    escalation = Escalation(TelemetryConfig(level=asked, megabytes=2.0))
    escalation.see(ANOMALY, 0)
    level, reason = escalation.level(1, size)
    assert (level is Level.BRIEF and "events.jsonl has its 2 MB" in reason) == (size >= 2 * MEGABYTE)


@pytest.mark.parametrize("wrong", [{"escalate_rounds": -1}, {"megabytes": -0.5}, {"escalate_megabytes": 1e9}])
def test_settings_out_of_range_are_refused(wrong):
    (name,) = wrong
    with pytest.raises(InvalidTelemetry, match=rf"telemetry.{name} = .*; give a value from"):
        TelemetryConfig(**wrong)
