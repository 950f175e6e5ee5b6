"""Numbers for any snapshot: bounded, finite, and honest about what was not measured."""

import inspect
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from esper.contracts import AlphaMode, HostSnapshot, SlotSnapshot, Snapshot, Stage, Style, Tempo, Topology
from esper.environment import BLUEPRINT_FEATURES, HOST_FEATURES, SLOT_FEATURES, GrowEnv, observe
from esper.environment.observation import Array, Bits, describe_offers, offers_of
from tests.environment.worlds import CLUSTERS, grower, play

wild = st.none() | st.floats()
hosts = st.builds(
    HostSnapshot,
    epoch=st.integers(0, 10**6),
    horizon=st.integers(1, 10**6),
    parameters=st.integers(0, 10**12),
    total_parameters=st.integers(0, 10**12),
    train_loss=wild,
    evaluation_loss=wild,
    evaluation_quality=wild,
    gradient_norm=wild,
)
slots = st.builds(
    SlotSnapshot,
    slot=st.just("stem"),
    topology=st.just(Topology.CNN),
    channels=st.integers(1, 512),
    position=st.integers(0, 9),
    blueprints=st.just(("norm", "conv_light")),
    stage=st.sampled_from(Stage),
    age=st.integers(0, 10**6),
    blueprint=st.none() | st.just("conv_light"),
    style=st.none() | st.sampled_from(Style),
    tempo=st.none() | st.sampled_from(Tempo),
    alpha=st.floats().filter(lambda alpha: alpha != 0.0),
    alpha_target=st.floats(),
    alpha_mode=st.sampled_from(AlphaMode),
    parameters=st.integers(0, 10**9),
    gradient_norm=wild,
    contribution=wild,
    anomalies=st.sampled_from([(), ("spike",)]),
)


HOST = HostSnapshot(3, 25, 230, 894, 2.0, 1.9, 0.3, 0.5)
SLOT = SlotSnapshot(
    "stem", Topology.CNN, 8, 0, ("norm",), Stage.HOLDING, 2, "norm", Style.GATED, Tempo.FAST, 0.7, 0.7,
    parameters=16, gradient_norm=0.1, contribution=0.05,
)  # fmt: skip


def test_features_are_a_function_of_one_typed_snapshot():
    """R1-L1: of nothing else, so a copy of the snapshot gives the live observation when the episode is long over."""
    assert inspect.get_annotations(observe) == {"snapshot": Snapshot, "return": dict[str, Array | Bits]}
    records = play(GrowEnv(CLUSTERS), grower(("layer0", "mlp_small"), ("layer1", "mlp_small")), seed=0)
    for record in records:
        again = observe(pickle.loads(pickle.dumps(record["snapshot"])))
        assert all(np.array_equal(record["observation"][name], array) for name, array in again.items())
    assert {slot.stage for record in records for slot in record["snapshot"].slots} >= {Stage.HOLDING, Stage.TRAINING}


@given(hosts, st.lists(slots, min_size=1, max_size=4))
@example(replace(HOST, total_parameters=0), [SLOT])
@example(replace(HOST, parameters=0), [replace(SLOT, parameters=10**300)])
def test_every_number_is_finite_and_within_its_bounds(host, some):
    snapshot = Snapshot(host, tuple(some))
    arrays = observe(snapshot)
    arrays["blueprints"] = describe_offers(snapshot, offers_of(snapshot.slots))
    for name, features in (("host", HOST_FEATURES), ("slots", SLOT_FEATURES), ("blueprints", BLUEPRINT_FEATURES)):
        assert np.isfinite(arrays[name]).all()
        assert (arrays[name] >= np.float32([feature.low for feature in features])).all()
        assert (arrays[name] <= np.float32([feature.high for feature in features])).all()
        assert set(np.unique(arrays.get(f"{name}_valid", 1))) <= {0, 1}


MEASURED = {
    "host": {"train_loss": "train_loss", "evaluation_loss": "evaluation_loss", "quality": "evaluation_quality"},
    "slots": {"gradient_norm": "gradient_norm", "contribution": "contribution", "tempo": "tempo"},
}


@pytest.mark.parametrize(("where", "feature"), [(w, f) for w, fields in MEASURED.items() for f in fields])
@pytest.mark.parametrize("missing", [None, math.nan])
def test_not_measured_is_a_bit_and_never_a_zero(where, feature, missing):
    """R4-M18."""
    field = MEASURED[where][feature]
    if field == "tempo" and missing is not None:
        missing = None
    features = HOST_FEATURES if where == "host" else SLOT_FEATURES
    index = [each.name for each in features].index(feature)
    with_it = observe(Snapshot(HOST, (SLOT,)))
    host = replace(HOST, **{field: missing}) if where == "host" else HOST
    slot = replace(SLOT, **{field: missing}) if where == "slots" else SLOT
    without = observe(Snapshot(host, (slot,)))
    pick = (lambda arrays, key: arrays[key][index]) if where == "host" else (lambda arrays, key: arrays[key][0, index])
    assert pick(with_it, f"{where}_valid") == 1
    assert pick(with_it, where) != 0
    assert pick(without, f"{where}_valid") == 0
    assert pick(without, where) == 0


def test_an_infinite_measurement_is_large_not_missing():
    arrays = observe(Snapshot(replace(HOST, evaluation_loss=math.inf), (SLOT,)))
    index = [feature.name for feature in HOST_FEATURES].index("evaluation_loss")
    assert arrays["host_valid"][index] == 1
    assert arrays["host"][index] == HOST_FEATURES[index].high


def test_names_are_unique_and_every_feature_says_what_it_means():
    for features in (HOST_FEATURES, SLOT_FEATURES, BLUEPRINT_FEATURES):
        assert len({feature.name for feature in features}) == len(features)
        assert all(feature.meaning and feature.low < feature.high for feature in features)
