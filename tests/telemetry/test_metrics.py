"""Every curve has one name."""

import math
import re
from dataclasses import dataclass, fields

from hypothesis import given

from esper.contracts import Event
from esper.telemetry import AnomalyRaised, EvaluationMade, UpdateMade, figures_of
from esper.telemetry.metrics import METRICS, metrics_of
from tests.telemetry.cases import HEADS, ONE_OF_EACH, STARTED, UPDATE, finished, round_finished

EVALUATION = EvaluationMade(
    total=0.5, low=0.25, high=math.inf, quality=0.9, gain=None, growth=1.5, by_task={"digits": 1, "my/own.toml": 0.0},
    best=True,
)  # fmt: skip


@dataclass(frozen=True)
class Inner:
    total: float | None
    name: str


@dataclass(frozen=True)
class Wider(Event):
    """An event with a field of every kind."""

    number: float
    count: int
    fact: bool
    maybe: int | None
    text: str | None
    several: tuple[float, ...]
    weights: dict[str, float]
    by_slot: dict[str, Inner]
    words: dict[str, str]


def test_a_round_gives_its_means_and_the_shares_of_its_ops():
    assert figures_of(round_finished(0.5)) == {
        "round/return": 0.5,
        "round/quality": 0.9,
        "round/gain": 0.1,
        "round/growth": 1.5,
        "round/forced_share": 0.25,
        "round/waiting_share": 0.5,
        "round/op/WAIT/share": 0.5,
        "round/op/PRUNE/share": 0.5,
        "round/rollbacks": 0.0,
        "round/seconds": 2.0,
        "round/episodes_per_second": 1.0,
    }


def test_an_update_gives_every_figure_of_every_head():
    figures = figures_of(UPDATE)
    assert (figures["update/kl"], figures["update/stopped_early"]) == (0.01, 0.0)
    of_head = {name.rpartition("/")[2] for name in figures if name.startswith("update/head/op/")}
    assert of_head == {"steps", "entropy", "gradient_norm", "lowest_ratio", "highest_ratio", "kl"}
    assert len(figures) == len(fields(UpdateMade)) - 1 + len(of_head) * len(HEADS)


def test_what_was_not_measured_is_left_out_and_what_is_not_finite_is_kept():
    figures = figures_of(EVALUATION)
    assert "evaluation/gain" not in figures
    assert (figures["evaluation/high"], figures["evaluation/best"]) == (math.inf, 1.0)


def test_a_task_that_is_a_file_goes_by_its_stem():
    figures = figures_of(EVALUATION)
    assert (figures["evaluation/task/digits/return"], figures["evaluation/task/own/return"]) == (1.0, 0.0)


def test_an_anomaly_is_a_one_of_its_kind_and_other_events_give_nothing():
    assert figures_of(AnomalyRaised("kl_spike", "high", {"kl": 0.4})) == {"anomaly/kl_spike": 1.0}
    assert figures_of(STARTED) == figures_of(finished()) == {}


@given(ONE_OF_EACH)
def test_whatever_an_event_says_becomes_floats_under_known_names(events):
    for event in events:
        patterns = "|".join(re.sub("<.*>", r"[\\w.-]+", metric.name) for metric in METRICS.get(type(event), ()))
        for name, figure in figures_of(event).items():
            assert type(figure) is float
            assert re.fullmatch(patterns, name), name


def test_new_fields_of_any_kind_are_metrics_without_another_line():
    event = Wider(
        0.5, 2, True, None, "x", (1.0,), {"a b": 3.0}, {"stem": Inner(4.0, "x"), "head": Inner(None, "y")}, {}
    )
    assert [pair for metric in metrics_of(Wider, "wider") for pair in metric.read(event)] == [
        ("wider/number", 0.5),
        ("wider/count", 2),
        ("wider/fact", True),
        ("wider/maybe", None),
        ("wider/weight/a_b", 3.0),
        ("wider/slot/stem/return", 4.0),
        ("wider/slot/head/return", None),
    ]
