"""Growth inside ordinary training loops: every pair of loop, optimiser, schedule, host and style occurs at least once.

A loop below is what a user would write; in its batches `record_gradients` is the only line of ours.
"""

import copy
import gc
import itertools
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, distributed, multiprocessing, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts, LambdaLR, OneCycleLR, ReduceLROnPlateau
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from esper.contracts import AlphaSpeed, Op, Style
from esper.growth import Body
from tests.growth.cases import CASES, CLASSES, Case, do, logits

BATCH = 8


class Tokens(nn.Module):
    """An `nn.TransformerEncoder` over the patches of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 8, stride=8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(self.patches(x).flatten(2).transpose(1, 2)).mean(1))


def vit() -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification  # seconds, for those who build one

    shape = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    return ViTForImageClassification(ViTConfig(image_size=16, patch_size=8, num_labels=CLASSES, **shape))


HOSTS = {
    "sequential": CASES[2],
    "residual": CASES[3],
    "mlp": CASES[1],
    "encoder": Case("encoder", Tokens, ("encoder.layers.0", "encoder.layers.1"), blueprint="mlp", topology="dense"),
    "vit": Case("vit", vit, ("vit.layers.0", "vit.layers.1"), blueprint="mlp", topology="dense"),
}

OPTIMISERS: dict[str, Callable[[Iterable[nn.Parameter]], Optimizer]] = {
    "sgd": lambda weights: SGD(weights, lr=0.05, momentum=0.9),
    "adamw": lambda weights: AdamW(weights, lr=0.01, weight_decay=0.0),
}

SCHEDULERS: dict[str, Callable[[Optimizer], Any]] = {
    "constant": lambda optimizer: None,
    "one-cycle": lambda optimizer: OneCycleLR(optimizer, 0.1, total_steps=50, div_factor=2),
    "lambda": lambda optimizer: LambdaLR(optimizer, lambda epoch: 0.95**epoch),
    "warm-restarts": lambda optimizer: CosineAnnealingWarmRestarts(optimizer, 4, eta_min=1e-3),
    "plateau": lambda optimizer: ReduceLROnPlateau(optimizer, patience=2, factor=0.5),
}


def step(scheduler: Any, epoch: int) -> None:
    if isinstance(scheduler, ReduceLROnPlateau):
        scheduler.step(float(epoch))  # it gets worse all the time
    elif scheduler is not None:
        scheduler.step()


class Loop:
    """The plain one."""

    rounding = 1e-4

    def __init__(self, body: Body, optimizer: Optimizer) -> None:
        self.body, self.model, self.optimizer = body, body.host, optimizer
        self.network: nn.Module = self.model

    def begin_epoch(self) -> None:
        self.network.train()

    def outputs(self, x: Tensor) -> Tensor:
        return logits(self.network(x))

    def batch(self, x: Tensor, y: Tensor) -> None:
        self.optimizer.zero_grad()
        cross_entropy(self.outputs(x), y).backward()
        self.body.record_gradients()
        self.optimizer.step()

    def networks(self) -> list[Callable[[Tensor], Tensor]]:
        """What must not notice a birth."""
        return [self.outputs]

    def shares(self, x: Tensor, y: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Whose mean loss a batch has."""
        return [(x, y)]

    def check(self) -> None:
        """What is particular to this loop."""


class Compiled(Loop):
    def __init__(self, body: Body, optimizer: Optimizer) -> None:
        super().__init__(body, optimizer)
        torch.compiler.reset()
        self.network = torch.compile(self.model, backend="aot_eager")


class LowPrecision(Loop):
    rounding, dtype = 0.2, torch.bfloat16

    def outputs(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=self.dtype):
            return super().outputs(x)


class Scaled(LowPrecision):
    dtype = torch.float16

    def __init__(self, body: Body, optimizer: Optimizer) -> None:
        super().__init__(body, optimizer)
        self.scaler = torch.amp.GradScaler("cpu")

    def batch(self, x: Tensor, y: Tensor) -> None:
        self.optimizer.zero_grad()
        self.scaler.scale(cross_entropy(self.outputs(x), y)).backward()
        self.scaler.unscale_(self.optimizer)
        self.body.record_gradients()
        self.scaler.step(self.optimizer)
        self.scaler.update()


class Accumulating(Loop):
    def batch(self, x: Tensor, y: Tensor) -> None:
        self.optimizer.zero_grad()
        for part, labels in self.shares(x, y):
            (cross_entropy(self.outputs(part), labels) / 2).backward()
        self.body.record_gradients()
        self.optimizer.step()

    def shares(self, x: Tensor, y: Tensor) -> list[tuple[Tensor, Tensor]]:
        return list(zip(x.chunk(2), y.chunk(2), strict=True))


