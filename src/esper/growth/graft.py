"""Grafting: slots behind named submodules of any `nn.Module`. Everything is checked before anything is changed."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from esper.contracts import EsperError, NullSink, Sink, SlotId, Topology, nearest
from esper.growth.accounting import Cost, count_flops, count_parameters
from esper.growth.attachment import Attached, attach, detach
from esper.growth.blueprints import blueprints_for, find_blueprint
from esper.growth.body import Body
from esper.growth.features import NotFeatures, check_features
from esper.growth.front import Front, fronts_of
from esper.growth.gates import Thresholds
from esper.growth.interface import Call
from esper.growth.proof import EVALUATION, Calls, Example, arguments_of, calls, first_difference, outputs, run
from esper.growth.reach import reaches
from esper.growth.slot import Site, Slot
from esper.growth.topologies import causal_tokens, topology_of

Narrowing = Sequence[str] | Mapping[SlotId, Sequence[str]] | None
"""Names of blueprints for all slots, or slot by slot; None for all that fit."""
Topologies = str | Mapping[SlotId, str] | None
"""The topology of all slots, or of the slots that it names; None for what the features suggest."""


class UnknownModule(EsperError):
    """The host has no submodule of that name."""


class SharedModule(EsperError):
    """The submodule has several names or runs several times, so "behind it" is not one place."""


class AlreadyGrafted(EsperError):
    """The host has slots already."""


class AlreadyCompiled(EsperError):
    """The host was compiled before it had slots."""


class AlreadyDistributed(EsperError):
    """The host was made ready for several processes before it had slots."""


class PassedOver(EsperError):
    """In some mode the submodule is not called, though it is in others."""


class NotTransparent(EsperError):
    """The host notices that it has slots."""


def graft(
    model: nn.Module,
    at: Sequence[SlotId],
    example: Example,
    *,
    topology: Topologies = None,
    blueprints: Narrowing = None,
    thresholds: Thresholds | None = None,
    generator: torch.Generator | None = None,
    sink: Sink | None = None,
) -> Body:
    """Give `model` a slot behind each submodule named in `at`, and return it as a body.

    The keys of the model's `state_dict`, outputs and gradients stay what they were until a seed is there. `example` is
    run in training and evaluation mode, with gradients and without, to see what the submodules put out and to prove
    that nothing has changed. `topology` overrides what the features suggest, for all slots or slot by slot,
    `blueprints` narrows what may germinate, `generator` is what newborn seeds draw from.

    >>> import esper
    >>> from esper.contracts import Action, Op
    >>> host = nn.Sequential(nn.Conv2d(1, 8, 1), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))
    >>> body = esper.graft(host, at=["1"], example=torch.zeros(2, 1, 8, 8))
    >>> bool(body.execute(Action(Op.GERMINATE, "1", blueprint="conv_light")))
    True
    """
    names = _checked_names(model, at)
    found = calls(model, names, example)
    order = _checked_calls(found, names)
    features = {name: seen[0] for name, seen in found[EVALUATION].items()}
    for name in names:
        check_features(model, name, features[name], example)
    tokens = causal_tokens(model, names, example)
    topologies = {name: _topology(name, features[name], _wanted(topology, name), tokens) for name in names}
    fronts, seen = fronts_of(model, names, example), reaches(model, names, example)
    sites = [
        Site(
            slot=name,
            topology=kind,
            channels=features[name].shape[kind.channel_axis],
            position=order.index(name),
            shape=tuple(features[name].shape[1:]),
            blueprints=_offered(name, kind, fronts[name], blueprints),
            front=fronts[name],
            reach=seen.get(name),
        )
        for name, kind in topologies.items()
    ]
    slots = [Slot(site, features[site.slot]) for site in sites]
    cost = _host_cost(model, example)
    _prove_unchanged(model, slots, example)
    generator = generator or torch.Generator().manual_seed(0)
    return Body(model, slots, cost, thresholds or Thresholds(), generator, sink or NullSink(), example)


def _checked_names(model: nn.Module, at: Sequence[SlotId]) -> list[SlotId]:
    if isinstance(at, str) or not at:
        raise UnknownModule(f"`at` is {at!r}; give a list of submodule names, such as ['layer1', 'layer2']")
    if hasattr(model, "_orig_mod"):
        raise AlreadyCompiled("the model is compiled and would not see its seeds; graft it first, then compile it")
    if isinstance(model, DistributedDataParallel):
        raise AlreadyDistributed(
            "the model is wrapped in DistributedDataParallel, which would miss seeds; graft `model.module`, and wrap "
            "it after that and after every birth and removal"
        )
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
    if any(isinstance(module, Attached) for module in model.modules()):
        raise AlreadyGrafted("the host has slots already; ungraft it, or name all slots in one call")
    return list(at)


def _host_cost(model: nn.Module, example: Example) -> Cost:
    """For one sample, run alone if the host can be."""
    parameters, whole = count_parameters(model.parameters()), Call(*arguments_of(example))
    tensors = [each for each in (*whole.args, *whole.kwargs.values()) if isinstance(each, Tensor) and each.ndim]
    batch = max(1, tensors[0].shape[0]) if tensors else 1
    one = whole.first_rows(1, of=batch)
    try:
        return Cost(parameters, count_flops(run, model, one.kwargs or one.args, EVALUATION))
    except Exception:  # anybody's code
        return Cost(parameters, count_flops(run, model, example, EVALUATION) // batch)


def _checked_calls(found: Calls, names: Sequence[SlotId]) -> tuple[SlotId, ...]:
    """The names in the order in which they run, once each, in every mode."""
    for name in names:
        times = {mode: len(seen.get(name, ())) for mode, seen in found.items()}
        if not any(times.values()):
            raise UnknownModule(
                f"'{name}' does not run when the host is called on the example, or others only read its weights; "
                "name one that does"
            )
        passed_over = next((mode for mode, count in times.items() if count == 0), None)
        if passed_over is not None:
            raise PassedOver(
                f"'{name}' is not called in {passed_over}: a fast path around it reads its weights; "
                "name the module that it is part of"
            )
        most = max(times.values())
        if most > 1:
            raise SharedModule(f"'{name}' runs {most} times in one forward pass; a slot needs a module that runs once")
    return tuple(found[EVALUATION])


def _prove_unchanged(model: nn.Module, slots: Sequence[Slot], example: Example) -> None:
    """Attach the slots; if anything changes by that, take them away again and say so."""
    before = outputs(model, example)
    for slot in slots:
        attach(model.get_submodule(slot.id), slot)
    mode = first_difference(before, outputs(model, example))
    if mode is not None:
        for slot in slots:
            detach(model.get_submodule(slot.id))
        raise NotTransparent(
            f"empty slots change what the host puts out in {mode}: its output depends on more than its inputs, or on "
            "the types of its submodules; name other submodules"
        )


def _wanted(topologies: Topologies, slot: SlotId) -> Topology | None:
    name = topologies.get(slot) if isinstance(topologies, Mapping) else topologies
    if name is None:
        return None
    if name not in tuple(Topology):
        raise NotFeatures(f"no topology '{name}'; {nearest(name, tuple(Topology))}")
    return Topology(name)


def _topology(name: SlotId, output: Tensor, wanted: Topology | None, tokens: int | None) -> Topology:
    """What was asked for, if the features can be that, or what they are."""
    shape = tuple(output.shape)
    if wanted is None and len(shape) == 3 and tokens is None:
        raise NotFeatures(
            f"'{name}' puts out shape {shape}, and the host was not found to be causal; if the last axis, of "
            f"{shape[-1]}, holds the channels, pass topology='dense'; if the middle one does, as behind a Conv1d, name "
            "another submodule, which has them last"
        )
    topology = wanted or topology_of(shape, tokens)
    if topology is None or len(shape) not in topology.layout.ranks:
        fitting = [f"'{each}' are {each.layout.axes}" for each in Topology]
        raise NotFeatures(
            f"'{name}' puts out shape {shape}, which does not suit topology '{topology}'; of features, "
            f"{', '.join(fitting)}"
        )
    return topology


def _offered(name: SlotId, topology: Topology, front: Front, names: Narrowing) -> tuple[str, ...]:
    """What may germinate in a slot: of the names that were given, those that are right there."""
    known = tuple(blueprint.name for blueprint in blueprints_for(topology) if blueprint.fits(front))
    asked = names.get(name) if isinstance(names, Mapping) else names
    if asked is None:
        return known
    everywhere = {blueprint.name for each in Topology for blueprint in blueprints_for(each)}
    for each in asked:
        if each not in everywhere:
            find_blueprint(each, topology)
    fitting = tuple(each for each in asked if each in known)
    if not fitting:
        raise NotFeatures(
            f"`blueprints` has {list(asked)} for '{name}', which has {topology} features{_lacking(topology, front)}; "
            f"give at least one of {', '.join(known)}"
        )
    return fitting


def _lacking(topology: Topology, front: Front) -> str:
    """Why some blueprints for these features are not right there."""
    if not topology.layout.causal or (front.looks_back and front.block):
        return ""
    if not front.looks_back:
        return " and is not given the cache of earlier tokens that the model can be called with"
    return " and is no block that adds to what it is given"
