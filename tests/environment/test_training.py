"""How hosts train and are evaluated."""

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
import torch
from torch import nn

from esper.contracts import WAIT, Action, Op, Stage, Style
from esper.environment import (
    Compute,
    Episode,
    GrowEnv,
    SplitJudge,
    Trainer,
    UnusableDevice,
    UnusablePrecision,
    World,
    evaluate,
    training,
)
from esper.environment.evaluation import ALL_SUBSETS_UP_TO, coalitions_of
from esper.environment.training import rate_at
from tests.environment.worlds import CLUSTERED, CLUSTERS, LOOSE, POINTWISE, SMALL, grower, play


def test_each_owner_is_clipped_by_its_own_norm():
    episode = Episode(replace(POINTWISE, max_gradient_norm=0.1), SMALL, 0, World())
    episode.body.execute(Action(Op.GERMINATE, "block1", blueprint="conv_light"))
    for parameter in episode.body.parameters():
        parameter.grad = torch.full_like(parameter, 5.0)
    for parameter in episode.body.slot("block1").seed_parameters:
        parameter.grad = torch.full_like(parameter, math.nan)
    episode.trainer._clip()
    host = torch.cat([parameter.grad.flatten() for parameter in episode.body.host_weights()])
    assert host.norm() == pytest.approx(0.1, rel=1e-3), "a NaN seed does not still the host"


def test_compile_failure_is_said_aloud_and_training_goes_on(no_compiler):
    """R4-M22: there is no C++ compiler, so the real one fails; it is reported once, and eager is used."""
    episode = Episode(CLUSTERS, CLUSTERED, 0, World(compute=Compute(compile=True)))
    with pytest.warns(UserWarning, match=r"(?s)torch\.compile failed, the run goes on without it: .*C\+\+ compiler"):
        compiled = episode.step(WAIT)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        episode.step(WAIT)
    assert compiled.evaluation == Episode(CLUSTERS, CLUSTERED, 0, World()).step(WAIT).evaluation


def test_compilation_takes_shapes_as_they_come(monkeypatch):
    """R4-M22: the options are explicit. A last batch of another size compiles nothing anew."""
    graphs = []

    def counted(graph: torch.fx.GraphModule, _: object) -> Callable[..., object]:
        graphs.append(graph)
        return graph.forward

    torch.compiler.reset()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=counted))
    uneven = replace(CLUSTERS, batch_size=24)
    compiled = Episode(uneven, CLUSTERED, 0, World(compute=Compute(compile=True))).step(WAIT)
    torch.compiler.reset()
    assert len(graphs) == 1
    assert compiled.evaluation == Episode(uneven, CLUSTERED, 0, World()).step(WAIT).evaluation


def test_lower_precision_trains_close_to_full():
    full, lower = (
        Episode(CLUSTERS, CLUSTERED, 0, World(compute=Compute(precision=name))) for name in ("float32", "bfloat16")
    )
    losses = [[episode.step(WAIT).evaluation.loss for _ in range(3)] for episode in (full, lower)]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)


@pytest.mark.parametrize("style", Style, ids=lambda style: style.name)
def test_a_seed_germinates_trains_is_held_and_fossilised_in_lower_precision(style):
    """Mixed precision in the live environment: passes are in bfloat16, weights are not."""
    env = GrowEnv(CLUSTERS, world=replace(LOOSE, compute=Compute(precision="bfloat16")))
    records = play(env, grower(("layer0", "mlp_small"), ("layer1", "mlp_small"), style=style), seed=0)
    seen = {slot.stage for record in records for slot in record["snapshot"].slots if slot.slot == "layer0"}
    assert seen == {Stage.GERMINATED, Stage.TRAINING, Stage.HOLDING, Stage.FOSSILIZED}
    assert records[-1]["panic"] is None
    assert records[-1]["quality"] > 0.9
    assert {parameter.dtype for parameter in env.episode.body.parameters()} == {torch.float32}


def test_a_precision_that_is_unknown_or_not_the_devices_is_refused():
    with pytest.raises(UnusablePrecision, match="precision is 'float16'; give one of float32, bfloat16"):
        Compute(precision="float16")
    with pytest.raises(UnusablePrecision, match="device 'meta' does not compute in bfloat16; give precision 'float32'"):
        Compute(device="meta", precision="bfloat16")
    assert Compute(device="meta").precision == "float32"


def test_data_that_is_in_place_is_not_copied():
    assert SMALL.to(torch.device("cpu")) is SMALL
    assert SMALL.to(torch.device("meta")).train.x.device.type == "meta"


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(UnusableDevice, match="device 'cuda:99' cannot be used here"):
        Compute(device="cuda:99")
    with pytest.raises(UnusableDevice, match="try device 'cpu'"):
        Compute(device="abacus")


def test_a_host_that_draws_noise_is_reproducible():
    noisy = replace(
        POINTWISE,
        build_host=lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Dropout(0.5), nn.Linear(16, 10)),
        slots=("1",),
    )
    curves = []
    for disturbance in (1, 2):
        torch.manual_seed(disturbance)
        episode = Episode(noisy, SMALL, 0, World())
        curves.append([episode.step(WAIT).evaluation for _ in range(3)])
    assert curves[0] == curves[1]