class Averaging(Loop):
    def __init__(self, body: Body, optimizer: Optimizer) -> None:
        super().__init__(body, optimizer)
        self.averaged = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
        body.average_with(self.averaged)

    def batch(self, x: Tensor, y: Tensor) -> None:
        super().batch(x, y)
        self.averaged.update_parameters(self.model)

    def networks(self) -> list[Callable[[Tensor], Tensor]]:
        return [self.outputs, lambda x: logits(self.averaged.eval()(x))]

    def check(self) -> None:
        assert list(self.averaged.module.state_dict()) == list(self.model.state_dict())


class Distributed(Loop):
    def __init__(self, body: Body, optimizer: Optimizer) -> None:
        super().__init__(body, optimizer)
        self.begin_epoch()

    def begin_epoch(self) -> None:
        self.network = DistributedDataParallel(self.model)
        super().begin_epoch()

    def check(self) -> None:
        assert self.apart() == []

    def apart(self) -> list[str]:
        """The weights that are not those of the first process."""
        differing = []
        for name, weights in self.model.named_parameters():
            first = weights.detach().clone()
            distributed.broadcast(first, 0)
            differing += [] if torch.equal(weights, first) else [name]
        return differing


LOOPS = {
    "plain": Loop,
    "compiled": Compiled,
    "bfloat16": LowPrecision,
    "scaled": Scaled,
    "accumulating": Accumulating,
    "averaging": Averaging,
    "distributed": Distributed,
}


class Combination(NamedTuple):
    loop: str
    host: str
    scheduler: str
    style: str
    optimiser: str


FACTORS = Combination(*map(tuple, (LOOPS, HOSTS, SCHEDULERS, (style.name for style in Style), OPTIMISERS)))


def pairs(combination: Combination) -> set[Any]:
    return set(itertools.combinations(enumerate(combination), 2))


def covering() -> list[Combination]:
    """Few combinations that have every pair of values: always the one with most pairs that are still missing."""
    candidates = {each: pairs(each) for each in itertools.starmap(Combination, itertools.product(*FACTORS))}
    missing, chosen = set().union(*candidates.values()), []
    while missing:
        chosen.append(max(candidates, key=lambda each: len(candidates[each] & missing)))
        missing -= candidates[chosen[-1]]
    return chosen


COMBINATIONS = covering()


def test_every_pair_of_values_occurs():
    for (i, one), (j, other) in itertools.combinations(enumerate(FACTORS), 2):
        met = {(each[i], each[j]) for each in COMBINATIONS}
        assert met == set(itertools.product(one, other))


