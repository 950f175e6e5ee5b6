"""Where something can grow: the ends of a model's blocks, found by running it on an example.

A model is read as a row of blocks. A block is a submodule that does one step of the work: a layer, or a submodule of a
class of its own that puts out features and has no more than half of the model's layers. Behind each block with weights
there is one place, before the next block with weights begins. Of many places a few are taken: ends of stages, which
are runs of places with features of one shape, and if these are fewer, places between them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from esper.contracts import SlotId, Topology, nearest
from esper.gardener.errors import NoPlace
from esper.growth.attachment import attach, detach
from esper.growth.features import RANKS
from esper.growth.interface import Call
from esper.growth.proof import EVALUATION, MODES, Example, Witness, calls, run, tensors_in
from esper.growth.topologies import causal_tokens, topology_of

MOST_PLACES = 4
"""So many are taken at most; each one more makes every decision harder."""
LEAST_CHANNELS = 2
PATTERN = frozenset("*?[")
CONTAINERS = nn.ModuleList | nn.ModuleDict
AXES: tuple[tuple[type[nn.Module], str, int], ...] = (
    (nn.modules.conv._ConvNd, "out_channels", 1),
    (_NormBase, "num_features", 1),
    (nn.GroupNorm, "num_channels", 1),
    (nn.Linear, "out_features", -1),
    (nn.Embedding, "embedding_dim", -1),
)
"""On which axis layers put their channels, and how many these are."""


@dataclass(frozen=True)
class Place:
    """The output of a submodule, with its shape in the example."""

    slot: SlotId
    topology: Topology
    shape: tuple[int, ...]

    @property
    def channels(self) -> int:
        return self.shape[self.topology.channel_axis]


@dataclass(frozen=True)
class Places:
    """Where to grow, in the order of the forward pass, and why not elsewhere, by the names of submodules."""

    taken: tuple[Place, ...]
    left_out: dict[str, str]


def find_places(model: nn.Module, at: str | Sequence[SlotId], example: Example) -> Places:
    """The places that are named, those that match a pattern such as `layer*`, or for `auto` a few good ones."""
    if not isinstance(at, str):
        return Places(tuple(_named(model, at, example)), {})
    found = Reader(model, example).places()
    if at == "auto":
        return found
    names = [name for name, _ in model.named_modules() if name and fnmatchcase(name, at)]
    if not names:
        known = [name for name, _ in model.named_modules() if name]
        raise NoPlace(f"no submodule matches '{at}'; {nearest(at, known)}")
    return Places(tuple(_named(model, names, example)), {})


def _named(model: nn.Module, names: Sequence[SlotId], example: Example) -> Iterator[Place]:
    """As they are; what is wrong with them is for `graft` to say."""
    modules = dict(model.named_modules())
    known = [name for name in names if name in modules]
    seen = calls(model, known, example)[EVALUATION]
    tokens = causal_tokens(model, known, example)
    for name in names:
        outputs = seen.get(name, [None])
        shape = tuple(outputs[0].shape) if isinstance(outputs[0], Tensor) else ()
        yield Place(name, topology_of(shape, tokens) or Topology.DENSE, shape)


@dataclass(frozen=True)
class Block:
    """A step of the work: its name, its module and what it puts out; `weighs` if it has a layer."""

    name: str
    module: nn.Module
    output: Any
    weighs: bool


class Reader:
    """Reads one model on one example."""

    def __init__(self, model: nn.Module, example: Example) -> None:
        self._model, self._example = model, example
        self._outputs = run(model, example, EVALUATION)
        self._rows = _rows(example)
        self._modules = {
            name: part
            for name, part in model.named_modules()
            if name and not isinstance(part, CONTAINERS) and type(part).forward is not nn.Module.forward
        }
        self._calls = calls(model, list(self._modules), example)
        self._order = list(self._calls[EVALUATION])
        self._tokens = causal_tokens(model, list(self._modules), example)
        self._layers = sum(map(_is_layer, model.modules()))
        self._why: dict[str, str] = {}

    def places(self) -> Places:
        """A few good ones."""
        segments = self._segments()
        row = [(self._place(segment), segments[index + 1 :]) for index, segment in enumerate(segments)]
        found = self._followed([(place, after) for place, after in row if place is not None])
        taken = _spread(found)
        for place in found:
            if place not in taken:
                self._why[place.slot] = f"one of {len(found)} places, of which {len(taken)} are enough"
        if not taken:
            reasons = "; ".join(f"{name}: {why}" for name, why in list(self._why.items())[: MOST_PLACES * 2])
            raise NoPlace(
                f"no place to grow was found ({reasons or 'the model calls no submodules'}); name submodules by "
                "at=[...] that put out features of shape (batch, channels), (batch, tokens, channels) or (batch, "
                "channels, height, width)"
            )
        for place in taken:
            self._why.pop(place.slot, None)
        return Places(tuple(taken), self._why)

    def _segments(self) -> list[list[Block]]:
        """Blocks in the order in which they end, cut before each that weighs, without what comes before the first."""
        blocks = sorted(self._blocks(self._model, ""), key=lambda block: self._order.index(block.name))
        segments: list[list[Block]] = []
        for block in blocks:
            if block.weighs:
                segments.append([block])
            elif segments:
                segments[-1].append(block)
        self._last = segments[-1][0].name if segments else ""
        for block in segments.pop() if segments else ():
            self._why[block.name] = "the model's output, or behind the last layer"
        return segments

    def _blocks(self, module: nn.Module, prefix: str) -> Iterator[Block]:
        for child_name, child in module.named_children():
            name = f"{prefix}{child_name}"
            output = self._output(name)
            inner = list(self._blocks(child, f"{name}."))
            layers = sum(map(_is_layer, child.modules()))
            own = isinstance(child, nn.Sequential | CONTAINERS) or layers * 2 > self._layers
            if name in self._order and (not inner or (_is_features(output) and not own)):
                yield Block(name, child, output, layers > 0)
            elif output is None or own or not inner:
                yield from inner
            else:  # it works in parts, of which none but the last is the end of a step
                yield replace(inner[-1], weighs=layers > 0)

    def _followed(self, row: Sequence[tuple[Place, Sequence[Sequence[Block]]]]) -> list[Place]:
        """The places whose features another layer reads. The others are outputs: there may be several of these.

        What several layers read one after the other need not be tried, but vectors may be outputs anywhere.
        """
        found: list[Place] = []
        for place, after in reversed(row):
            later = [segment[0].name for segment in after] + [self._last]
            if (found and len(place.shape) > 2) or self._changes(place.slot, later):
                found.insert(0, place)
            else:
                self._why[place.slot] = "an output: no other layer reads it"
        return found

    def _changes(self, name: str, later: Sequence[str]) -> bool:
        """Whether other features in `name` give other outputs of one of the later blocks."""
        seen: dict[str, list[Any]] = {}
        watched = {name: Nudge(), **{each: Witness(each, seen) for each in later}}
        for each, module in watched.items():
            attach(self._model.get_submodule(each), module)
        try:
            run(self._model, self._example, EVALUATION)
        finally:
            for each in watched:
                detach(self._model.get_submodule(each))
        before = self._calls[EVALUATION]
        return any(_differ(before[each][0], seen[each][0]) for each in later)

    def _output(self, name: str) -> Any:
        seen = self._calls[EVALUATION].get(name, [])
        return seen[0] if seen else None

    def _place(self, segment: Sequence[Block]) -> Place | None:
        """The last good features of a segment: not yet flattened or pooled to a point, before a dropout."""
        weighing = segment[0]
        layers = [part for part in weighing.module.modules() if _is_layer(part)]
        if all(isinstance(layer, nn.Embedding) for layer in layers):
            self._why[weighing.name] = "an embedding, which has nothing to grow on yet"
            return None
        axis = _axis_of(weighing)
        fit = []
        for block in segment:
            name = self._outermost(block)
            why = self._misfit(name, block.output, axis)
            topology = topology_of(block.output.shape, self._tokens) if why is None else None
            if topology is not None:
                fit.append((Place(name, topology, tuple(block.output.shape)), block.module))
            elif block.weighs or _is_features(block.output):
                self._why[name] = why or "puts out features of no known topology"
        rank = max((len(place.shape) for place, _ in fit), default=0)
        spread = [each for each in fit if len(each[0].shape) == rank and (rank < 4 or each[0].shape[2:] != (1, 1))]
        fit = spread or fit
        wanted = [(place, module) for place, module in fit if not _is_idle(module, place.topology)] or fit
        return wanted[-1][0] if wanted else None

    def _outermost(self, block: Block) -> str:
        """The submodule of the shortest name that puts out the same tensor and may have a slot."""
        names = [block.name]
        while "." in names[-1]:
            names.append(names[-1].rpartition(".")[0])
        same = [name for name in names if self._output(name) is block.output and self._once(name) is None]
        return same[-1] if same else block.name

    def _misfit(self, name: str, output: Any, axis: int | None) -> str | None:
        """Why there can be no slot behind a submodule; None if there can."""
        if not _is_features(output):
            given = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else f"a {type(output).__name__}"
            return f"puts out {given}, which is no feature tensor"
        shape = tuple(output.shape)
        if any(output is each or _equal(output, each) for each in self._outputs):
            return "the model's output"
        if self._rows not in shape[: 2 if len(shape) == 3 else 1]:
            return f"puts out shape {shape}, whose first axis is not the batch"
        if len(shape) == 3 and axis != -1:
            why = "has its channels in the middle axis" if axis == 1 else "does not show which axis has the channels"
            return f"puts out shape {shape}, which {why}; name it in `at` if the last axis has them"
        if len(shape) == 4 and axis == -1:
            return (
                f"puts out shape {shape} with the channels last, and blueprints for images need them in the second axis"
            )
        if shape[1 if len(shape) == 4 else -1] < LEAST_CHANNELS:
            return f"puts out shape {shape}: a single channel is too little"
        return self._once(name)

    def _once(self, name: str) -> str | None:
        """Why a submodule is not one place; None if it is."""
        module = self._model.get_submodule(name)
        aliases = [other for other, part in self._model.named_modules(remove_duplicate=False) if part is module]
        if len(aliases) > 1:
            return f"is shared, under the names {', '.join(aliases)}"
        times = {mode: len(self._calls[mode].get(name, ())) for mode in MODES}
        for mode, count in times.items():
            if count != 1:
                return f"runs {count} times in {mode}" if count else f"is passed over in {mode}"
        return None


class Nudge(nn.Module):
    """In a slot's place, gives other features."""

    def forward(self, features: Tensor, call: Call) -> Tensor:
        return 1.5 * features + 1.0