def test_an_epoch_sees_every_sample_once():
    episode = Episode(POINTWISE, SMALL, 0, World())
    rows = torch.cat([x.flatten(1) for x, _ in episode.trainer._batches(SMALL.train)])
    assert torch.equal(rows.sort(dim=0).values, SMALL.train.x.flatten(1).sort(dim=0).values)


def test_coalitions_are_all_subsets_of_few_and_leave_one_out_of_many():
    few = [f"s{i}" for i in range(ALL_SUBSETS_UP_TO)]
    assert len(set(coalitions_of(few))) == 2 ** len(few)
    many = [*few, "s9"]
    assert set(coalitions_of(many)) == {
        frozenset(many),
        *(frozenset(many) - {slot} for slot in many),
        frozenset(),
    }
    assert len(coalitions_of(many, exact=True)) == 2 ** len(many)
    assert coalitions_of(few)[0] == frozenset(few)
    assert coalitions_of([]) == [frozenset()]


def test_evaluation_in_pieces_is_evaluation_at_once(monkeypatch):
    body = Episode(POINTWISE, SMALL, 0, World()).body
    judge = SplitJudge(SMALL.evaluation, POINTWISE.classes)
    whole = evaluate(body, judge)
    monkeypatch.setattr("esper.environment.evaluation.ROWS_AT_ONCE", 7)
    pieces = evaluate(body, judge)
    assert pieces.quality == whole.quality
    assert pieces.loss == pytest.approx(whole.loss, rel=1e-6)


# The learning rate


@pytest.mark.parametrize("share", [0.05, 0.4, 1.0])
@pytest.mark.parametrize("horizon", [1, 6, 25, 1_000])
def test_the_rate_is_1_then_falls_strictly_through_the_cooldown_and_never_reaches_0(horizon, share):
    task = replace(POINTWISE, horizon=horizon, cooldown_share=share)
    rates = [rate_at(epoch, task) for epoch in range(horizon + 1)]
    start = (1.0 - share) * horizon
    for epoch, (rate, following) in enumerate(pairwise(rates)):
        if epoch <= start - 1e-9:
            assert rate == 1.0
        if epoch > start + 1e-9:
            assert following < rate < 1.0
    assert rates[0] == 1.0
    assert rates[-1] == pytest.approx(POINTWISE.final_rate)
    assert min(rates) > 0.0


def test_the_rate_falls_evenly():
    task = replace(POINTWISE, horizon=10, cooldown_share=0.4)
    rates = [rate_at(epoch, task) for epoch in range(11)]
    assert rates == pytest.approx([1.0] * 7 + [0.7625, 0.525, 0.2875, 0.05])


def test_without_a_cooldown_the_rate_stays_1():
    task = replace(POINTWISE, horizon=25, cooldown_share=0.0)
    assert [rate_at(epoch, task) for epoch in range(26)] == [1.0] * 26


def test_every_group_has_the_rate_of_its_epoch_also_that_of_a_seed_born_in_the_cooldown():
    task = replace(POINTWISE, horizon=8, cooldown_share=0.5, learning_rate=0.02, seed_learning_rate=0.005)
    episode = Episode(task, SMALL, 0, World())
    births = {1: ("block1", "conv_light"), 6: ("block2", "norm")}
    numbers = []
    for epoch in range(task.horizon):
        slot, seed = births.get(epoch, (None, None))
        episode.step(WAIT if slot is None else Action(Op.GERMINATE, slot, blueprint=seed))
        host, *seeds = [group["lr"] for group in episode.trainer.optimizer.param_groups]
        assert host == pytest.approx(0.02 * rate_at(epoch, task))
        assert seeds == pytest.approx([0.005 * rate_at(epoch, task)] * len(seeds))
        numbers.append(sum(len(group["params"]) for group in episode.trainer.optimizer.param_groups[1:]))
    first, both = numbers[1], numbers[-1]
    assert numbers == [0, *[first] * 5, both, both]
    assert both > first > 0


def test_the_cooldown_is_what_the_weights_are_moved_by():
    """Where the rates have not fallen yet, nothing differs; afterwards everything does."""
    curves = []
    for share in (0.5, 0.0):
        episode = Episode(replace(POINTWISE, horizon=8, cooldown_share=share), SMALL, 0, World())
        curves.append([episode.step(WAIT).evaluation.loss for _ in range(8)])
    assert curves[0][:5] == curves[1][:5]
    assert all(one != other for one, other in zip(curves[0][5:], curves[1][5:], strict=True))


def test_the_trainer_is_the_only_one_with_an_optimiser():
    episode = Episode(POINTWISE, SMALL, 0, World())
    assert isinstance(episode.trainer, Trainer)
    members = {id(p) for group in episode.trainer.optimizer.param_groups for p in group["params"]}
    assert members == {id(p) for p in episode.body.parameters()}
    assert training.Compute().device == "cpu"
