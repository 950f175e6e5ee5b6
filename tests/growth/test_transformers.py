"""Growth in causal hosts: nothing looks ahead, caches change nothing, and blocks can be born as copies."""

import copy
import functools
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim.swa_utils import AveragedModel

import esper
from esper.contracts import Action, AlphaMode, AlphaTarget, Birth, Op, Operator, Stage, Style, Tempo, Topology
from esper.growth import Body, NotFeatures, blueprints_for, count_parameters, find_blueprint, plant
from esper.growth.accounting import newborn_cost
from esper.growth.caches import UnusableCache
from esper.growth.causal import CausalAttention, UnknownMask
from esper.growth.interface import Call
from tests.growth.cases import (
    CLASSES,
    LANGUAGE,
    Case,
    do,
    gpt2,
    gradients,
    grow,
    life,
    llama,
    logits,
    optimiser_of,
    train_epoch,
)

GPT, GPT2, LLAMA = LANGUAGE
OURS = [each for each in blueprints_for(Topology.TRANSFORMER) if each.build.__module__.startswith("esper.")]
every_host = pytest.mark.parametrize("case", LANGUAGE, ids=lambda case: case.name)
every_library_host = pytest.mark.parametrize("case", LANGUAGE[1:], ids=lambda case: case.name)
STYLES = tuple(Style)


def is_quick(case: Case, number: int, style: Style) -> bool:
    """Every blueprint in one style, in our own host in two; so every style, too, and others in other hosts."""
    turn = (STYLES.index(style) - number) % len(STYLES)
    return turn == 0 or (case is GPT and turn == 1)


LIVES = [
    pytest.param(
        case,
        each,
        style,
        marks=() if is_quick(case, number, style) else pytest.mark.slow,
        id=f"{case.name}-{each.name}-{style.name}",
    )
    for case, (number, each), style in product(LANGUAGE, enumerate(OURS), STYLES)
]


@functools.cache
def grafted(case: Case) -> Body:
    return case.body()


def body_of(case: Case) -> Body:
    """Grafted once, and copied."""
    return copy.deepcopy(grafted(case))


def grown(case: Case, stage: Stage, **planted: str) -> Body:
    """Behind block 0 or 1, or its attention or MLP; every parameter has been trained a little."""
    body = body_of(case)
    optimizer = optimiser_of(body)
    for place, blueprint in planted.items():
        grow(case, body, optimizer, case.at[PLACES.index(place)], stage, Style.GATED, blueprint)
    train_epoch(case, body, optimizer)
    return body


PLACES = ("block0", "block1", "attention", "mlp")
EVERYWHERE = {"block0": "block_copy", "block1": "block", "attention": "attention", "mlp": "gated_mlp"}


@torch.no_grad()
def assert_looks_back_only(case: Case, network: nn.Module) -> None:
    network.eval()
    tokens = case.inputs()
    other = torch.cat([tokens[:, :3], (tokens[:, 3:] + 1) % CLASSES], dim=1)
    before, after = logits(network(tokens)), logits(network(other))
    assert torch.equal(before[:, :3], after[:, :3])
    assert not torch.equal(before[:, 3:], after[:, 3:])


@torch.no_grad()
def assert_cache_changes_nothing(case: Case, network: nn.Module) -> None:
    from transformers import DynamicCache

    network.eval()
    tokens, cache = case.inputs(), DynamicCache()
    steps = [network(tokens[:, a:b], past_key_values=cache, use_cache=True) for a, b in ((0, 3), (3, 4), (4, 6))]
    whole = network(tokens, use_cache=False).logits
    torch.testing.assert_close(torch.cat([step.logits for step in steps], dim=1), whole)


def test_the_design_asks_for_these():
    names = ["norm", "lora", "lora_large", "attention", "mlp_small", "mlp", "gated_mlp", "block", "block_copy"]
    assert [each.name for each in OURS] == names


