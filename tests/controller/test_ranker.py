"""Plants once what it predicts to be best, if it pays."""

import json
from dataclasses import replace

import numpy as np
import pytest
import safetensors.torch
import torch

from esper.contracts import WAIT, Op
from esper.controller import (
    GROUPS,
    INPUTS,
    BadRanker,
    ConstantByRent,
    GainNetworks,
    MissingFeature,
    Ranker,
    inputs_of,
    load_gain_networks,
    measured,
    networks_to_bytes,
    shipped_file,
)
from esper.environment import FIELDS, GrowEnv
from tests.controller.playing import play
from tests.environment.worlds import POINTWISE


def predicting(feature: str, factor: float) -> GainNetworks:
    """Networks whose gain rises with one number."""
    networks = GainNetworks((feature,), members=1, hidden=1)
    for weight in networks.weights[:-1]:
        weight.data.fill_(1.0)
    networks.weights[-1].data.fill_(factor)
    networks.biases[-1].data.fill_(-0.1 * factor)
    return networks.requires_grad_(False)


def germinated(turns):
    return [(epoch, turn.executed) for epoch, turn in enumerate(turns) if turn.executed.op is Op.GERMINATE]


def test_it_looks_on_for_an_epoch_and_plants_what_it_predicts_to_gain_most():
    env = GrowEnv(POINTWISE)
    turns = play(env, Ranker(predicting("blueprints.gain_push", 9.0), FIELDS), seed=0)
    ((epoch, action),) = germinated(turns)
    assert epoch == 1
    env.reset(seed=0)
    observation, *_ = env.step(turns[0].choices)
    pushes = np.where(
        observation["mask_slot_blueprint"] == 1,
        measured(observation)["blueprints"][..., FIELDS.blueprints.index("gain_push")],
        -np.inf,
    )
    slot, blueprint = np.unravel_index(pushes.argmax(), pushes.shape)
    assert (action.slot, action.blueprint) == (env.codec.slots[slot], env.codec.blueprints[blueprint])
    assert turns[-1].executed.op is Op.WAIT


def test_it_decides_at_once_where_gains_are_known_already():
    """As in the loop of somebody who lets it look on from the second epoch."""
    env = GrowEnv(POINTWISE)
    late, ranker = env.reset(seed=0)[0], Ranker(predicting("blueprints.gain_push", 9.0), FIELDS)
    assert ranker.decide(late, env.codec, 0) is None
    late, *_ = env.step(env.codec.encode(WAIT))
    assert ranker.decide(late, env.codec, 0)


def test_it_plants_nothing_if_nothing_pays():
    assert germinated(play(GrowEnv(POINTWISE), Ranker(predicting("host.horizon", -1.0), FIELDS), seed=0)) == []
    dear = GrowEnv(replace(POINTWISE, rent=1.0))
    assert germinated(play(dear, Ranker(predicting("host.horizon", 1e-3), FIELDS), seed=0)) == []


@pytest.mark.parametrize(
    ("pays", "slope", "slot"),
    [(0.1, 0.1, "block0"), (0.1, 2.0, "block2"), (-0.001, 0.1, "block2")],
    ids=["hardly better elsewhere", "clearly better elsewhere", "the usual seed does not pay"],
)
def test_another_seed_than_the_usual_one_needs_a_lead(pays, slope, slot):
    """Predictions rise with the slot's position, and by nothing else; the usual seed is the constant's."""
    networks = predicting("slots.position", slope)
    networks.biases[-1].data.fill_(10 * pays)
    ((_, action),) = germinated(play(GrowEnv(replace(POINTWISE, rent=0.0)), Ranker(networks, FIELDS), seed=0))
    assert action.slot == slot
    assert (action.blueprint == "conv_heavy") or slot != "block0"


@pytest.mark.parametrize(("rent", "blueprint"), [(0.01, "conv_heavy"), (0.08, "depthwise"), (0.3, "depthwise")])
def test_the_constant_by_rent_plants_what_pays_at_the_rent(rent, blueprint):
    ((epoch, action),) = germinated(play(GrowEnv(replace(POINTWISE, rent=rent)), ConstantByRent(FIELDS), seed=0))
    assert (epoch, action.slot, action.blueprint) == (0, "block0", blueprint)


def test_inputs_are_the_named_numbers_of_host_slot_and_blueprint():
    observation, _ = GrowEnv(POINTWISE).reset(seed=0)
    arrays = measured(observation)
    names = ("slots.channels", "host.horizon", "blueprints.cost", "host.train_loss")
    found = inputs_of(arrays, names, FIELDS)
    assert found.shape == (*arrays["blueprints"].shape[:2], 4)
    assert np.array_equal(found[1, :, 0], np.full(found.shape[1], arrays["slots"][1, FIELDS.slots.index("channels")]))
    assert np.all(found[..., 1] == arrays["host"][FIELDS.host.index("horizon")])
    assert np.array_equal(found[..., 2], arrays["blueprints"][..., FIELDS.blueprints.index("cost")])
    assert np.isnan(found[..., 3]).all(), "nothing was measured before the first epoch"
    with pytest.raises(MissingFeature, match="no number 'horizn'; did you mean 'horizon'"):
        inputs_of(arrays, ["host.horizn"], FIELDS)


def test_what_was_not_measured_counts_as_the_mean_of_what_was():
    networks = predicting("host.quality", 1.0)
    networks.centre.fill_(0.7)
    assert networks.predict(np.array([[np.nan]])) == networks.predict(np.array([[0.7]]))


def test_networks_are_the_same_after_a_file(tmp_path):
    networks = predicting("blueprints.cost", 0.5)
    (tmp_path / "ranker.safetensors").write_bytes(networks_to_bytes(networks))
    again = load_gain_networks(tmp_path / "ranker.safetensors")
    assert again.names == networks.names
    assert networks_to_bytes(again) == networks_to_bytes(networks)
    assert all(torch.equal(one, again.state_dict()[name]) for name, one in networks.state_dict().items())


def changed(tensors=None, **said):
    given = {**predicting("blueprints.cost", 0.5).state_dict(), **(tensors or {})}
    meta = {"format": 1, "inputs": ["blueprints.cost"], **said}
    return lambda: safetensors.torch.save(given, {"ranker": json.dumps(meta)})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda: b"no file of tensors", "holds no ranker"),
        (changed(format=9), "it is not of format 1"),
        (changed(inputs=[]), "it is not of format 1"),
        (changed(inputs=["secret.number"]), "other arrays than an observation has"),
        (changed(tensors={"scale": torch.zeros(1)}), "weights that are no numbers"),
        (changed(tensors={"centre": torch.tensor([torch.nan])}), "weights that are no numbers"),
        (changed(tensors={"weights.0": torch.zeros(1, 3, 1)}), "holds no ranker"),
        (changed(tensors={"more": torch.zeros(1)}), "holds no ranker"),
    ],
)
def test_a_file_that_is_no_ranker_is_refused(content, message, tmp_path):
    path = tmp_path / "ranker.safetensors"
    path.write_bytes(content())
    with pytest.raises(BadRanker, match=message):
        load_gain_networks(path)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(BadRanker, match="holds no ranker"):
        load_gain_networks(tmp_path / "nowhere")


def test_the_shipped_ranker_reads_what_is_observed():
    networks = load_gain_networks(shipped_file("ranker"))
    assert networks.names == INPUTS
    features = {f"{array}.{name}" for array, names in vars(FIELDS).items() for name in names}
    assert set(INPUTS) <= features
    assert "host.rent" not in INPUTS
    assert sum(map(len, GROUPS.values())) == len(INPUTS)
