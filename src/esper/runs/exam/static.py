"""Networks that do not grow: what a controller's result must be compared with."""

import functools
from collections.abc import Callable, Sequence, Set
from dataclasses import replace

import torch
from torch import nn

from esper.contracts import EsperError, SlotId
from esper.environment import Task
from esper.growth import ConvHost, ConvShape, DenseHost, Fossil, GPTHost, GPTShape, count_parameters, plant


class NotWidenable(EsperError):
    """A host of somebody's own: nobody knows how to make it wider."""


def from_scratch(task: Task, fossils: Sequence[Fossil]) -> Task:
    """The task with the grown architecture as its host, all of it trained from the first epoch on."""
    kept = {fossil.slot for fossil in fossils}
    slots = tuple(_place(slot, kept) for slot in task.slots)
    return replace(task, slots=slots, build_host=functools.partial(_planted, task.build_host, tuple(fossils)))


def _planted(build: Callable[[], nn.Module], fossils: Sequence[Fossil]) -> nn.Module:
    return plant(build(), fossils)


def _place(slot: SlotId, kept: Set[SlotId]) -> SlotId:
    """Where a slot lies once fossils are built in: a submodule with one behind it has become the `host` of both."""
    parts = slot.split(".")
    inside = [f"{part}.host" if ".".join(parts[: depth + 1]) in kept else part for depth, part in enumerate(parts[:-1])]
    return ".".join([*inside, parts[-1]])


def widened(task: Task, parameters: int) -> Task:
    """The task with its host widened in all layers alike, to the first width that has at least so many parameters."""
    build = task.build_host
    if not isinstance(build, functools.partial) or build.func not in (ConvHost, DenseHost, GPTHost):
        raise NotWidenable(f"task '{task.name}' has a host of its own; leave out the control 'widened'")
    low, high = 1.0, 2.0
    while _size(_wider(build, high)) < parameters:
        low, high = high, high * 2
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (low, middle) if _size(_wider(build, middle)) >= parameters else (middle, high)
    return replace(task, build_host=_wider(build, high))


def _wider(build: "functools.partial[nn.Module]", factor: float) -> "functools.partial[nn.Module]":
    if isinstance(build.args[-1], GPTShape):
        vocabulary, gpt = build.args
        wide = replace(gpt, width=gpt.heads * round(factor * gpt.width / gpt.heads))
        return functools.partial(build.func, vocabulary, wide)
    inputs, classes, shape, *rest = build.args
    widths = tuple(round(factor * width) for width in (shape.channels if isinstance(shape, ConvShape) else shape))
    wider = replace(shape, channels=widths) if isinstance(shape, ConvShape) else widths
    return functools.partial(build.func, inputs, classes, wider, *rest)


def _size(build: Callable[[], nn.Module]) -> int:
    with torch.random.fork_rng(devices=[]):
        return count_parameters(build().parameters())