@pytest.mark.parametrize(("case", "each", "style"), LIVES)
def test_no_stage_of_any_seed_looks_ahead_and_its_harvest_does_not(case: Case, each, style):
    body, planted = body_of(case), replace(case, blueprint=each.name)
    assert each.name in body.slot(case.at[0]).site.blueprints
    for stage in life(planted, body, optimiser_of(body), case.at[0], style):
        if stage in (Stage.GERMINATED, Stage.BLENDING, Stage.FOSSILIZED):
            assert_looks_back_only(case, body)
    assert body.slot(case.at[0]).state.gradient_norm > 0
    plain = body.harvest()
    assert_looks_back_only(case, plain)
    assert torch.equal(logits(plain.eval()(case.inputs())), logits(body.eval()(case.inputs())))
    if case is not GPT:
        assert_cache_changes_nothing(case, body)
        assert_cache_changes_nothing(case, plain)


@every_library_host
def test_generation_with_a_cache_is_generation_without_before_and_after_harvest(case: Case):
    """One token at a time, with beams that change places, with rows that are padded, in a cache of a fixed length."""
    body = grown(case, Stage.FOSSILIZED, **EVERYWHERE)
    padded = torch.ones(2, 4, dtype=torch.long)
    padded[0, :2] = 0
    rows = torch.ones(2, 4, dtype=torch.long)
    settings: list[dict[str, Any]] = [
        {"attention_mask": rows},
        {"attention_mask": rows, "num_beams": 3},
        {"attention_mask": padded},
        {"attention_mask": rows, "cache_implementation": "static"},
    ]
    for network in (body.host.eval(), body.harvest().eval()):
        for setting in settings:
            plain = {name: value for name, value in setting.items() if name != "cache_implementation"}
            say = functools.partial(network.generate, case.inputs(2)[:, :4], max_new_tokens=8, do_sample=False)
            assert torch.equal(say(use_cache=True, **setting), say(use_cache=False, **plain)), setting


@torch.no_grad()
def test_a_sliding_window_of_the_host_is_that_of_its_seeds():
    from transformers import DynamicCache, MistralConfig, MistralForCausalLM

    shape: dict[str, Any] = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "head_dim": 4}
    shape |= {"num_attention_heads": 2, "num_key_value_heads": 1, "sliding_window": 3}
    for blueprint in ("attention", "block_copy"):
        torch.manual_seed(0)
        host = MistralForCausalLM(MistralConfig(vocab_size=CLASSES, **shape))
        body = esper.graft(host, at=["model.layers.0"], example=LLAMA.inputs())
        do(body, Op.GERMINATE, "model.layers.0", blueprint=blueprint)
        for parameter in body.slot("model.layers.0").seed_parameters:
            nn.init.normal_(parameter, std=0.5)
        tokens, cache = torch.randint(CLASSES, (2, 9)), DynamicCache(config=host.config)
        spans = ((0, 2), (2, 6), (6, 7), (7, 9))
        steps = [host.eval()(tokens[:, a:b], past_key_values=cache, use_cache=True).logits for a, b in spans]
        torch.testing.assert_close(torch.cat(steps, dim=1), host(tokens, use_cache=False).logits)


def small(model: str, **shape: Any) -> nn.Module:
    """A language model of the library that is not among the hosts above, without dropout."""
    import transformers

    none: dict[str, Any] = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), CLASSES - 1)
    torch.manual_seed(0)
    config = getattr(transformers, f"{model}Config")(vocab_size=CLASSES, **none, **shape)
    return getattr(transformers, f"{model}ForCausalLM")(config)


MPT: dict[str, Any] = {"d_model": 8, "n_layers": 1, "n_heads": 2, "max_seq_len": 16}
BLOOM: dict[str, Any] = {"hidden_size": 8, "n_layer": 1, "n_head": 2, "hidden_dropout": 0.0, "attention_dropout": 0.0}
MIXTRAL: dict[str, Any] = {
    "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "num_local_experts": 2, "max_position_embeddings": 16,
}  # fmt: skip


