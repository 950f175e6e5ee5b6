"""What a network costs: exact parameter counts, and floating-point operations of one forward pass.

Operations are counted by PyTorch's own counter (a multiply-add is two), extended by what it leaves out and
small networks cannot neglect: one operation per output element of a pointwise function, one per input element
of a reduction, and the handful per element that a normalisation takes. Attention counts as if every token looked at
all, hidden ones too. Looking up an embedding computes nothing.
"""

from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.backends import mha
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from esper.contracts import Operator, SlotId
from esper.growth.blending import assemble
from esper.growth.blueprints import Blueprint
from esper.growth.coalitions import evaluating
from esper.growth.front import Front
from esper.growth.slot import Site, Slot

aten = torch.ops.aten

NORM_OPERATIONS = 7  # per element: sum, square, sum, subtract, scale, weigh, shift


_POINTWISE = (
    aten.add, aten.sub, aten.mul, aten.div, aten.neg, aten.pow, aten.exp, aten.sqrt, aten.rsqrt, aten.sigmoid,
    aten.tanh, aten.relu, aten.gelu, aten.silu, aten.hardtanh, aten.hardswish, aten.hardsigmoid, aten.leaky_relu,
    aten.elu, aten.sin, aten.cos,
    aten.add_, aten.mul_, aten.relu_, aten.hardtanh_, aten.silu_, aten.hardswish_, aten.leaky_relu_,
)  # fmt: skip
_REDUCTIONS = (
    aten.sum, aten.mean, aten.max_pool2d_with_indices, aten.avg_pool2d, aten._adaptive_avg_pool2d, aten._softmax,
    aten._safe_softmax, aten._log_softmax,
)  # fmt: skip
_NORMS = (
    aten.native_group_norm, aten.native_layer_norm, aten.native_batch_norm, aten._native_batch_norm_legit,
    aten._native_batch_norm_legit_no_training, aten.cudnn_batch_norm,
)  # fmt: skip


def _per_output(*args: Any, out_val: Tensor, **kwargs: Any) -> int:
    return out_val.numel()


def _per_input(first: Tensor, *args: Any, **kwargs: Any) -> int:
    return first.numel()


def _norm(first: Tensor, *args: Any, **kwargs: Any) -> int:
    return NORM_OPERATIONS * first.numel()


def _formulas(formula: Callable[..., int], ops: Iterable[Any]) -> dict[Any, Callable[..., int]]:
    formula._get_raw = True  # type: ignore[attr-defined]  # the counter's way to ask for tensors, not shapes
    return dict.fromkeys(ops, formula)


_EXTRA = {**_formulas(_per_output, _POINTWISE), **_formulas(_per_input, _REDUCTIONS), **_formulas(_norm, _NORMS)}


def count_parameters(parameters: Iterable[nn.Parameter]) -> int:
    """All of them, frozen ones too: structure, not flags."""
    return sum(parameter.numel() for parameter in parameters)


def count_layers(host: nn.Module) -> int:
    """The modules with a weight of their own that has at least two axes; norms have one."""
    return sum(any(each.ndim > 1 for each in part.parameters(recurse=False)) for part in host.modules())


def count_flops(run: Callable[..., Any], *args: Any, **kwargs: Any) -> int:
    """Floating-point operations of one call."""
    with _every_operation(), FlopCounterMode(display=False, custom_mapping=_EXTRA) as counter:
        run(*args, **kwargs)
    return int(counter.get_total_flops())


@contextmanager
def _every_operation() -> Iterator[None]:
    """PyTorch's transformer layers have a fast path for evaluation, recurrent layers one in oneDNN, and attention has
    kernels of each device's own: single operations that no counter sees into.
    """
    fast, one_dnn = mha.get_fastpath_enabled(), torch._C._get_mkldnn_enabled()
    mha.set_fastpath_enabled(False)
    torch._C._set_mkldnn_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        mha.set_fastpath_enabled(fast)
        torch._C._set_mkldnn_enabled(one_dnn)


@dataclass(frozen=True)
class Cost:
    """Parameters, and operations of a forward pass for one sample."""

    parameters: int
    flops: int

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.parameters + other.parameters, self.flops + other.flops)


@dataclass(frozen=True)
class Costs:
    """What each part costs in the present stage.

    `seeds` has every seed that is present. `live` is the network as it is evaluated now, `kept` what `harvest()` would
    return.
    """

    host: Cost
    seeds: dict[SlotId, Cost]
    live: Cost
    kept: Cost


def costs_of(host: Cost, slots: Iterable[Slot], delivered: Container[SlotId]) -> Costs:
    """The costs of a host with these slots, of which some deliver their seeds."""
    present = [(slot, seed_cost(slot)) for slot in slots if slot.seed is not None]
    live = kept = host
    for slot, cost in present:
        live += cost
        if slot.id in delivered:
            kept += cost
    return Costs(host, {slot.id: cost for slot, cost in present}, live, kept)


def seed_cost(slot: Slot) -> Cost:
    """The seed's own cost, blending included, for one sample's features."""
    seed = slot.seed
    if seed is None:
        return Cost(0, 0)
    features = torch.zeros(1, *slot.site.shape, device=slot._alpha.device, dtype=slot._alpha.dtype)
    call = slot.site.front.call.like(features)
    with evaluating(seed):
        return Cost(count_parameters(seed.parameters()), count_flops(seed, features, slot.alpha, call))


def newborn_cost(blueprint: Blueprint, site: Site, operator: Operator) -> Cost:
    """What a seed of that blueprint would cost in that place, blended in by `operator`.

    Nothing is allocated, unless somebody's block cannot do without values.
    """
    try:
        with torch.device("meta"):
            return _cost_of_newborn(blueprint, site, operator, site.front.hollow())
    except (RuntimeError, NotImplementedError):
        with torch.random.fork_rng(devices=[]):
            return _cost_of_newborn(blueprint, site, operator, site.front)


def _cost_of_newborn(blueprint: Blueprint, site: Site, operator: Operator, front: Front) -> Cost:
    seed = assemble(blueprint.newborn(site.channels, front), operator, site.channels, site.topology)
    place = next((each.device for each in front.module.parameters()), None)
    features = torch.zeros(1, *site.shape, device=place)
    with evaluating(seed.to(place)):
        return Cost(count_parameters(seed.parameters()), count_flops(seed, features, 1.0, front.call))
