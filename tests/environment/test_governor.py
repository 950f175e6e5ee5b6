"""Real faults, put into real episodes."""

import gc
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from esper.contracts import WAIT, Action, Op, Stage
from esper.environment import Episode, Governor, GovernorConfig, InvalidGovernor, World, Worth, find_task
from tests.environment.worlds import POINTWISE, SMALL


def episode(task=POINTWISE, seed: int = 0) -> Episode:
    return Episode(task, SMALL, seed, World())


def learned_episode() -> Episode:
    """A host that sees space, trained until its loss is well below guessing."""
    task = replace(find_task("digits"), load=POINTWISE.load, horizon=40, batch_size=16)
    running = episode(task)
    for _ in range(15):
        running.step(WAIT)
    assert running.evaluation.loss < 0.8 * math.log(10)
    return running


def test_a_healthy_episode_is_left_alone():
    running = episode()
    while not running.done:
        assert running.step(WAIT).panic is None
    assert running.body.epoch == POINTWISE.horizon


def test_nan_gradient_ends_the_episode_at_once_and_the_host_is_as_it_was():
    running = episode()
    for _ in range(3):
        running.step(WAIT)
    good = {name: value.clone() for name, value in running.body.host.state_dict().items()}
    weight = next(running.body.host.parameters())
    weight.register_hook(lambda gradient: gradient * math.nan)
    outcome = running.step(WAIT)
    assert outcome.panic is not None
    assert running.done
    for name, value in running.body.host.state_dict().items():
        assert torch.equal(value, good[name]), name
    assert not running.trainer.optimizer.state, "no momentum into the old direction"
    with pytest.raises(RuntimeError, match="the episode is over"):
        running.step(WAIT)


def test_after_a_rollback_the_clock_has_gone_on_and_the_evaluation_is_that_of_what_was_restored():
    running = episode()
    for _ in range(3):
        good = running.step(WAIT).evaluation
    next(running.body.host.parameters()).register_hook(lambda gradient: gradient * math.nan)
    outcome = running.step(WAIT)
    assert outcome.panic is not None
    assert running.snapshot.host.epoch == 4
    assert (outcome.evaluation.loss, outcome.evaluation.quality) == (good.loss, good.quality)


def test_a_host_that_is_lost_before_it_begins_ends_its_episode_with_the_first_step():
    def build() -> nn.Module:
        host = POINTWISE.build_host()
        nn.init.constant_(next(host.parameters()), math.nan)
        return host

    running = episode(replace(POINTWISE, build_host=build))
    assert not running.done
    assert running.step(WAIT).panic is not None
    assert running.done


def test_exploding_seed_is_removed_and_the_fossil_stays():
    running = learned_episode()
    for slot, stage in (("block1", Stage.FOSSILIZED), ("block2", Stage.HOLDING)):
        take_to(running, slot, stage)
    fossil = {name: value.clone() for name, value in running.body.slot("block1").seed.state_dict().items()}
    host = {name: value.clone() for name, value in running.body.host.state_dict().items()}
    for parameter in running.body.slot("block2").seed_parameters:
        nn.init.constant_(parameter, 1e30)
    assert running.step(WAIT).panic is not None
    assert running.body.slot("block2").seed is None
    assert running.body.slot("block1").state.stage is Stage.FOSSILIZED
    assert all(torch.equal(v, fossil[n]) for n, v in running.body.slot("block1").seed.state_dict().items())
    assert all(torch.equal(v, host[n]) for n, v in running.body.host.state_dict().items())


GUESS = Worth(quality=0.1, loss=math.log(10))


def take_to(running: Episode, slot: str, stage: Stage) -> None:
    """Through the real gates, but for the contribution, which a tiny evaluation split measures too coarsely."""
    running.body.execute(Action(Op.GERMINATE, slot, blueprint="conv_small"))
    while (now := running.body.slot(slot).state.stage) is not stage:
        if now is Stage.HOLDING:
            everyone = running.body.blended()
            running.body.record_qualities({everyone: 1.0, everyone - {slot}: 0.5})
            running.body.execute(Action(Op.FOSSILIZE, slot))
            if running.body.slot(slot).state.stage is stage:
                break
        running.step(Action(Op.ADVANCE, slot))
    running.step(WAIT)


def test_thousandfold_learning_rate_ends_the_episode():
    running = learned_episode()
    running.trainer._task = replace(running.task, learning_rate=1000 * running.task.learning_rate)
    panics = []
    while not running.done and len(panics) < 6:
        panics.append(running.step(WAIT).panic)
    assert panics[-1] is not None, panics


def test_zeroed_classifier_is_a_collapse_after_two_epochs():
    running = learned_episode()
    running.trainer.optimizer.step = lambda: None
    head = running.body.host.head[2]
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    assert running.step(WAIT).panic is None
    outcome = running.step(WAIT)
    assert outcome.panic is not None
    assert "is a guess" in outcome.panic


def test_one_bad_epoch_is_forgiven_and_two_running_are_not():
    governor = Governor(GovernorConfig(patience=2), GUESS)
    body = episode().body
    for loss in (2.0, 1.5, 1.2, 1.0):
        assert governor.check(body, loss, 0.6) is None
    assert governor.check(body, 6.0, 0.6) is None
    assert governor.check(body, 0.9, 0.6) is None
    assert governor.check(body, 6.0, 0.6) is None
    assert "far above its recent mean" in governor.check(body, 6.0, 0.6)


def test_a_host_that_never_learned_does_not_collapse():
    governor = Governor(GovernorConfig(), GUESS)
    body = episode().body
    for _ in range(20):
        assert governor.check(body, math.log(10), 0.1) is None


def test_the_state_kept_is_one_however_long_the_episode():
    """R4-C7: bounded memory."""
    running = episode(replace(POINTWISE, horizon=30))
    sizes = []
    while not running.done:
        running.step(WAIT)
        kept = running.governor._good
        sizes.append(sum(v.numel() for v in kept.values() if isinstance(v, torch.Tensor)))
    assert len(set(sizes)) == 1


def live_tensors() -> int:
    gc.collect()
    return sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects())


@pytest.mark.slow
def test_a_thousand_episodes_do_not_grow_memory():
    """R4-C7: no episode leaves anything behind, with growth and with rollbacks."""
    task = replace(POINTWISE, horizon=2, batch_size=128)

    def play(seed: int) -> None:
        running = episode(task, seed)
        running.step(Action(Op.GERMINATE, "block1", blueprint="conv_small"))
        if seed % 3 == 0:
            next(running.body.host.parameters()).register_hook(lambda gradient: gradient * math.nan)
        running.step(Action(Op.ADVANCE, "block1"))
        assert (running.panic is not None) == (seed % 3 == 0)

    for seed in range(20):
        play(seed)
    before = live_tensors()
    for seed in range(1000):
        play(seed)
    assert live_tensors() <= before  # what other tests left may be collected meanwhile


@pytest.mark.parametrize(
    "wrong",
    [
        {"learned_share": 0.99},
        {"collapsed_share": 1.5},
        {"window": 1},
        {"patience": 0},
        {"sigmas": math.nan},
        {"relative": 0.5},
    ],
)
def test_thresholds_outside_their_range_are_refused(wrong):
    with pytest.raises(InvalidGovernor, match=next(iter(wrong))):
        GovernorConfig(**wrong)
