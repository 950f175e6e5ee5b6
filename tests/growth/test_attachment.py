"""Seeds are parts of the model: whatever treats it as a model sees them."""

import copy
import io
import itertools
import pickle
from dataclasses import replace

import pytest
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

import esper
from esper.contracts import Action, AlphaSpeed, AlphaTarget, Op, Stage, Style
from esper.growth.alpha import AlphaSchedule
from esper.growth.attachment import CHILD, Attached, NotPicklable
from esper.growth.graft import AlreadyCompiled, AlreadyDistributed, PassedOver
from esper.growth.proof import BadExample, first_difference, outputs
from tests.growth.cases import CASES, do, grow, loss_of, optimiser_of, own_keys, same

CONV = CASES[0]


def grown(stage: Stage = Stage.HOLDING):
    body = CONV.body()
    optimizer = optimiser_of(body)
    grow(CONV, body, optimizer, "block1", stage)
    return body, optimizer


def test_a_submodule_keeps_its_identity_its_class_and_the_keys_of_its_state():
    host = CONV.host()
    block, kind, keys = host.block1, type(host.block1), list(host.state_dict())
    body = esper.graft(host, at=["block1"], example=CONV.inputs())
    assert host.block1 is block
    assert isinstance(host.block1, kind)
    assert list(host.state_dict()) == keys
    do(body, Op.GERMINATE, "block1", blueprint="conv_light")
    assert own_keys(host) == keys
    assert any(name.startswith(f"block1.{CHILD}.seed.") for name in host.state_dict())


def test_ungrafting_gives_the_host_back_untouched():
    host = CONV.host()
    kinds, before, weights = list(map(type, host.modules())), outputs(host, CONV.inputs()), list(host.parameters())
    body = esper.graft(host, at=CONV.at, example=CONV.inputs())
    do(body, Op.GERMINATE, "block1", blueprint="conv_light")
    optimizer = optimiser_of(body)
    assert body.ungraft() is host
    assert body.snapshots() == ()
    assert [parameter for group in optimizer.param_groups for parameter in group["params"]] == weights
    assert list(map(type, host.modules())) == kinds
    assert all(one is other for one, other in zip(host.parameters(), weights, strict=True))
    assert first_difference(before, outputs(host, CONV.inputs())) is None


def test_modes_gradients_copies_and_averages_see_seeds():
    body, _ = grown()
    model, seed = body.host, body.slot("block1").seed
    model.eval()
    assert not any(part.training for part in seed.modules())
    model.train()
    loss_of(CONV)(model(CONV.inputs())).backward()
    assert all(parameter.grad is not None for parameter in seed.parameters())
    model.zero_grad()
    assert all(parameter.grad is None for parameter in seed.parameters())
    model.eval()
    for twin in (copy.deepcopy(model), AveragedModel(model)):
        assert torch.equal(twin.eval()(CONV.inputs()), model(CONV.inputs()))
        assert sum(p.numel() for p in twin.parameters()) == sum(p.numel() for p in model.parameters())
    with torch.no_grad():
        next(seed.parameters()).add_(1.0)
    assert not torch.equal(copy.deepcopy(model)(CONV.inputs()), twin(CONV.inputs()))


def test_a_whole_model_is_not_pickled_and_the_message_says_what_to_do():
    body, _ = grown(Stage.GERMINATED)
    for save in (pickle.dumps, lambda model: torch.save(model, io.BytesIO())):
        with pytest.raises(NotPicklable, match=r"save its state_dict\(\), or what harvest\(\) returns"):
            save(body.host)
    pickle.dumps(body.harvest())


def test_a_sequence_does_not_count_its_slot_among_its_children():
    host = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 2))
    esper.graft(host, at=["0"], example=torch.zeros(2, 4))
    inner = host[0]
    assert isinstance(inner, Attached)
    assert len(inner) == 2
    assert [type(each) for each in inner] == [nn.Linear, nn.ReLU]
    assert isinstance(inner[-1], nn.ReLU)