class Story:
    """A training with growth, and what must hold at every point of it."""

    def __init__(self, combination: Combination, rank: int = 0) -> None:
        self.case = case = HOSTS[combination.host]
        self.style = Style[combination.style]
        self.host = case.host()
        self.untouched = list(map(type, self.host.modules())), list(self.host.state_dict())
        self.weights = list(self.host.parameters())
        self.body = case.graft(self.host)
        self.optimizer = OPTIMISERS[combination.optimiser](self.host.parameters())
        self.body.optimise_with(self.optimizer)
        self.scheduler = SCHEDULERS[combination.scheduler](self.optimizer)
        self.control = OPTIMISERS[combination.optimiser]([nn.Parameter(torch.zeros(1))])
        self.control_scheduler = SCHEDULERS[combination.scheduler](self.control)
        self.loop = LOOPS[combination.loop](self.body, self.optimizer)
        generator = torch.Generator().manual_seed(rank)
        self.x, self.y = torch.randn(BATCH, *case.shape, generator=generator), case.labels(BATCH)

    def evaluated(self) -> list[Tensor]:
        self.loop.network.eval()
        with torch.no_grad():
            return [network(self.x) for network in self.loop.networks()]

    def execute(self, op: Op, slot: str, **heads: Any) -> None:
        do(self.body, op, slot, **heads)
        self.check()
        self.loop.check()

    def epoch(self) -> None:
        self.loop.begin_epoch()
        self.loop.batch(self.x, self.y)
        everyone, quality = self.body.blended(), 0.5 + 0.01 * self.body.epoch
        self.body.record_qualities({everyone: quality, **{everyone - {slot}: 0.1 for slot in everyone}})
        self.body.tick()
        self.control.step()
        step(self.scheduler, self.body.epoch)
        step(self.control_scheduler, self.body.epoch)
        self.check()
        self.loop.check()

    def check(self) -> None:
        held = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        assert len(held) == len(set(held))
        assert set(held) == set(self.host.parameters())
        assert set(self.optimizer.state) <= set(held)
        (control,) = self.control.param_groups
        for group in self.optimizer.param_groups:
            assert all(group[name] == control[name] for name in ("lr", "momentum", "betas") if name in control)

    def plain_norm(self, slot: str) -> float:
        """Of the seed's gradient in full precision, without anything that a loop adds."""
        twin = copy.deepcopy(self.host).train()
        seed = twin.get_submodule(slot).esper_slot.seed
        shares = self.loop.shares(self.x, self.y)
        loss = sum(cross_entropy(logits(twin(x)), y) for x, y in shares) / len(shares)
        gradient = torch.cat([each.flatten() for each in torch.autograd.grad(loss, list(seed.parameters()))])
        if distributed.is_initialized():
            distributed.all_reduce(gradient)
            gradient /= distributed.get_world_size()
        return gradient.norm().item()

    def run(self) -> None:
        first, second = self.case.at[:2]
        self.epoch()
        self.is_born(first)
        self.learns(first)
        self.epoch()
        self.execute(Op.FOSSILIZE, first)
        self.is_born(second)
        self.leaves(second)
        self.is_harvested()
        self.is_given_back()

    def is_born(self, slot: str) -> None:
        before = self.evaluated()
        self.execute(Op.GERMINATE, slot, blueprint=self.case.blueprint, style=self.style)
        after = self.evaluated()
        assert all(one.dtype == other.dtype for one, other in zip(before, after, strict=True))
        assert all(map(torch.equal, before, after))

    def learns(self, slot: str) -> None:
        seed = self.body.slot(slot).seed
        newborn = copy.deepcopy(seed.state_dict())
        self.execute(Op.ADVANCE, slot)
        for _ in range(3):
            expected = self.plain_norm(slot)
            self.epoch()
            assert self.body.slot(slot).state.gradient_norm == pytest.approx(expected, rel=self.loop.rounding)
        self.execute(Op.ADVANCE, slot)
        still = [name for name, now in seed.named_parameters() if torch.equal(now, newborn[name])]
        assert not still

    def leaves(self, slot: str) -> None:
        self.execute(Op.PRUNE, slot, alpha_speed=AlphaSpeed.FAST)
        while self.body.slot(slot).seed is not None:
            self.epoch()
        assert not any(name.startswith(f"{slot}.esper_slot") for name in self.host.state_dict())
        self.epoch()

    def is_harvested(self) -> None:
        self.host.eval()
        plain = self.body.harvest().eval()
        with torch.no_grad():
            assert torch.equal(logits(plain(self.x)), logits(self.host(self.x)))

    def is_given_back(self) -> None:
        assert self.body.ungraft() is self.host
        assert (list(map(type, self.host.modules())), list(self.host.state_dict())) == self.untouched
        assert all(map(lambda one, other: one is other, self.host.parameters(), self.weights))
        self.check()
        self.epoch()


QUICKLY_COMPILED = ("sequential", "mlp")
IN_ONE_PROCESS = [
    pytest.param(
        each,
        id="-".join(each),
        marks=pytest.mark.slow if each.loop == "compiled" and each.host not in QUICKLY_COMPILED else (),
    )
    for each in COMBINATIONS
    if each.loop != "distributed"
]


@pytest.mark.parametrize("combination", IN_ONE_PROCESS)
def test_growth_inside_a_training_loop(combination: Combination):
    with many_graphs() if combination.loop == "compiled" else nullcontext():
        Story(combination).run()


def many_graphs() -> AbstractContextManager[None]:
    """Room for one of each structure and mode; without it all that comes later would not be compiled."""
    from torch._dynamo import config  # seconds, for those who compile

    return config.patch(recompile_limit=32, fail_on_recompile_limit_hit=True)


def tell(rank: int, store: str, combinations: list[Combination]) -> None:
    """In a process of its own."""
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=timedelta(seconds=60)
    )
    for combination in combinations:
        Story(combination, rank).run()
    seeds_drift_apart_behind_an_old_wrapper(Story(combinations[0], rank), rank)
    gc.collect()  # a wrapper that outlives its process group makes the process abort at its end, whatever it wraps
    distributed.destroy_process_group()


def seeds_drift_apart_behind_an_old_wrapper(story: Story, rank: int) -> None:
    story.is_born(slot := story.case.at[0])
    story.loop.network.train()
    story.loop.batch(story.x, story.y)
    apart = story.loop.apart()
    assert bool(apart) == (rank > 0)
    assert all(name.startswith(f"{slot}.esper_slot.seed") for name in apart)


def test_growth_inside_training_loops_of_two_processes(tmp_path: Path):
    combinations = [each for each in COMBINATIONS if each.loop == "distributed"]
    multiprocessing.spawn(tell, (str(tmp_path / "store"), combinations), nprocs=2)
