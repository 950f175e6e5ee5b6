"""Numbers for any snapshot: bounded, finite, and honest about what was not measured."""

import inspect
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor, nn

import esper
from esper.contracts import (
    WAIT,
    Action,
    AlphaMode,
    Gain,
    HostSnapshot,
    Op,
    SlotSnapshot,
    Snapshot,
    Stage,
    Style,
    Tempo,
    Topology,
)
from esper.environment import BLUEPRINT_FEATURES, HOST_FEATURES, SLOT_FEATURES, GrowEnv, Observer, observe
from esper.environment.observation import Array, Bits
from esper.growth import Thresholds, blueprints_for, find_blueprint
from esper.rewards import RewardConfig
from tests.environment.worlds import CLUSTERS, POINTWISE, grower, play

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
    previous_loss=wild,
    previous_quality=wild,
    depth=st.none() | st.integers(0, 10**6),
    outcomes=st.none() | st.integers(0, 10**6),
    rows=st.none() | st.integers(0, 10**9),
    rent=wild.filter(lambda rent: rent is None or not rent < 0.0),
)
gains = st.builds(Gain, st.sampled_from(["norm", "conv_light"]), st.floats(0.0), st.floats(0.0), wild, wild)
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
    gains=st.lists(gains, max_size=2).map(tuple),
    resolution=st.integers(1, 10**7),
    reach=st.none() | st.integers(1, 10**7),
    reach_share=wild,
)


HOST = HostSnapshot(3, 25, 230, 894, 2.0, 1.9, 0.3, 0.5, 2.1, 0.25, depth=4, outcomes=10, rows=900, rent=0.08)
SLOT = SlotSnapshot(
    "stem", Topology.CNN, 8, 0, ("norm",), Stage.HOLDING, 2, "norm", Style.GATED, Tempo.FAST, 0.7, 0.7,
    parameters=16, gradient_norm=0.1, contribution=0.05, resolution=64, reach=9, reach_share=0.14,
)  # fmt: skip
EMPTY = SlotSnapshot("stem", Topology.CNN, 8, 0, ("norm", "conv_light"), gains=(Gain("norm", 0.1, 0.2, 0.05, 3.0),))


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
    named = tuple(replace(slot, slot=f"slot{index}") for index, slot in enumerate(some))
    arrays = Observer(named, Thresholds()).observe(Snapshot(host, named))
    for name, features in (("host", HOST_FEATURES), ("slots", SLOT_FEATURES), ("blueprints", BLUEPRINT_FEATURES)):
        assert np.isfinite(arrays[name]).all()
        assert (arrays[name] >= np.float32([feature.low for feature in features])).all()
        assert (arrays[name] <= np.float32([feature.high for feature in features])).all()
        assert arrays[f"{name}_valid"].shape == arrays[name].shape
        assert set(np.unique(arrays[f"{name}_valid"])) <= {0, 1}
        assert not arrays[name][arrays[f"{name}_valid"] == 0].any()


