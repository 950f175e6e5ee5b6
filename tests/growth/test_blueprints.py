"""Every blueprint under every style: the identity at birth, alive, and able to learn."""

import itertools

import pytest
import torch
from torch import Tensor, nn

import esper
from esper.contracts import Birth, Kind, Style, Topology
from esper.growth import (
    DuplicateBlueprint,
    UnknownBlueprint,
    blueprint,
    blueprints_for,
    count_parameters,
    find_blueprint,
    last_zero,
)
from esper.growth.blending import FeatureGate, Seed
from esper.growth.blueprints import registry
from esper.growth.normalisation import ChannelNorm

ALL = [
    each
    for topology in Topology
    for each in blueprints_for(topology)
    if each.build.__module__.startswith("esper.")  # other tests register seeds that misbehave on purpose
]
BORN_ZERO = [each for each in ALL if each.birth is Birth.ZERO]
"""What is born as a copy needs a host; `test_transformers.py` has them."""
every_blueprint = pytest.mark.parametrize("each", BORN_ZERO, ids=lambda each: f"{each.topology}-{each.name}")
ALPHAS = [0.3, 1.0]


SHAPES = {Topology.CNN: (8, 5, 5), Topology.DENSE: (8,), Topology.TRANSFORMER: (5, 8)}
"""Of one sample's features."""


def seed_of(each, style: Style, channels: int = 8) -> Seed:
    gate = FeatureGate(channels, each.topology) if style is Style.GATED else None
    return Seed(each.build(channels), style.operator, gate)


def features(each, n: int = 6) -> Tensor:
    return torch.randn(n, *SHAPES[each.topology])


def test_the_design_asks_for_these():
    assert [each.name for each in blueprints_for(Topology.CNN)][:7] == [
        "norm", "attention", "depthwise", "bottleneck", "conv_small", "conv_light", "conv_heavy",
    ]  # fmt: skip
    assert [each.name for each in blueprints_for(Topology.DENSE)][:4] == ["norm", "low_rank", "mlp_small", "mlp"]


@every_blueprint
def test_newborn_seed_leaves_features_bit_identical(each):
    h = features(each)
    for style, alpha in itertools.product(Style, ALPHAS):
        assert torch.equal(seed_of(each, style)(h, alpha), h), (style, alpha)


@every_blueprint
def test_newborn_seed_has_a_live_gradient_of_ordinary_size(each):
    """Pitfall P-dead-seeds: dead without a gradient; a norm over exact zeros makes it 1/sqrt(eps) too large."""
    for style in Style:
        seed = seed_of(each, style)
        h = features(each)
        target = torch.randn_like(h)
        (seed(h, 1.0) - target).square().mean().backward()
        norm = torch.stack([p.grad.norm() for p in seed.parameters() if p.grad is not None]).norm()
        assert 1e-4 < norm < 10.0, style


@every_blueprint
@pytest.mark.parametrize("style", Style, ids=lambda style: style.name)
def test_trained_seed_learns_and_every_parameter_takes_part(each, style):
    """A teacher of the same make sets the task, so it can be learned."""
    h = features(each, n=32)
    seed = seed_of(each, style)
    teacher = seed_of(each, style)
    with torch.no_grad():
        for parameter in teacher.parameters():
            parameter.normal_(std=0.5)
        target = teacher(h, 1.0)
    optimizer = torch.optim.Adam(seed.parameters(), lr=0.02)
    losses, born = [], [parameter.detach().clone() for parameter in seed.parameters()]
    for _ in range(40):
        optimizer.zero_grad()
        loss = (seed(h, 1.0) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    assert all(not torch.equal(now, then) for now, then in zip(seed.parameters(), born, strict=True))


def test_parameter_count_is_known_without_building():
    for each, channels in itertools.product(BORN_ZERO, [1, 2, 3, 8, 17, 64]):
        random_state = torch.get_rng_state()
        count = each.parameters(channels)
        assert torch.equal(torch.get_rng_state(), random_state)
        assert count == count_parameters(each.build(channels).parameters()), (each.name, channels)


def test_blueprint_works_at_any_resolution_batch_and_leading_axes():
    images = [(n, 8, *size) for n in (1, 3) for size in [(1, 1), (2, 3), (7, 7), (32, 5)]]
    shapes: dict[Topology, list[tuple[int, ...]]] = {Topology.CNN: list(images)}
    shapes |= {Topology.DENSE: [(3, 8), (3, 5, 8), (1, 2, 2, 8)], Topology.TRANSFORMER: [(3, 1, 8), (1, 7, 8)]}
    for each in BORN_ZERO:
        for shape in shapes[each.topology]:
            seed = seed_of(each, Style.GATED)
            for parameter in seed.parameters():
                nn.init.normal_(parameter)
            output = seed(torch.randn(shape), 0.7)
            assert output.shape == shape, each.name
            assert output.isfinite().all(), each.name


def test_unknown_blueprint_gets_a_hint():
    with pytest.raises(UnknownBlueprint, match="no blueprint 'conv_hevy' for cnn hosts; did you mean 'conv_heavy'"):
        find_blueprint("conv_hevy", Topology.CNN)


def test_a_user_registers_a_transformer_blueprint_and_grows_it(monkeypatch):
    monkeypatch.setitem(registry._REGISTRY, Topology.TRANSFORMER, {})

    @blueprint("adapter", topology="transformer", kind=Kind.MIX_CHANNELS)
    def adapter(channels: int) -> nn.Module:
        return nn.Sequential(nn.Linear(channels, 2), nn.ReLU(), last_zero(nn.Linear(2, channels)))

    with pytest.raises(DuplicateBlueprint, match="'adapter' exists already"):
        blueprint("adapter", topology="transformer", kind=Kind.MIX_CHANNELS)(adapter)
    host = nn.Sequential(nn.Embedding(11, 6), nn.Linear(6, 6))
    body = esper.graft(host, at=["0"], example=torch.zeros(2, 3, dtype=torch.long))
    assert body.snapshots()[0].topology is Topology.TRANSFORMER, "a host in which no token sees another is causal"
    assert body.snapshots()[0].blueprints == ("adapter",)
    assert body.snapshots()[0].channels == 6


def test_blending_operators_are_those_of_the_design():
    h, a = torch.randn(5, 8), 0.7
    for style in Style:
        seed = seed_of(find_blueprint("mlp", Topology.DENSE), style)
        for parameter in seed.parameters():
            nn.init.normal_(parameter)
        d = seed.delta(h)
        g = torch.sigmoid(h @ seed.gate.weight + seed.gate.bias)[:, None] if seed.gate else torch.tensor(0.0)
        expected = {
            Style.LINEAR_ADD: h + a * d,
            Style.SIGMOID_ADD: h + a * d,
            Style.LINEAR_MULTIPLY: h * (1 + a * torch.tanh(d)),
            Style.GATED: h + a * g * d,
        }[style]
        torch.testing.assert_close(seed(h, a), expected)


def test_a_ragged_last_batch_does_not_ruin_running_statistics():
    norm = ChannelNorm(4)
    norm(torch.randn(64, 4, 8, 8))
    mean, variance = norm.running_mean.clone(), norm.running_var.clone()
    norm(100 + torch.randn(1, 4, 8, 8))
    assert torch.equal(norm.running_mean, mean)
    assert torch.equal(norm.running_var, variance)
    norm(100 + torch.randn(45, 4, 8, 8))
    assert not torch.equal(norm.running_mean, mean), "most of a batch counts"