@torch.no_grad()
def test_seeds_read_masks_that_say_what_is_hidden():
    """MPT's mask of bits is true where others have false."""
    host = small("Mpt", **MPT)
    for blueprint in ("attention", "block", "block_copy"):
        body = esper.graft(copy.deepcopy(host), at=["transformer.blocks.0"], example=GPT.inputs(2))
        do(body, Op.GERMINATE, "transformer.blocks.0", blueprint=blueprint)
        for parameter in body.slot("transformer.blocks.0").seed_parameters:
            nn.init.normal_(parameter, std=0.5)
        assert_looks_back_only(GPT, body.host)
        assert_cache_changes_nothing(GPT, body.host)
        padded = torch.ones(2, 4, dtype=torch.long)
        padded[0, :2] = 0
        say = functools.partial(body.host.generate, GPT.inputs(2)[:, :4], max_new_tokens=6, do_sample=False)
        assert torch.equal(say(attention_mask=padded, use_cache=True), say(attention_mask=padded, use_cache=False))


def test_a_block_that_cannot_be_called_for_fewer_rows_is_not_copied():
    """Bloom gives its blocks a tensor with a row for every head of every row."""
    body = esper.graft(small("Bloom", **BLOOM), at=["transformer.h.0"], example=GPT.inputs(2))
    offered = set(body.slot("transformer.h.0").site.blueprints)
    assert "block" in offered
    assert "block_copy" not in offered
    body.watch_gains()
    tokens = torch.randint(CLASSES, (40, 6))
    logits(body.train()(tokens)).sum().backward()
    body.tick()
    assert {gain.blueprint for gain in body.slot("transformer.h.0").gains} == offered


def test_what_a_copy_costs_is_known_where_a_block_needs_values_to_be_counted():
    """The experts of Mixtral are multiplied by a kernel that has no meaning without values in single precision."""
    body = esper.graft(small("Mixtral", **MIXTRAL), at=["model.layers.0"], example=GPT.inputs(2))
    slot, before = body.slot("model.layers.0"), torch.get_rng_state()
    cost = newborn_cost(find_blueprint("block_copy", Topology.TRANSFORMER), slot.site, Operator.ADD)
    assert torch.equal(torch.get_rng_state(), before)
    do(body, Op.GERMINATE, "model.layers.0", blueprint="block_copy")
    assert cost == body.costs().seeds["model.layers.0"]
    assert cost.flops > cost.parameters / 2


@every_library_host
@pytest.mark.parametrize("reentrant", [False, True], ids=["", "reentrant"])
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # copies are checkpointed inside others
def test_checkpointed_gradients_are_those_without(case: Case, reentrant):
    """Blocks are run again in the backward pass, with their seeds."""
    body = body_of(case)
    for place, blueprint in EVERYWHERE.items():
        slot = case.at[PLACES.index(place)]
        do(body, Op.GERMINATE, slot, blueprint=blueprint)
        for parameter in body.slot(slot).seed_parameters:
            nn.init.normal_(parameter, std=0.1)
    expected = gradients(case, body)
    body.host.gradient_checkpointing_enable({"use_reentrant": reentrant})
    loss, found = gradients(case, body)
    assert loss == expected[0]
    for one, other in zip(found, expected[1], strict=True):
        torch.testing.assert_close(one, other)


def test_what_pads_a_row_on_the_left_changes_nothing():
    plain = grown(LLAMA, Stage.FOSSILIZED, **EVERYWHERE).harvest().eval().requires_grad_(False)
    tokens, mask = LLAMA.inputs(1), torch.tensor([[0, 0, 1, 1, 1, 1]])
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
    padded = plain(tokens, attention_mask=mask, position_ids=positions).logits[:, 2:]
    torch.testing.assert_close(padded, plain(tokens[:, 2:]).logits)


