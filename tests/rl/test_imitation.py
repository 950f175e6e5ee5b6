"""Imitation: who is imitated, what counts, and when it ends."""

from dataclasses import replace

import pytest
import torch

from esper.rl import (
    Buffer,
    EpisodesInMemory,
    IllegalChoice,
    Imitation,
    ImitationConfig,
    Replayed,
    RLError,
    Sequences,
    act,
    likeness,
    replay,
    surprise,
)
from esper.rl.imitation import RANGES, weights_of
from tests.rl import lock
from tests.rl.cases import ragged, rollout, small_network

QUICK = ImitationConfig(passes=12, patience=12, learning_rate=1e-2)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def remembered(rows: int, seed: int) -> Sequences:
    """A policy that turns with the style it was shown two steps before, and leaves at the seventh step."""
    draws = torch.Generator().manual_seed(seed)
    network, steps = lock.network(0), 7
    example = {"vector": torch.zeros(lock.DIALS), "mask": lock.masks(1, 1)[0, 0]}
    buffer, first = Buffer(rows, steps, example, 2), network.memory.start(rows)
    buffer.begin(first)
    shown = torch.randint(lock.STYLES, (rows, steps), generator=draws)
    for step in range(steps):
        vector = torch.eye(lock.DIALS)[shown[:, step]]
        style = shown[:, step - 2] if step >= 2 else torch.zeros(rows, dtype=torch.long)
        last = torch.full((rows,), step == steps - 1)
        choices = torch.stack([(~last).long(), style * ~last], dim=1)
        free, nothing = torch.stack([torch.ones_like(last), ~last], dim=1), torch.zeros(rows)
        seen = {"vector": vector, "mask": lock.masks(rows, 1)[:, 0]}
        buffer.decide(seen, torch.full((rows,), step == 0), choices, torch.zeros(rows, 2), free)
        buffer.conclude(nothing, nothing, last, nothing)
    return buffer.sequences()


def test_a_clone_with_a_memory_repeats_what_depends_on_the_past_and_one_without_cannot():
    """C-offline: recurrent over whole episodes, causal, on held-out ones."""
    training, held_out = EpisodesInMemory(remembered(200, 1)).split(0.2, generator())
    found = {
        memory: Imitation(lock.network(0, memory), replace(QUICK, learning_rate=2e-2)).learn(training, held_out)
        for memory in (0, 32)
    }
    assert found[32].repeated >= 0.98
    assert found[0].repeated <= 0.7
    assert found[32].heads["style"] >= 0.98


def test_learning_ends_when_held_out_episodes_become_no_likelier_and_keeps_the_best_weights():
    rows = lock.recorded([lock.MISTAKEN], 12, seed=0)
    training, held_out = EpisodesInMemory(rows).split(0.5, generator())
    network, passes = lock.network(0), []
    config = ImitationConfig(passes=500, patience=3, learning_rate=3e-2)
    best = Imitation(network, config).learn(training, held_out, passes.append)
    assert len(passes) < 100
    assert [each.best for each in passes[-3:]] == [False] * 3
    assert passes[-4].best
    assert best.surprise == min(each.held_out.surprise for each in passes)
    assert likeness(network, held_out).surprise == pytest.approx(best.surprise, abs=1e-6)
    assert passes[-1].surprise < best.surprise


def test_surprise_is_the_mean_over_decisions_of_used_heads_alone():
    """Unused heads, padding and forced steps have no part, whatever is written there."""
    network = small_network()
    rows = ragged(network)
    again = replay(network, rows)
    free = rows.free & rows.valid.unsqueeze(-1)
    expected = -again.log_probs[free].sum() / free.any(dim=-1).sum()
    torch.testing.assert_close(surprise(again, rows.valid), expected)
    wild = torch.where(free, again.log_probs, torch.randn(free.shape))
    torch.testing.assert_close(surprise(again._replace(log_probs=wild), rows.valid), expected)


