"""Hosts of many makes, and a driver that takes a slot of any of them to any stage through the real gates."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import esper
from esper.contracts import RULES, Action, AlphaSpeed, AlphaTarget, Op, Sink, Stage, Style
from esper.growth import Body, ConvHost, ConvShape, DenseHost, GPTHost, GPTShape, Thresholds
from esper.growth.attachment import CHILD

CLASSES = 5
THRESHOLDS = Thresholds(horizon=10)


class Residual(nn.Module):
    """Not a chain: the stem's output is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1)
        self.branch = nn.Sequential(nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.Conv2d(6, 6, 3, padding=1))
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        h = h + self.branch(h)
        return self.head(h.mean(dim=(2, 3)))


def in_place_sequential() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Sequential(nn.Conv2d(4, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(inplace=True)),
        nn.Dropout(0.0),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, CLASSES),
    )


def resnet() -> nn.Module:
    from transformers import ResNetConfig, ResNetForImageClassification  # seconds, for those who build one

    shape = ResNetConfig(embedding_size=8, hidden_sizes=[8, 12], depths=[1, 1], layer_type="basic", num_labels=CLASSES)
    return ResNetForImageClassification(shape)


def convnext() -> nn.Module:
    from transformers import ConvNextConfig, ConvNextForImageClassification

    shape = ConvNextConfig(num_stages=2, hidden_sizes=[8, 12], depths=[1, 1], patch_size=2, num_labels=CLASSES)
    return ConvNextForImageClassification(shape)


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    special: dict[str, Any] = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), CLASSES - 1)
    dropout: dict[str, Any] = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    shape: dict[str, Any] = {"n_positions": 16, "n_embd": 8, "n_layer": 2, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(vocab_size=CLASSES, **shape, **special, **dropout))


def llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    shape: dict[str, Any] = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2}
    shape |= {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 16}
    special: dict[str, Any] = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), CLASSES - 1)
    return LlamaForCausalLM(LlamaConfig(vocab_size=CLASSES, use_cache=False, **shape, **special))


@dataclass(frozen=True)
class Case:
    name: str
    build: Callable[[], nn.Module]
    at: tuple[str, ...]
    shape: tuple[int, ...] = (3, 16, 16)
    upstream: str = ""  # a parameter in front of the first slot
    blueprint: str = "conv_light"
    topology: str | None = None
    tokens: bool = False

    def host(self) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(7)
            return self.build()

    def body(self, sink: Sink | None = None) -> Body:
        return self.graft(self.host(), sink)

    def graft(self, host: nn.Module, sink: Sink | None = None) -> Body:
        example, at = self.inputs(2), list(self.at)
        return esper.graft(host, at, example, topology=self.topology, thresholds=THRESHOLDS, sink=sink)

    def inputs(self, n: int = 4) -> Tensor:
        draw = torch.Generator().manual_seed(3)
        if self.tokens:
            return torch.randint(CLASSES, (n, *self.shape), generator=draw)
        return torch.randn(n, *self.shape, generator=draw)

    def labels(self, n: int = 4) -> Tensor:
        return torch.arange(n) % CLASSES


CASES = [
    Case(
        "conv",
        lambda: ConvHost(3, CLASSES, ConvShape((4, 6, 6), pool_after=(0,))),
        ("block0", "block1", "block2"),
        upstream="block0.0.weight",
    ),
    Case(
        "dense",
        lambda: DenseHost(7, CLASSES, (8, 8)),
        ("layer0", "layer1"),
        shape=(7,),
        upstream="layer0.0.weight",
        blueprint="mlp",
    ),
    Case("sequential-in-place", in_place_sequential, ("0", "2"), upstream="0.weight"),
    Case("residual", Residual, ("stem", "branch"), upstream="stem.weight"),
    Case(
        "hf-resnet",
        resnet,
        ("resnet.encoder.stages.0", "resnet.encoder.stages.1", "resnet.encoder.stages.1.layers.0.layer.0"),
        upstream="resnet.embedder.embedder.convolution.weight",
    ),
    Case(
        "hf-convnext",
        convnext,
        ("convnext.embeddings", "convnext.encoder.stages.0", "convnext.encoder.stages.1"),
        upstream="convnext.embeddings.patch_embeddings.weight",
    ),
]
LANGUAGE = [
    Case(
        "gpt",
        lambda: GPTHost(CLASSES, GPTShape(layers=2, width=8, heads=2, context=8)),
        ("block0", "block1", "block0.attention", "block1.mlp"),
        shape=(6,),
        upstream="embedding.tokens.weight",
        blueprint="block",
        tokens=True,
    ),
    Case(
        "hf-gpt2",
        gpt2,
        ("transformer.h.0", "transformer.h.1", "transformer.h.0.attn", "transformer.h.1.mlp"),
        shape=(6,),
        upstream="transformer.wte.weight",
        blueprint="mlp",
        tokens=True,
    ),
    Case(
        "hf-llama",
        llama,
        ("model.layers.0", "model.layers.1", "model.layers.0.self_attn", "model.layers.1.mlp"),
        shape=(6,),
        upstream="model.embed_tokens.weight",
        blueprint="gated_mlp",
        tokens=True,
    ),
]
"""Language models, which are causal and take tokens."""