def test_where_no_cache_is_given_seeds_that_look_back_are_not_offered():
    body = body_of(LLAMA)
    assert {"attention", "block", "block_copy"} <= set(body.slot("model.layers.0").site.blueprints)
    assert {"attention", "block"} <= set(body.slot("model.layers.0.self_attn").site.blueprints)
    assert "block_copy" not in body.slot("model.layers.0.self_attn").site.blueprints
    assert not {"attention", "block", "block_copy"} & set(body.slot("model.layers.1.mlp").site.blueprints)
    assert not body.execute(Action(Op.GERMINATE, "model.layers.1.mlp", blueprint="attention"))
    for place, blueprint, reason in (
        ("model.layers.1.mlp", "attention", "is not given the cache of earlier tokens"),
        ("model.layers.1.self_attn", "block_copy", "is no block that adds to what it is given"),
        ("model", "block", "is not given the cache of earlier tokens"),
    ):
        with pytest.raises(NotFeatures, match=reason):
            esper.graft(LLAMA.host(), at=[place], example=LLAMA.inputs(2), blueprints=[blueprint])


def test_a_host_that_can_be_told_its_past_in_another_way_is_offered_nothing_that_looks_back():
    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.lstm = nn.Embedding(CLASSES, 8), nn.LSTM(8, 8, batch_first=True)

        def forward(self, tokens: Tensor) -> Tensor:
            return self.lstm(self.embedding(tokens))[0]

    body = esper.graft(Steps(), at=["lstm"], example=GPT.inputs(2))
    (slot,) = body.slots
    assert slot.site.topology is Topology.TRANSFORMER
    assert set(slot.site.blueprints) == {each.name for each in OURS if not each.looks_back}
    do(body, Op.GERMINATE, "lstm", blueprint="mlp")
    nn.init.ones_(slot.seed_parameters[-1])
    assert not torch.equal(body(GPT.inputs()), body.harvest()(GPT.inputs())), "a newborn is not delivered"


def test_a_cache_that_a_seed_cannot_use_is_refused():
    from transformers import DynamicCache

    body = body_of(LLAMA)
    tokens, old = LLAMA.inputs(), DynamicCache()
    body.host.eval()(tokens[:, :3], past_key_values=old, use_cache=True)
    do(body, Op.GERMINATE, "model.layers.0", blueprint="attention")
    with pytest.raises(UnusableCache, match="6 tokens, of which the seed has seen 3; begin a new cache"):
        body.host(tokens[:, 3:], past_key_values=old, use_cache=True)
    with pytest.raises(UnusableCache, match="was given a list, in which it can keep nothing"):
        body.slot("model.layers.0").seed.delta(torch.zeros(1, 2, 8), Call((), {"past_key_values": [1]}))
    with pytest.raises(UnknownMask, match="a mask that is a str; use a model with attn_implementation='sdpa'"):
        CausalAttention(8)(torch.zeros(1, 2, 8), Call((), {"attention_mask": "causal"}))


@pytest.mark.parametrize("size", [4, 6])
def test_a_mask_of_keys_hides_them_from_attention(size):
    attention, h = CausalAttention(size), torch.randn(2, 5, size)
    seen = torch.tensor([[0, 1, 1, 1, 1], [1, 1, 1, 1, 1]])
    masked = attention(h, Call((), {"attention_mask": seen}))
    torch.testing.assert_close(masked[0, 1:], attention(h[:1, 1:], Call())[0])
    torch.testing.assert_close(masked[1], attention(h[1:], Call())[0])


# Copies


@every_host
def test_a_copy_is_the_block_once_more_and_alpha_comes_from_nothing(case: Case):
    body, slot = body_of(case), case.at[1]
    host = copy.deepcopy(body.host).eval()
    do(body, Op.GERMINATE, slot, blueprint="block_copy", style=Style.LINEAR_ADD, tempo=Tempo.MEDIUM)
    state = body.slot(slot).state
    assert (state.stage, state.schedule.mode, state.schedule.alpha) == (Stage.GERMINATED, AlphaMode.RISING, 0.2)
    assert find_blueprint("block_copy", Topology.TRANSFORMER).birth is Birth.COPY
    tokens = case.inputs()
    with torch.no_grad():
        live, outputs = logits(body.eval()(tokens)), body.coalition_outputs([{slot}, ()], tokens)
        with body.only(()):
            assert torch.equal(logits(body(tokens)), logits(host(tokens))), "alpha 0 is exactly the host"
        assert torch.equal(logits(outputs[frozenset({slot})]), live)
        assert torch.equal(logits(outputs[frozenset()]), logits(host(tokens)))
    seed, block = body.slot(slot).seed, host.get_submodule(slot)
    assert count_parameters(seed.parameters()) == body.snapshots()[1].front_parameters
    assert not {id(each) for each in seed.parameters()} & {id(each) for each in body.host_weights()}
    if case is GPT:
        h = torch.randn(2, 6, 8)
        torch.testing.assert_close(seed(h, 0.25), h + 0.25 * (block(h) - h))
    alphas = []
    for _ in range(5):
        alphas.append(body.slot(slot).alpha)
        body.tick()
    assert alphas == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])