def test_an_unused_head_gets_no_gradient_from_imitation():
    network = small_network()
    rows = rollout(network, rows=6, steps=8)
    style = list(network.heads).index("style")
    silent = rows._replace(choices=torch.zeros_like(rows.choices))  # op 0 uses no other head
    network.zero_grad()
    again = replay(network, silent)
    surprise(again, rows.valid).backward()
    assert not any(bool(gradient.any()) for gradient in network.head_gradients()[style])


def test_rare_choices_of_the_first_head_count_more_and_all_decisions_one_in_the_mean():
    rows = lock.recorded([lock.MISTAKEN], 50, seed=0)
    data = EpisodesInMemory(rows)
    even = Imitation(lock.network(0), ImitationConfig(rarity=1.0))._rarities(data)
    counted = weights_of(rows, even)[rows.valid].squeeze(-1)
    leaves = rows.choices[..., 0][rows.valid] == lock.LEAVE
    assert counted[leaves].sum().item() == pytest.approx(counted[~leaves].sum().item(), rel=1e-4)
    assert counted.mean().item() == pytest.approx(1.0, rel=1e-4)
    assert weights_of(rows, Imitation(lock.network(0))._rarities(data)) == 1.0


def test_a_mixture_is_cloned_as_often_as_each_was_recorded():
    rows = lock.recorded([lock.MISTAKEN, lock.LATE], 300, seed=0)
    training, held_out = EpisodesInMemory(rows).split(0.1, generator())
    network = lock.network(0)
    Imitation(network, QUICK).learn(training, held_out)
    first = rows.observation["vector"][..., 0].bool() & rows.valid & (rows.choices[..., 0] == lock.TURN)
    share = (rows.choices[..., 1][first] == lock.RIGHT[0]).float().mean().item()
    seen = {"vector": torch.eye(lock.DIALS)[:1], "mask": lock.masks(1, 1)[:, 0]}
    turn = torch.ones(1, 1, 1, dtype=torch.long)
    made = act(network, seen, network.memory.start(1), torch.tensor([True]), None, draw_first=lambda _: turn)
    assert made.distributions[1][0, 0, lock.RIGHT[0]].exp().item() == pytest.approx(share, abs=0.08)


def test_a_decision_that_its_mask_forbids_is_refused_with_its_place():
    network = small_network()
    rows = rollout(network, rows=2, steps=4, masked=False)
    masks = rows.observation["mask"].clone()
    masks[1, 2, :, 0] = torch.arange(4) == (rows.choices[1, 2, 0] + 1) % 3
    wrong = rows._replace(observation=rows.observation | {"mask": masks})
    data = EpisodesInMemory(wrong)
    with pytest.raises(IllegalChoice, match=r"row \d, step 2: head 'op' chose \d, which its mask does not allow"):
        Imitation(network, QUICK).learn(data, data)


@pytest.mark.parametrize("name", RANGES)
def test_setting_outside_its_range_is_refused(name):
    with pytest.raises(RLError, match=f"{name} = -1; give a value from"):
        ImitationConfig(**{name: -1})


def test_the_same_seed_learns_the_same_weights():
    data = EpisodesInMemory(lock.recorded([lock.EARLY], 20, seed=0))
    networks = [lock.network(0) for _ in range(2)]
    for network in networks:
        Imitation(network, replace(QUICK, passes=2)).learn(data, data)
    for one, other in zip(networks[0].parameters(), networks[1].parameters(), strict=True):
        assert torch.equal(one, other)


def test_likeness_of_nothing_decided_is_not_zero():
    """Missing is not shown as 0."""
    network = small_network()
    rows = rollout(network, rows=2, steps=3, masked=False)
    masks = torch.zeros_like(rows.observation["mask"])
    masks[..., 0] = True
    forced = rows._replace(
        observation=rows.observation | {"mask": masks},
        choices=torch.zeros_like(rows.choices),
        free=torch.zeros_like(rows.free),
    )
    found = likeness(network, EpisodesInMemory(forced))
    assert (found.decisions, found.repeated, set(found.heads.values())) == (0, None, {None})
    assert isinstance(replay(network, forced), Replayed)