def test_a_layer_that_a_chain_uses_twice_runs_twice_in_every_coalition():
    torch.manual_seed(0)
    act = nn.Tanh()
    host = nn.Sequential(nn.Linear(4, 4), act, nn.Linear(4, 4), act)
    body = esper.graft(host, at=["0", "2"], example=torch.zeros(2, 4))
    x = torch.randn(3, 4)
    assert torch.equal(body.coalition_outputs([()], x)[frozenset()], body.eval()(x))


def test_a_place_that_a_fast_path_passes_over_is_refused_and_the_layer_around_it_is_not():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    host = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    example = torch.randn(2, 3, 8)
    with pytest.raises(PassedOver, match=r"'layers.0.linear1' is not called in evaluation mode without gradients"):
        esper.graft(host, at=["layers.0.linear1"], example=example, topology="dense")
    body = esper.graft(host, at=["layers.0"], example=example, topology="dense")
    do(body, Op.GERMINATE, "layers.0", blueprint="mlp")
    assert same([out for mode in outputs(body.harvest(), example).values() for out in mode],
                [out for mode in outputs(body.ungraft(), example).values() for out in mode])  # fmt: skip


def test_a_compiled_model_and_an_example_of_one_row_are_refused():
    with pytest.raises(AlreadyCompiled, match="graft it first, then compile it"):
        esper.graft(torch.compile(CONV.host()), at=["block1"], example=CONV.inputs())
    norm = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    with pytest.raises(BadExample, match=r"training mode .* give at least 2 samples"):
        esper.graft(norm, at=["0"], example=torch.zeros(1, 4))


def test_grafting_under_autocast_makes_seeds_of_the_hosts_precision():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        body = esper.graft(CONV.host(), at=["block1"], example=CONV.inputs())
        do(body, Op.GERMINATE, "block1", blueprint="conv_light")
    assert {parameter.dtype for parameter in body.parameters()} == {torch.float32}


def test_a_compiled_model_trains_its_seeds_and_a_ramp_compiles_nothing_anew():
    """Hooks are not guarded: a compiled model never noticed a seed. A number for alpha would compile every epoch."""
    torch._dynamo.reset()
    body = CONV.body()
    optimizer = optimiser_of(body)
    grow(CONV, body, optimizer, "block1", Stage.HOLDING)
    counter = itertools.count()

    def backend(graph, inputs):
        next(counter)
        return graph

    compiled = torch.compile(body.host, backend=backend)
    body.train()
    for speed in (AlphaSpeed.FAST, AlphaSpeed.FAST):
        assert body.execute(Action(Op.SET_ALPHA_TARGET, "block1", alpha_target=_other(body), alpha_speed=speed))
        for _ in range(3):
            body.host.zero_grad()
            loss_of(CONV)(compiled(CONV.inputs())).backward()
            assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in body.slot("block1").seed_parameters)
            body.eval()
            assert torch.allclose(compiled(CONV.inputs()), body.host(CONV.inputs()), atol=1e-6)
            body.train()
            body.tick()
        do(body, Op.ADVANCE, "block1")
    assert next(counter) <= 4, "one graph for training and one for evaluation, with a margin"


@pytest.mark.parametrize("blueprint", ["norm", "conv_light"])
def test_a_birth_compiles_each_mode_anew_and_a_removal_nothing(blueprint):
    torch.compiler.reset()
    body, counter = CASES[3].body(), itertools.count()
    spatial = blueprint == "conv_light"  # its norm counts rows, and is compiled again when it has seen the first batch

    def graphs(compiled) -> int:
        before = copy.copy(counter)
        for _ in range(3):
            loss_of(CONV)(compiled(CONV.inputs())).backward()
        with torch.no_grad():
            compiled(CONV.inputs())
        return next(copy.copy(counter)) - next(before)

    compiled = torch.compile(body.host, backend=lambda graph, inputs: next(counter) is None or graph)
    assert graphs(compiled) == 2
    do(body, Op.GERMINATE, "branch", blueprint=blueprint)
    assert graphs(compiled) == 2 + spatial
    do(body, Op.PRUNE, "branch", alpha_speed=AlphaSpeed.INSTANT)
    assert graphs(compiled) == 0
    while body.slot("branch").state.stage is not Stage.DORMANT:
        body.tick()
    do(body, Op.GERMINATE, "branch", blueprint=blueprint)
    assert graphs(compiled) == 0