def _differ(one: Any, other: Any) -> bool:
    pairs = zip(tensors_in(one), tensors_in(other), strict=True)
    return any(before.shape != after.shape or not torch.equal(before, after) for before, after in pairs)


DROPOUTS = nn.modules.dropout._DropoutNd


def _is_idle(module: nn.Module, topology: Topology) -> bool:
    """Whether the step of the work is done before it: it is a dropout, or a norm that begins the next step."""
    is_norm = not any(map(_is_layer, module.modules())) and any(True for _ in module.parameters())
    return isinstance(module, DROPOUTS) or (topology.layout.norm_first and is_norm)


def _rows(example: Example) -> int:
    return next((each.shape[0] for each in tensors_in(example) if each.ndim), 1)


def _is_layer(module: nn.Module) -> bool:
    """Whether it has a matrix of weights of its own."""
    return any(weight.ndim > 1 for weight in module.parameters(recurse=False))


def _is_features(output: Any) -> bool:
    if not isinstance(output, Tensor) or output.is_nested:
        return False
    return output.is_floating_point() and output.ndim in RANKS and 0 not in output.shape


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool((one.detach() == other).all())


def _axis_of(block: Block) -> int | None:
    """Where a block has its channels, by the last layer in it whose channels fit; None if none does."""
    output = block.output
    if not isinstance(output, Tensor):
        return None
    for part in reversed(list(block.module.modules())):
        for kind, attribute, axis in AXES:
            if isinstance(part, kind) and output.ndim > 1 and getattr(part, attribute) == output.shape[axis]:
                return axis
        weight = getattr(part, "weight", None)
        if isinstance(weight, Tensor) and weight.ndim == 1 and weight.shape[0] == output.shape[-1]:
            return -1  # a norm over the last axis
    return None


def _spread(places: Sequence[Place]) -> list[Place]:
    """A few of them: the ends of stages, and if there are fewer stages, places that divide the longest ones."""
    lengths: list[int] = []
    for place, before in zip(places, [None, *places], strict=False):
        if before is not None and place.shape == before.shape:
            lengths[-1] += 1
        else:
            lengths.append(1)
    ends = [sum(lengths[: stage + 1]) - 1 for stage in range(len(lengths))]
    if len(ends) > MOST_PLACES:
        last = len(ends) - 1
        ends = [ends[round(index * last / (MOST_PLACES - 1))] for index in range(MOST_PLACES)]
    else:
        shares = [1] * len(lengths)
        while sum(shares) < min(MOST_PLACES, len(places)):
            parts = [length / share if share < length else 0.0 for length, share in zip(lengths, shares, strict=True)]
            shares[parts.index(max(parts))] += 1
        ends = [
            end - length + (part + 1) * length // share
            for end, length, share in zip(ends, lengths, shares, strict=True)
            for part in range(share)
        ]
    return [places[end] for end in ends]
