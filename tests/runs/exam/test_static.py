"""Networks that do not grow, made after one that did."""

import functools
from dataclasses import fields, replace

import pytest
import torch
from torch import nn

from esper.contracts import WAIT, Style, Topology
from esper.environment import GrowEnv, Task, find_task
from esper.growth import Fossil, count_parameters, graft
from esper.runs.exam.examiner import Examiner
from esper.runs.exam.static import NotWidenable, from_scratch, widened
from esper.runs.player import Game, Job, Purpose
from tests.environment.worlds import POINTWISE, grower, play
from tests.runs.worlds import tiny_task


def size(task):
    return count_parameters(task.build_host().parameters())


def shape(task):
    return task.build_host.args[2]


def differs(one, other):
    return {each.name for each in fields(Task) if getattr(one, each.name) != getattr(other, each.name)}


def grown_dense(tmp_path):
    task = tiny_task(tmp_path, horizon=12)
    player = Examiner(Game(reward="solo"))
    player.play(Job(task, 1, "heuristic", Purpose.COMPARE))
    return find_task(task), player.env(task).episode.body


def grown_conv(tmp_path):
    task = replace(POINTWISE, horizon=20, learning_rate=0.02)
    env = GrowEnv(task, "solo")
    play(env, grower(("block1", "conv_light"), ("block0", "attention")), seed=0)
    return task, env.episode.body


@pytest.mark.parametrize("grow", [grown_dense, grown_conv])
def test_from_scratch_has_exactly_the_parameters_and_the_names_of_the_grown_network(grow, tmp_path):
    task, body = grow(tmp_path)
    assert body.delivered()
    kept, scratch = body.harvest(), from_scratch(task, body.delivered()).build_host()
    assert count_parameters(scratch.parameters()) == count_parameters(kept.parameters()) > task.host_parameters()
    assert {name: each.shape for name, each in scratch.state_dict().items()} == {
        name: each.shape for name, each in kept.state_dict().items()
    }
    scratch.load_state_dict(kept.state_dict())
    x = task.load(None).test.x[:9]
    assert torch.equal(scratch.eval()(x), kept.eval()(x))


def test_from_scratch_is_the_same_task_otherwise_and_learns_everything_from_the_first_epoch(tmp_path):
    task, body = grown_dense(tmp_path)
    scratch = from_scratch(task, body.delivered())
    assert differs(scratch, task) == {"build_host"}
    env = GrowEnv(scratch, "solo")
    env.reset(seed=0)
    before = {name: each.clone() for name, each in env.episode.body.host.named_parameters()}
    env.step(env.codec.encode(WAIT))
    moved = {name for name, each in env.episode.body.host.named_parameters() if not torch.equal(each, before[name])}
    assert any("seed" in name for name in moved)
    assert env.episode.snapshot.host.parameters == size(scratch)


def test_from_scratch_starts_its_host_from_the_first_weights_of_the_seed(tmp_path):
    task, body = grown_dense(tmp_path)
    torch.manual_seed(3)
    plain = task.build_host().state_dict()
    torch.manual_seed(3)
    scratch = from_scratch(task, body.delivered()).build_host().state_dict()
    found = {name.replace(".host", ""): each for name, each in scratch.items() if ".seed." not in name}
    assert found.keys() == plain.keys()
    assert all(torch.equal(found[name], plain[name]) for name in plain)


@pytest.mark.parametrize("kept", [("block0",), ("block0.1",), ("block0.1", "block0")])
def test_slots_inside_each_other_can_all_be_kept(kept):
    task = find_task("cifar10-deep")
    fossils = [Fossil(slot, Topology.CNN, 8, "conv_light", Style.LINEAR_ADD, 1.0) for slot in kept]
    scratch = from_scratch(task, fossils)
    body = graft(scratch.build_host(), scratch.slots, torch.zeros(2, 3, 32, 32))
    assert len(body.execution_order) == len(task.slots)


@pytest.mark.parametrize("name", ["digits", "spirals", "cifar10-deep", "fashion-pointwise"])
@pytest.mark.parametrize("factor", [1.0, 1.01, 1.9, 3.7, 20.0])
def test_widened_is_the_first_width_that_suffices(name, factor):
    task = find_task(name)
    wanted = int(factor * task.host_parameters())
    found = widened(task, wanted)
    assert differs(found, task) <= {"build_host"}
    assert size(found) >= wanted
    assert all(size(replace(task, build_host=each)) < wanted for each in narrower(task, shape(found)))


def narrower(task, found):
    """The next smaller host of all those whose widths are one factor times the task's, rounded."""
    widths = shape(task)
    plain = getattr(widths, "channels", widths)
    goal = getattr(found, "channels", found)
    along = (tuple(round(step / 1000 * width) for width in plain) for step in range(1000, 6000))
    smaller = [each for each in dict.fromkeys(along) if sum(each) < sum(goal)]
    for last in smaller[-1:]:
        other = replace(widths, channels=last) if hasattr(widths, "channels") else last
        inputs, classes, _, *rest = task.build_host.args
        yield functools.partial(task.build_host.func, inputs, classes, other, *rest)


def test_widening_leaves_the_global_random_numbers_alone():
    before = torch.get_rng_state()
    widened(find_task("digits"), 5_000)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("build", [lambda: nn.Linear(2, 3), functools.partial(nn.Linear, 2, 3)])
def test_a_host_of_somebody_s_own_cannot_be_widened(build):
    with pytest.raises(NotWidenable, match="task 'spirals' has a host of its own; leave out the control 'widened'"):
        widened(replace(find_task("spirals"), build_host=build), 100)
