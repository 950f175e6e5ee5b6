"""Acting and replay have one definition of probability; heads that are not used take no part."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from esper.rl import MOOD, Buffer, EmptyMask, act, replay, value_of
from tests.rl.cases import INPUTS, SIZES, USES, open_masks, ragged, random_masks, rollout, small_network


def seen(rows: int, seed: int = 0, masked: bool = True) -> dict:
    generator = torch.Generator().manual_seed(seed)
    vector = torch.randn(rows, INPUTS, generator=generator)
    return {"vector": vector, "mask": random_masks(rows, generator) if masked else open_masks(rows)}


def decide(network, observation, generator=None, **options):
    rows = len(observation["vector"])
    state, starts = network.memory.start(rows), torch.ones(rows, dtype=torch.bool)
    return act(network, observation, state, starts, generator, **options)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def assert_replay_agrees(network, sequences, exploration=0.0):
    again = replay(network, sequences, exploration)
    valid = sequences.valid
    assert (again.log_probs - sequences.log_probs)[valid].abs().max() < 1e-5
    assert (again.values - sequences.values)[valid].abs().max() < 1e-5
    assert torch.equal(again.free[valid], sequences.free[valid])


@given(st.integers(0, 10**6), st.sampled_from([0, 5]), st.sampled_from([0.0, 0.1]))
def test_replay_of_rows_with_starts_inside_gives_the_same_log_probabilities_and_values(seed, memory, exploration):
    """R1-L3, R4-C4, R4-H5: old log-probabilities and values are consistent with the replay of every pass."""
    network = small_network(seed, memory)
    sequences = rollout(network, rows=4, steps=9, seed=seed, ends=0.3, exploration=exploration)
    assert_replay_agrees(network, sequences, exploration)


@given(st.lists(st.integers(1, 7), min_size=1, max_size=4), st.sampled_from([0, 5]))
def test_replay_of_padded_rows_gives_the_same_log_probabilities_and_values(lengths, memory):
    """R0-R3: episodes that ended early are joined with longer ones."""
    network = small_network(memory=memory)
    assert_replay_agrees(network, ragged(network, tuple(lengths), ends=0.2))


def test_replay_starts_from_the_state_before_the_first_step():
    """R0-P9, R0-X2: the stored state is detached, and a later change of the caller's does not reach it."""
    network = small_network()
    state, starts = network.memory.start(2), torch.zeros(2, dtype=torch.bool)
    state = type(state)(*(torch.randn_like(part).requires_grad_() for part in state))
    buffer = Buffer(2, 1, {name: value[0] for name, value in seen(2).items()}, len(SIZES))
    buffer.begin(state)
    made = act(network, seen(2), state, starts, generator())
    buffer.decide(seen(2), starts, made.choices, made.log_probs, made.free)
    buffer.conclude(made.values, torch.zeros(2), ~starts, torch.zeros(2))
    with torch.no_grad():
        state.hidden.zero_()
    sequences = buffer.sequences()
    assert not sequences.state.hidden.requires_grad
    assert not sequences.state.cell.requires_grad
    assert_replay_agrees(network, sequences)


@pytest.mark.parametrize("exploration", [0.0, 0.2])
def test_unused_heads_choose_zero_with_log_probability_and_entropy_zero_and_are_not_free(exploration):
    """R0-A1: without a special case anywhere."""
    network = small_network()
    sequences = rollout(network, rows=20, steps=10, exploration=exploration)
    again = replay(network, sequences, exploration)
    unused = ~USES[sequences.choices[..., 0]]
    assert unused.any()
    assert not unused[..., 0].any()
    for part in (sequences.choices, sequences.log_probs, sequences.free, again.free, again.entropy):
        assert not part[unused].any()
    assert again.log_probs[unused].abs().max() < 1e-6


def test_a_head_is_free_where_it_is_used_and_has_more_than_one_legal_choice():
    network = small_network()
    sequences = rollout(network, rows=20, steps=10)
    masks, choices = sequences.observation["mask"], sequences.choices
    for row, step in [(row, step) for row in range(20) for step in range(10)]:
        op = int(choices[row, step, 0])
        for head in range(len(SIZES)):
            legal = masks[row, step, op if head else 0, head].sum()
            assert sequences.free[row, step, head] == (bool(USES[op, head]) and legal > 1)


@pytest.mark.parametrize("op", range(SIZES["op"]))
def test_row_k_of_a_mask_holds_when_the_first_head_chose_k(op):
    """Row k says what is legal after choice k; a row that cannot be reached may even be empty."""
    network = small_network(uses=torch.ones_like(USES))
    masks = torch.zeros(200, SIZES["op"], len(SIZES), 4, dtype=torch.bool)
    masks[:, 0, 0, op] = True
    masks[:, op, 1, 1] = True
    masks[:, op, 2, [op, 3]] = True
    made = decide(network, seen(200) | {"mask": masks}, generator())
    assert (made.choices[:, 0] == op).all()
    assert (made.choices[:, 1] == 1).all()
    assert set(made.choices[:, 2].tolist()) == {op, 3}


def test_no_decision_is_illegal():
    network = small_network()
    sequences = rollout(network, rows=50, steps=10)
    masks, choices = sequences.observation["mask"], sequences.choices
    first = masks[..., 0, 0, :].gather(-1, choices[..., :1])
    row = masks.gather(2, choices[..., :1, None, None].expand(-1, -1, 1, *masks.shape[-2:])).squeeze(2)
    others = row.gather(-1, choices.unsqueeze(-1)).squeeze(-1)[..., 1:]
    assert first.all()
    assert others[USES[choices[..., 0]][..., 1:]].all()