MEASURED = {
    "host": {
        "train_loss": "train_loss",
        "evaluation_loss": "evaluation_loss",
        "quality": "evaluation_quality",
        "quality_slope": "previous_quality",
        "loss_slope": "previous_loss",
        "loss_gap": "train_loss",
        "rent": "rent",
        "rows": "rows",
    },
    "slots": {
        "gradient_norm": "gradient_norm",
        "contribution": "contribution",
        "tempo": "tempo",
        "reach": "reach",
        "reach_share": "reach_share",
    },
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


def seen_in(features, arrays, name, *place) -> tuple[float, int]:
    """A number and its bit."""
    array = {HOST_FEATURES: "host", SLOT_FEATURES: "slots", BLUEPRINT_FEATURES: "blueprints"}[features]
    column = [feature.name for feature in features].index(name)
    return float(arrays[array][*place, column]), int(arrays[f"{array}_valid"][*place, column])


def test_gains_are_shown_where_they_were_measured_and_nowhere_else():
    arrays = Observer([EMPTY], Thresholds()).observe(Snapshot(HOST, (EMPTY,)))
    for name, value in (("norm", -1.0), ("push", math.log10(0.2)), ("agreed", math.log10(0.05))):
        assert seen_in(BLUEPRINT_FEATURES, arrays, f"gain_{name}", 0, 0) == (pytest.approx(value), 1)
        assert seen_in(BLUEPRINT_FEATURES, arrays, f"gain_{name}", 0, 1) == (0.0, 0)
    assert seen_in(BLUEPRINT_FEATURES, arrays, "gain_steadiness", 0, 0) == (pytest.approx(math.log(4.0)), 1)
    assert seen_in(BLUEPRINT_FEATURES, arrays, "cost", 0, 1)[1] == 1, "what is known is always shown"


def test_a_gain_of_nothing_is_as_low_as_can_be_and_measured():
    still = replace(EMPTY, gains=(Gain("norm", 0.0, 0.0, 0.0, 0.0),))
    arrays = Observer([still], Thresholds()).observe(Snapshot(HOST, (still,)))
    assert seen_in(BLUEPRINT_FEATURES, arrays, "gain_push", 0, 0) == (-6.0, 1)


def test_an_observer_forgets_gains_that_no_longer_hold():
    observer = Observer([EMPTY], Thresholds())
    first = observer.observe(Snapshot(HOST, (EMPTY,)))
    later = observer.observe(Snapshot(HOST, (replace(EMPTY, gains=()),)))
    again = observer.observe(Snapshot(HOST, (EMPTY,)))
    assert seen_in(BLUEPRINT_FEATURES, later, "gain_push", 0, 0) == (0.0, 0)
    assert all(np.array_equal(first[name], array) for name, array in again.items())
    first["blueprints"][:] = 9.0
    assert not (observer.observe(Snapshot(HOST, (EMPTY,)))["blueprints"] == 9.0).any(), "arrays are the caller's"


def test_the_world_shows_what_tells_tasks_apart():
    env = GrowEnv(POINTWISE, reward_config=RewardConfig(outcomes=10, rent_weight=0.1))
    first, _ = env.reset(seed=0)
    second, *_ = env.step(env.codec.encode(WAIT))
    expected = {
        "horizon": 12,
        "parameters": env.episode.body.host_parameters,
        "depth": 4,
        "mean_channels": 20 / 3,
        "most_channels": 8,
        "outcomes": 10,
        "rows": 128,
        "rent": 0.1,
    }
    for name, value in expected.items():
        assert seen_in(HOST_FEATURES, first, name) == (pytest.approx(math.log10(value)), 1), name
    for name in ("quality_slope", "loss_slope", "loss_gap"):
        assert seen_in(HOST_FEATURES, first, name) == (0.0, 0), name
        assert seen_in(HOST_FEATURES, second, name)[1] == 1, name
    for slot, channels in enumerate((4, 8, 8)):
        assert seen_in(SLOT_FEATURES, first, "channels", slot) == (pytest.approx(math.log10(channels)), 1)
        assert seen_in(SLOT_FEATURES, first, "resolution", slot) == (pytest.approx(math.log10(64)), 1)
        assert seen_in(SLOT_FEATURES, first, "reach", slot) == (0.0, 1)
        assert seen_in(SLOT_FEATURES, first, "reach_share", slot) == (pytest.approx(1 / 64), 1)


def test_gains_are_there_after_the_first_epoch_and_gone_with_a_seed():
    env = GrowEnv(CLUSTERS)
    first, _ = env.reset(seed=0)
    assert not first["blueprints_valid"][..., -4:].any()
    waited, *_ = env.step(env.codec.encode(WAIT))
    assert waited["blueprints_valid"].all()
    planted, *_ = env.step(env.codec.encode(Action(Op.GERMINATE, "layer0", blueprint="mlp")))
    assert not planted["blueprints_valid"][0, :, -4:].any()
    assert planted["blueprints_valid"][1:].all()
    assert np.array_equal(planted["blueprints"][1:], waited["blueprints"][1:]), (
        "between measurements the last one stays"
    )


class Mixed(nn.Module):
    """Images first, then vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.image, self.vector, self.head = nn.Conv2d(1, 6, 3), nn.Linear(6, 6), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.vector(self.image(x).mean(dim=(2, 3))))


def test_a_blueprint_of_several_topologies_is_offered_once_and_stands_for_that_of_the_slot():
    body = esper.graft(Mixed(), at=["image", "vector"], example=torch.zeros(2, 1, 8, 8))
    observer = Observer(body.snapshots(), Thresholds())
    offers = observer.codec.blueprints
    assert len(set(offers)) == len(offers)
    names = {topology: {each.name for each in blueprints_for(topology)} for topology in (Topology.CNN, Topology.DENSE)}
    assert set(offers) == names[Topology.CNN] | names[Topology.DENSE]
    arrays = observer.observe(Snapshot(HOST, body.snapshots()))
    for slot, topology in enumerate((Topology.CNN, Topology.DENSE)):
        fits = {name for name, bit in zip(offers, arrays["mask_slot_blueprint"][slot], strict=True) if bit}
        assert fits == names[topology]
    shared = offers.index("norm")
    for slot, topology in enumerate((Topology.CNN, Topology.DENSE)):
        assert seen_in(BLUEPRINT_FEATURES, arrays, f"topology_{topology}", slot, shared) == (1.0, 1)
        assert seen_in(BLUEPRINT_FEATURES, arrays, "fits", slot, shared) == (1.0, 1)
        action = Action(Op.GERMINATE, observer.codec.slots[slot], blueprint="norm")
        assert observer.codec.decode(observer.codec.encode(action)) == action
        assert body.execute(action)
        assert type(body.slots[slot].seed.delta) is type(find_blueprint("norm", topology).build(6))
    stranger = offers.index("conv_light")
    assert seen_in(BLUEPRINT_FEATURES, arrays, "fits", 1, stranger) == (0.0, 1)
    assert seen_in(BLUEPRINT_FEATURES, arrays, "topology_cnn", 1, stranger) == (1.0, 1)