def test_copies_of_a_place_that_was_compiled_by_itself_run_their_own_code():
    body, _ = grown(Stage.HOLDING)
    body.eval().host.block1.compile(backend="eager")
    before = body(CONV.inputs())
    twin = copy.deepcopy(body.host)
    plain = body.harvest()
    nn.init.zeros_(twin.block1[0].weight)
    assert torch.equal(body(CONV.inputs()), before)
    assert not torch.equal(twin(CONV.inputs()), before)
    with body.only(()):
        assert torch.equal(plain(CONV.inputs()), body(CONV.inputs()))


def test_harvesting_is_proved_on_what_was_written_not_on_what_was_compiled():
    body, _ = grown(Stage.HOLDING)
    body.host.compile(backend=lambda graph, inputs: lambda *args: [each + 1e-3 for each in graph(*args)])
    with torch.no_grad():
        rounded = body.eval()(CONV.inputs())
    plain = body.harvest().eval()
    with body.only(()), torch.no_grad():
        assert not torch.equal(plain(CONV.inputs()), rounded)


@pytest.mark.parametrize("style", Style, ids=lambda style: style.name)
@pytest.mark.parametrize("case", CASES[:2], ids=lambda case: case.name)
def test_seeds_leave_the_precision_of_features_alone_under_autocast(case, style):
    slot = case.at[0]
    for dtype, blueprint in itertools.product((torch.bfloat16, torch.float16), case.body().slot(slot).site.blueprints):
        body, seen = case.body(), []
        body.host[1].register_forward_pre_hook(lambda part, args, seen=seen: seen.append(args[0]))
        with torch.autocast("cpu", dtype=dtype):
            body(case.inputs())
            do(body, Op.GERMINATE, slot, blueprint=blueprint, style=style)
            loss_of(case)(body(case.inputs())).backward()
        before, after = seen
        assert before.dtype == after.dtype == dtype
        assert torch.equal(before, after)
        assert all(parameter.grad.dtype == torch.float32 for parameter in body.slot(slot).seed_parameters)


def test_a_distributed_model_is_refused():
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(AlreadyDistributed, match=r"graft `model\.module`, and wrap it after that"):
            esper.graft(DistributedDataParallel(CONV.host()), at=["module.block1"], example=CONV.inputs())
    finally:
        distributed.destroy_process_group()


def _other(body):
    return AlphaTarget.HALF if body.slot("block1").alpha > 0.6 else AlphaTarget.FULL


def test_a_seed_learns_on_a_frozen_host():
    host = CONV.host().requires_grad_(False)
    body = esper.graft(host, at=["block1"], example=CONV.inputs())
    do(body, Op.GERMINATE, "block1", blueprint="conv_light")
    do(body, Op.ADVANCE, "block1")
    body.train()
    loss_of(CONV)(body(CONV.inputs())).backward()
    assert any(parameter.grad.abs().sum() > 0 for parameter in body.slot("block1").seed_parameters)
    assert all(parameter.grad is None for parameter in body.host_weights())


def test_the_forward_pass_follows_the_state_however_that_is_set():
    body, _ = grown(Stage.GERMINATED)
    slot, x = body.slot("block1"), CONV.inputs()
    before = body.eval()(x)
    nn.init.ones_(slot.seed_parameters[-1])
    full = body(x)
    assert not torch.equal(full, before)
    slot.state = replace(slot.state, stage=Stage.HOLDING, schedule=AlphaSchedule(target=0.5))
    assert not torch.equal(body(x), full)