def test_a_mask_that_allows_nothing_is_refused():
    """S4-masked-logits."""
    network = small_network()
    observation = seen(3)
    observation["mask"][1, 0, 0] = False
    with pytest.raises(EmptyMask, match=r"index \[1, 0, 0\] allows nothing"):
        decide(network, observation, generator())


def test_later_heads_are_chosen_given_the_first():
    network = small_network(uses=torch.ones_like(USES))
    rows = 3
    masks = open_masks(rows).clone()
    masks[:, :, 0, :3] = torch.eye(3, dtype=torch.bool).unsqueeze(1)
    observation = {"vector": torch.ones(rows, INPUTS), "mask": masks}
    made = decide(network, observation, generator())
    slots = made.distributions[1][:, 0, :2]
    assert len({tuple(row) for row in slots.tolist()}) == rows


def test_sampling_draws_from_the_given_generator_alone():
    network = small_network()
    before = torch.get_rng_state()
    one, again, other = (decide(network, seen(50), generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(one.choices, again.choices)
    assert not torch.equal(one.choices, other.choices)
    assert torch.equal(torch.get_rng_state(), before)


def test_acting_runs_under_inference_mode_and_replay_does_not():
    """S4-inference-mode."""
    network = small_network()
    made = decide(network, seen(2), generator())
    assert made.log_probs.is_inference()
    assert made.values.is_inference()
    assert made.state.hidden.is_inference()
    bootstrap = value_of(network, seen(2), network.memory.start(2), torch.ones(2, dtype=torch.bool))
    assert bootstrap.is_inference()
    again = replay(network, rollout(network))
    assert not again.log_probs.is_inference()
    assert again.log_probs.requires_grad
    assert again.values.requires_grad


def test_without_a_generator_every_head_takes_its_likeliest_choice():
    network = small_network()
    made = decide(network, seen(40))
    chosen = torch.cat([level.argmax(dim=-1) for level in made.distributions], dim=-1)
    assert torch.equal(made.choices, chosen)
    best = torch.cat([level.amax(dim=-1) for level in made.distributions], dim=-1)
    assert torch.equal(made.log_probs, best)


def test_distributions_are_those_that_choices_are_drawn_from():
    network = small_network()
    observation = {name: value[:1].expand(4000, *value.shape[1:]) for name, value in seen(1, masked=False).items()}
    made = decide(network, observation, generator())
    shares = torch.bincount(made.choices[:, 0], minlength=4) / 4000
    torch.testing.assert_close(shares, made.distributions[0][0, 0].exp(), atol=0.03, rtol=0.0)


def test_exploration_mixes_in_an_even_share_of_the_legal_choices():
    network, epsilon = small_network(), 0.3
    plain, mixed = (decide(network, seen(30), exploration=share) for share in (0.0, epsilon))
    legal = seen(30)["mask"][:, 0, :1]
    expected = (1 - epsilon) * plain.distributions[0].exp() + epsilon * legal / legal.sum(dim=-1, keepdim=True)
    torch.testing.assert_close(mixed.distributions[0].exp(), expected, atol=1e-6, rtol=1e-5)


def test_value_of_a_state_is_what_acting_there_says():
    """R4-H4: with the carried state, and without drawing anything."""
    network, observation = small_network(), seen(4)
    state = decide(network, seen(4, seed=1), generator()).state
    starts = torch.tensor([False, True, False, True])
    made = act(network, observation, state, starts, generator())
    assert torch.equal(value_of(network, observation, state, starts), made.values)
    fresh = value_of(network, observation, network.memory.start(4), starts)
    assert torch.equal(fresh[starts], made.values[starts])
    assert not torch.isclose(fresh[~starts], made.values[~starts]).any()


def test_a_mood_is_added_to_the_logits_of_the_first_head_and_is_part_of_what_is_stored():
    """A mood that forbids nothing: probabilities are those of the shifted logits, in acting and in replay."""
    network, rows = small_network(), 4_000
    mood = torch.tensor([0.0, -3.0, 1.0, 0.0])
    plain = {name: value[:1].expand(rows, *value.shape[1:]) for name, value in seen(1, masked=False).items()}
    calm, moody = (decide(network, each, generator()) for each in (plain, plain | {MOOD: mood.expand(rows, 4)}))
    expected = torch.softmax(calm.distributions[0][0, 0, :3] + mood[:3], dim=-1)
    torch.testing.assert_close(moody.distributions[0][0, 0, :3].exp(), expected)
    torch.testing.assert_close(moody.log_probs[:, 0].exp(), expected[moody.choices[:, 0]])
    shares = torch.bincount(moody.choices[:, 0], minlength=3) / rows
    torch.testing.assert_close(shares, expected, rtol=0.0, atol=0.03)
    score = (torch.eye(3)[moody.choices[:, 0]] - expected).mean(dim=0)
    assert score.abs().max() < 0.03


def test_rows_in_a_mood_are_replayed_in_it():
    network = small_network()
    state, starts = network.memory.start(2), torch.ones(2, dtype=torch.bool)
    observation = seen(2) | {MOOD: torch.tensor([[2.0, -2.0, 0.0, 0.0], [0.0, 0.0, 3.0, 0.0]])}
    buffer = Buffer(2, 1, {name: value[0] for name, value in observation.items()}, len(SIZES))
    buffer.begin(state)
    made = act(network, observation, state, starts, generator())
    buffer.decide(observation, starts, made.choices, made.log_probs, made.free)
    buffer.conclude(made.values, torch.zeros(2), starts, torch.zeros(2))
    assert_replay_agrees(network, buffer.sequences())