def test_a_copy_that_has_arrived_is_held_and_one_that_has_not_goes_on_blending():
    for tempo, stage in ((Tempo.FAST, Stage.HOLDING), (Tempo.SLOW, Stage.BLENDING)):
        body = body_of(GPT)
        optimizer = optimiser_of(body)
        do(body, Op.GERMINATE, "block0", blueprint="block_copy", tempo=tempo, alpha_target=AlphaTarget.MOST)
        do(body, Op.ADVANCE, "block0")
        for _ in range(2):
            train_epoch(GPT, body, optimizer)
        before = body.slot("block0").alpha
        do(body, Op.ADVANCE, "block0")
        assert body.slot("block0").state.stage is stage
        assert body.slot("block0").alpha == before == pytest.approx(0.7 * min(1.0, 3 / tempo))


def test_what_grows_in_a_block_is_not_in_its_copy():
    body = grown(GPT, Stage.FOSSILIZED, attention="attention")
    do(body, Op.GERMINATE, "block0", blueprint="block_copy")
    names = [name for name, _ in body.slot("block0").seed.delta.block.named_parameters()]
    assert names == [name for name, _ in GPT.host().get_submodule("block0").named_parameters()]
    assert_looks_back_only(GPT, body)


@every_host
def test_a_copy_learns_even_behind_a_frozen_block(case: Case):
    body = body_of(case)
    body.host.requires_grad_(False)
    do(body, Op.GERMINATE, case.at[0], blueprint="block_copy")
    cross_entropy(logits(body(case.inputs())).flatten(0, 1), torch.zeros(24, dtype=torch.long)).backward()
    seed = body.slot(case.at[0]).seed_parameters
    assert all(each.grad is not None and each.grad.isfinite().all() for each in seed)
    assert any(each.grad.any() for each in seed)
    assert all(each.grad is None for each in body.host_weights())


def blended(seed: nn.Module, alpha: float, h: Tensor, call: Call) -> Tensor:
    return seed(h, alpha, call) if alpha else h