def logits(output: Any) -> Tensor:
    return output if isinstance(output, Tensor) else output.logits


def loss_of(case: Case) -> Callable[[Any], Tensor]:
    def loss(output: Any) -> Tensor:
        scores = logits(output).flatten(0, -2)
        return nn.functional.cross_entropy(scores, case.labels(len(scores)))

    return loss


def gradients(case: Case, network: nn.Module) -> tuple[Tensor, list[Tensor | None]]:
    """Loss and gradients of one batch in training mode."""
    network.train()
    network.zero_grad()
    loss = loss_of(case)(network(case.inputs()))
    loss.backward()
    weights = network.host_weights() if isinstance(network, Body) else network.parameters()
    return loss.detach(), [None if p.grad is None else p.grad.clone() for p in weights]


def own_keys(module: nn.Module) -> list[str]:
    """The keys of a module's state, without those of seeds."""
    return [name for name in module.state_dict() if CHILD not in name]


def train_epoch(case: Case, body: Body, optimizer: torch.optim.Optimizer) -> None:
    body.train()
    optimizer.zero_grad()
    loss_of(case)(body(case.inputs())).backward()
    body.record_gradients()
    optimizer.step()
    everyone, quality = body.blended(), 0.5 + 0.01 * body.epoch
    body.record_qualities({everyone: quality, **{everyone - {slot}: quality - 0.5 for slot in everyone}})
    body.tick()


def do(body: Body, op: Op, slot: str, **heads: Any) -> None:
    verdict = body.execute(Action(op, slot, **heads))
    assert verdict, verdict.reasons


def grow(
    case: Case,
    body: Body,
    optimizer: torch.optim.Optimizer,
    slot: str,
    stage: Stage,
    style: Style = Style.LINEAR_ADD,
    blueprint: str | None = None,
) -> None:
    """Take a slot on to `stage` by real operations and real training."""
    if stage is Stage.DORMANT:
        return
    if body.slot(slot).state.stage is Stage.DORMANT:
        # A target below full strength, where the way in leads through BLENDING.
        target = AlphaTarget.HALF if stage is Stage.BLENDING else AlphaTarget.FULL
        do(body, Op.GERMINATE, slot, blueprint=blueprint or case.blueprint, style=style, alpha_target=target)
    if RULES[stage].cools:
        do(body, Op.PRUNE, slot, alpha_speed=AlphaSpeed.INSTANT)
        while body.slot(slot).state.stage is not stage:
            body.tick()
        return
    while (now := body.slot(slot).state.stage) is not stage:
        if now is Stage.HOLDING:
            train_epoch(case, body, optimizer)
            do(body, Op.FOSSILIZE, slot)
        elif not body.execute(Action(Op.ADVANCE, slot)):
            train_epoch(case, body, optimizer)
        assert body.epoch < 50
    if stage is Stage.BLENDING:
        train_epoch(case, body, optimizer)  # alpha is on its way


def life(
    case: Case, body: Body, optimizer: torch.optim.Optimizer, slot: str, style: Style = Style.LINEAR_ADD
) -> Iterator[Stage]:
    """Take a dormant slot through all stages, with a stop in each: out again at once, and then all the way in."""
    yield Stage.DORMANT
    grow(case, body, optimizer, slot, Stage.PRUNED)
    while (stage := body.slot(slot).state.stage) is not Stage.DORMANT:
        yield stage
        while body.slot(slot).state.stage is stage:
            body.tick()
    do(body, Op.GERMINATE, slot, blueprint=case.blueprint, style=style, alpha_target=AlphaTarget.HALF)
    for stage in (Stage.GERMINATED, Stage.TRAINING, Stage.BLENDING, Stage.HOLDING, Stage.FOSSILIZED):
        grow(case, body, optimizer, slot, stage, style)
        yield stage


def optimiser_of(body: Body, **seed_options: float) -> torch.optim.Optimizer:
    optimizer = torch.optim.AdamW(body.host_weights(), lr=1e-2)
    body.optimise_with(optimizer, **seed_options)
    return optimizer


def full_state(body: Body, optimizer: torch.optim.Optimizer | None = None) -> Any:
    """Everything an operation could change, as a copy."""
    state = {
        "weights": body.state_dict(),
        "snapshots": body.snapshots(),
        "modes": [module.training for module in body.modules()],
        "identities": [id(parameter) for parameter in body.parameters()],
        "optimizer": None if optimizer is None else optimizer.state_dict(),
        "random": torch.get_rng_state(),
    }
    return copy.deepcopy(state)


def same(left: Any, right: Any) -> bool:
    """Equality to the bit through nested containers."""
    if isinstance(left, Tensor):
        return isinstance(right, Tensor) and left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple) and not hasattr(left, "_fields"):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


PRUNE_SLOWLY = {"alpha_speed": AlphaSpeed.FAST}
