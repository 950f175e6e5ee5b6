"""How much is told: by level, more after an anomaly, less when the disk has had enough."""

import pytest

from esper.contracts import EpisodeEvent
from esper.telemetry import AnomalyRaised, Escalation, Level, Record, TelemetryConfig, UpdateExamined, belongs, read_log
from esper.telemetry.detail import DETAILS, MEGABYTE, InvalidTelemetry
from esper.telemetry.events import EVENTS, GardenHarvested, GardenStarted
from esper.telemetry.log import line_of
from tests.telemetry.cases import RECORDED

ANOMALY = AnomalyRaised("kl_spike", "it jumped", {"kl": 1.0})
LOOK = Record(0.0, 1, None, UpdateExamined({}, {}, {}))


def after_anomalies(*rounds: int, **settings: object) -> Escalation:
    escalation = Escalation(TelemetryConfig(**settings))
    for number in rounds:
        escalation.see(ANOMALY, number)
    return escalation


def levels(escalation, rounds, size=0):
    return [escalation.level(number, size)[0] for number in rounds]


def test_every_level_tells_what_the_one_below_tells_and_more():
    recorded = [record.event for record in read_log(RECORDED / "events.jsonl")]
    events = [*recorded, GardenStarted("m", 1, 0.0, 1, 1, (), {}), GardenHarvested(1, 1, (), None)]
    told = {level: {type(event) for event in events if belongs(event, level)} for level in Level}
    assert told[Level.OFF] == set()
    assert told[Level.BRIEF] < told[Level.NORMAL] < told[Level.DETAILED] == set(EVENTS.values())
    assert told[Level.DETAILED] - told[Level.NORMAL] == set(DETAILS)
    assert not any(issubclass(kind, EpisodeEvent) for kind in told[Level.BRIEF])


def test_an_anomaly_asks_for_details_of_the_next_rounds_and_then_it_is_as_before():
    assert levels(after_anomalies(escalate_rounds=2), [4]) == [Level.NORMAL]
    escalation = after_anomalies(4, escalate_rounds=2)
    assert levels(escalation, range(5, 8)) == [Level.DETAILED, Level.DETAILED, Level.NORMAL]
    assert escalation.level(5, 0)[1] == "kl_spike in round 5"
    again = after_anomalies(4, 6, escalate_rounds=2)
    assert levels(again, range(7, 10)) == [Level.DETAILED, Level.DETAILED, Level.NORMAL]


def test_without_an_anomaly_the_level_is_the_one_that_was_asked_for():
    for level in Level:
        assert levels(after_anomalies(level=level), range(3)) == [level] * 3


def test_who_wants_nothing_or_no_details_gets_none_after_an_anomaly():
    assert levels(after_anomalies(0, level=Level.OFF), [1]) == [Level.OFF]
    assert levels(after_anomalies(0, escalate_rounds=0), [1]) == [Level.NORMAL]


def test_details_after_anomalies_end_with_their_budget():
    escalation = after_anomalies(escalate_megabytes=2.5 * len(line_of(LOOK)) / MEGABYTE)
    for number, wanted in enumerate([Level.DETAILED] * 3 + [Level.NORMAL] * 2):
        escalation.see(ANOMALY, number)
        level, reason = escalation.level(number + 1, 0)
        assert level is wanted
        escalation.weigh(LOOK)
    assert reason.startswith("details after anomalies have their")


def test_what_is_told_anyway_does_not_count_as_detail():
    escalation = after_anomalies(0, escalate_megabytes=1e-6)
    escalation.weigh(Record(0.0, 1, None, ANOMALY))
    assert levels(escalation, [1]) == [Level.DETAILED]


def test_a_log_that_has_its_size_is_brief_whatever_happens():
    for asked in (Level.BRIEF, Level.NORMAL, Level.DETAILED):
        escalation = after_anomalies(0, level=asked, megabytes=2.0)
        assert levels(escalation, [1], 2 * MEGABYTE - 1) == [Level.DETAILED]
        assert escalation.level(1, 2 * MEGABYTE) == (Level.BRIEF, "events.jsonl has its 2 MB")


def test_settings_out_of_range_are_refused():
    for name, value in {"escalate_rounds": -1, "megabytes": -0.5, "escalate_megabytes": 1e9}.items():
        with pytest.raises(InvalidTelemetry, match=rf"telemetry.{name} = {value}; give a value from 0"):
            TelemetryConfig(**{name: value})
