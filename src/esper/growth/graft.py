"""Grafting: slots behind named submodules of any `nn.Module`. Everything is checked before anything is changed."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from esper.contracts import EsperError, NullSink, Sink, SlotId, Topology, nearest
from esper.growth.accounting import Cost, count_flops, count_parameters
from esper.growth.blueprints import blueprints_for, find_blueprint
from esper.growth.body import Body, GrowthConfig
from esper.growth.coalitions import evaluating
from esper.growth.slot import Site, Slot

Example = Tensor | tuple[Any, ...] | Mapping[str, Any]
"""Inputs of a small batch, as the host takes them: one tensor, positional or keyword arguments."""


class UnknownModule(EsperError):
    """The host has no submodule of that name."""


class SharedModule(EsperError):
    """The submodule has several names or runs several times, so "behind it" is not one place."""


class NotFeatures(EsperError):
    """The submodule does not put out one feature tensor."""


class AlreadyGrafted(EsperError):
    """The host has slots already."""


def graft(
    model: nn.Module,
    at: Sequence[SlotId],
    example: Example,
    *,
    topology: str | None = None,
    blueprints: Sequence[str] | None = None,
    config: GrowthConfig | None = None,
    generator: torch.Generator | None = None,
    sink: Sink | None = None,
) -> Body:
    """Give `model` a slot behind each submodule named in `at`, and return it as a body.

    The model's `state_dict`, outputs and gradients stay what they were until a seed is blended in. `example`
    is run once, without gradients, to see what the submodules put out. `topology` overrides what the rank of
    the features suggests, `blueprints` narrows what may germinate, `generator` is what newborn seeds draw from.

    >>> import esper
    >>> from esper.contracts import Action, Op
    >>> host = nn.Sequential(nn.Conv2d(1, 8, 1), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))
    >>> body = esper.graft(host, at=["1"], example=torch.zeros(2, 1, 8, 8))
    >>> bool(body.execute(Action(Op.GERMINATE, "1", blueprint="conv_light")))
    True
    """
    names = _checked_names(model, at)
    calls, cost = _probe(model, names, example)
    order = _checked_calls(calls, names)
    wanted = None if topology is None else _topology(topology)
    sites = [_site(name, calls[name][0], wanted, blueprints, order.index(name)) for name in names]
    config = config or GrowthConfig()
    slots = [Slot(site, config.isolation, calls[site.slot][0]) for site in sites]
    for slot in slots:
        model.get_submodule(slot.id).register_forward_hook(slot.after_host)
    generator = generator or torch.Generator().manual_seed(0)
    return Body(model, slots, order, cost, config, generator, sink or NullSink())


def _checked_names(model: nn.Module, at: Sequence[SlotId]) -> list[SlotId]:
    if isinstance(at, str) or not at:
        raise UnknownModule(f"`at` is {at!r}; give a list of submodule names, such as ['layer1', 'layer2']")
    modules = dict(model.named_modules(remove_duplicate=False))
    del modules[""]
    for name in at:
        if name not in modules:
            raise UnknownModule(f"the host has no submodule '{name}'; {nearest(name, modules)}")
        if list(at).count(name) > 1:
            raise SharedModule(f"'{name}' is named {list(at).count(name)} times in `at`; name it once")
        aliases = [other for other, module in modules.items() if module is modules[name]]
        if len(aliases) > 1:
            raise SharedModule(f"'{name}' is one module under the names {aliases}; a slot needs a module of its own")
    hooks = (hook for module in model.modules() for hook in module._forward_hooks.values())
    if any(isinstance(getattr(hook, "__self__", None), Slot) for hook in hooks):
        raise AlreadyGrafted("the host has slots already; graft a fresh one, or name all slots in one call")
    return list(at)


def _probe(model: nn.Module, names: Sequence[SlotId], example: Example) -> tuple[dict[SlotId, list[Any]], Cost]:
    """What each named submodule puts out, in the order of the calls, and the host's cost for one sample."""
    calls: dict[SlotId, list[Any]] = {}
    args, kwargs = _arguments(example)
    handles = [
        model.get_submodule(name).register_forward_hook(
            lambda module, inputs, output, name=name: calls.setdefault(name, []).append(output)
        )
        for name in names
    ]
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        with evaluating(model), torch.random.fork_rng():
            flops = count_flops(torch.func.functional_call, model, buffers, args, kwargs)
    finally:
        for handle in handles:
            handle.remove()
    batch = next((v.shape[0] for v in (*args, *kwargs.values()) if isinstance(v, Tensor) and v.ndim), 1)
    return calls, Cost(count_parameters(model.parameters()), flops // max(1, batch))


def _arguments(example: Example) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(example, Mapping):
        return (), dict(example)
    return (example if isinstance(example, tuple) else (example,)), {}


def _checked_calls(calls: Mapping[SlotId, list[Any]], names: Sequence[SlotId]) -> tuple[SlotId, ...]:
    for name in names:
        times = len(calls.get(name, ()))
        if times == 0:
            raise UnknownModule(f"'{name}' does not run when the host is called on the example; name one that does")
        if times > 1:
            raise SharedModule(f"'{name}' runs {times} times in one forward pass; a slot needs a module that runs once")
    return tuple(calls)


def _topology(name: str) -> Topology:
    if name not in tuple(Topology):
        raise NotFeatures(f"no topology '{name}'; {nearest(name, tuple(Topology))}")
    return Topology(name)


_BY_RANK = {2: Topology.DENSE, 3: Topology.TRANSFORMER, 4: Topology.CNN}


def _site(name: SlotId, output: Any, wanted: Topology | None, names: Sequence[str] | None, position: int) -> Site:
    if not isinstance(output, Tensor):
        raise NotFeatures(
            f"'{name}' puts out a {type(output).__name__}, not a tensor; name a submodule inside it whose output is one"
        )
    shape = tuple(output.shape)
    if not output.is_floating_point() or len(shape) not in _BY_RANK or 0 in shape:
        raise NotFeatures(
            f"'{name}' puts out {output.dtype} of shape {shape}; features are floating-point tensors of "
            "shape (batch, channels), (batch, tokens, channels) or (batch, channels, height, width)"
        )
    topology = wanted or _BY_RANK[len(shape)]
    if (topology is Topology.CNN) != (len(shape) == 4):
        raise NotFeatures(f"'{name}' puts out shape {shape}, which does not suit topology '{topology}'")
    known = tuple(blueprint.name for blueprint in blueprints_for(topology))
    if not known:
        raise NotFeatures(
            f"'{name}' has {topology} features, for which no blueprint is registered; register one with "
            "@blueprint, or pass topology='dense' to treat the last axis as channels"
        )
    chosen = known if names is None else tuple(find_blueprint(each, topology).name for each in names)
    return Site(name, topology, shape[topology.channel_axis], position, shape[1:], chosen)