@every_host
def test_the_gain_of_a_copy_is_how_fast_the_loss_falls_with_its_alpha(case: Case):
    body = body_of(case)
    tokens = case.inputs()
    optimizer = torch.optim.SGD(body.parameters(), lr=0.5)

    def loss(network: nn.Module) -> Tensor:
        return cross_entropy(logits(network(tokens))[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())

    for _ in range(10):
        optimizer.zero_grad()
        loss(body).backward()
        optimizer.step()
    body.watch_gains()
    loss(body.train()).backward()
    body.tick()
    for slot in case.at[:2]:
        gain = next(gain for gain in body.slot(slot).gains if gain.blueprint == "block_copy")
        assert gain.agreed is not None
        twin = copy.deepcopy(body)
        do(twin, Op.GERMINATE, slot, blueprint="block_copy")
        seed, h = twin.slot(slot).seed, 1e-2
        with torch.no_grad():
            heights = []
            for alpha in (0.0, h):
                twin.slot(slot).__dict__["apply_to"] = functools.partial(blended, seed, alpha)
                heights.append(float(loss(twin)))
        slope = (heights[1] - heights[0]) / h
        assert gain.push == gain.norm == pytest.approx(max(0.0, -slope), rel=0.1, abs=1e-4)


@every_host
def test_every_newborn_costs_what_was_said(case: Case):
    body = body_of(case)
    slot = body.slot(case.at[0])
    for each in slot.site.blueprints:
        twin = copy.deepcopy(body)
        blueprint = find_blueprint(each, Topology.TRANSFORMER)
        do(twin, Op.GERMINATE, slot.id, blueprint=each)
        costs = twin.costs()
        assert costs.seeds[slot.id] == newborn_cost(blueprint, slot.site, Operator.ADD), each
        told = blueprint.parameters(slot.site.channels, slot.snapshot().front_parameters)
        assert costs.seeds[slot.id].parameters == told
        if blueprint.name not in ("lora", "lora_large"):
            assert costs.seeds[slot.id].flops > told, each


@every_host
def test_grown_networks_with_copies_are_saved_planted_and_loaded(case: Case, tmp_path: Path):
    body = grown(case, Stage.FOSSILIZED, **EVERYWHERE)
    plain, tokens = body.harvest().eval(), case.inputs()
    esper.save(plain, tmp_path / "grown")
    loaded = esper.load(tmp_path / "grown", case.build())
    assert torch.equal(logits(loaded(tokens)), logits(plain(tokens)))
    assert torch.equal(logits(copy.deepcopy(loaded)(tokens)), logits(plain(tokens)))
    planted = plant(case.build(), body.delivered())
    planted.load_state_dict(plain.state_dict())
    for network in (loaded, planted):
        assert_looks_back_only(case, network)
        if case is not GPT:
            assert_cache_changes_nothing(case, network)
    esper.save(loaded, tmp_path / "again")
    assert (tmp_path / "again" / "weights.safetensors").read_bytes() == (
        tmp_path / "grown" / "weights.safetensors"
    ).read_bytes()


@every_host
def test_a_body_with_copies_loads_into_a_fresh_one_in_any_stage(case: Case, tmp_path: Path):
    body, planted = body_of(case), replace(case, blueprint="block_copy")
    for stage in life(planted, body, optimiser_of(body), case.at[0], Style.GATED):
        torch.save(body.state_dict(), tmp_path / "body.pt")
        fresh = body_of(case)
        fresh.load_state_dict(torch.load(tmp_path / "body.pt", weights_only=True))
        assert fresh.snapshots() == body.snapshots(), stage
        assert torch.equal(logits(fresh.eval()(case.inputs())), logits(body.eval()(case.inputs()))), stage


def test_an_average_has_copies_too():
    body = body_of(GPT)
    averaged = AveragedModel(body.host)
    body.average_with(averaged)
    do(body, Op.GERMINATE, "block1", blueprint="block_copy")
    (twin,) = (part for part in averaged.modules() if getattr(part, "id", None) == "block1")
    assert torch.equal(averaged.eval()(GPT.inputs()), body.eval()(GPT.inputs()))
    assert not set(map(id, twin.seed.parameters())) & set(map(id, body.parameters()))


@pytest.mark.parametrize("case", [GPT, LLAMA], ids=lambda case: case.name)
def test_a_harvest_with_seeds_that_look_back_is_compiled_and_exported(case: Case):
    plain = grown(case, Stage.FOSSILIZED, block0="block_copy", attention="attention").harvest().eval()
    tokens, expected = case.inputs(), logits(plain(case.inputs()))
    if case is GPT:
        torch.compiler.reset()
        plain = torch.compile(plain, backend="aot_eager", fullgraph=True)
    else:
        plain = torch.export.export(plain, (tokens,)).module()
    torch.testing.assert_close(logits(plain(tokens)), expected)


# Places


@pytest.mark.parametrize(("build", "block"), [(gpt2, "transformer.h.{}"), (llama, "model.layers.{}")])
def test_places_of_a_language_model_are_its_blocks(build, block):
    optimizer = torch.optim.AdamW((model := build()).parameters())
    gardener = esper.Gardener(model, optimizer, example={"input_ids": GPT.inputs(2)}, epochs=2)
    assert [slot.id for slot in gardener.body.slots] == [block.format(0), block.format(1)]
    assert all("block_copy" in slot.site.blueprints for slot in gardener.body.slots)
