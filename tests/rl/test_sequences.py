"""Room that is allocated once, rows that stay whole, padding that is inert, and experience that is refused."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from esper.rl import Buffer, BufferFull, Learner, MemoryState, NonFinite, NoSteps, OpenRow, WrongShape, join, replay
from tests.rl.cases import (
    SIZES,
    STEADY,
    assert_same,
    everything_of,
    padded,
    ragged,
    rollout,
    small_network,
    tensors_of,
)

ROWS, STEPS = 2, 3
EXAMPLE = {"vector": torch.zeros(4), "mask": torch.ones(1, 3, 4, dtype=torch.bool)}


def buffer() -> Buffer:
    return Buffer(ROWS, STEPS, EXAMPLE, len(SIZES))


def fill(room: Buffer, steps: int, level: float = 1.0, ends: bool = False) -> None:
    """Steps in which every number is `level` plus the step's own."""
    room.begin(MemoryState(torch.full((1, ROWS, 5), level), torch.full((1, ROWS, 5), -level)))
    for step in range(steps):
        number = level + step
        seen = {name: torch.full((ROWS, *value.shape), number).to(value.dtype) for name, value in EXAMPLE.items()}
        heads = torch.full((ROWS, len(SIZES)), number)
        room.decide(seen, torch.tensor([step == 0, ends]), heads.long(), -heads, heads > 0)
        room.conclude(*torch.full((2, ROWS), number), torch.full((ROWS,), ends), torch.full((ROWS,), number))


def test_storage_is_allocated_once_and_used_again():
    """S5-storage, S5-no-lists, R0-R5, R2-MED5, R4-M10: sequences are views of the same memory each time."""
    room = buffer()
    places = []
    for level in (1.0, 10.0):
        fill(room, STEPS, level)
        tensors = tensors_of(room.sequences())
        places.append({name: tensor.data_ptr() for name, tensor in tensors.items() if name not in ("hidden", "cell")})
        assert tensors["rewards"].tolist() == [[level, level + 1, level + 2]] * ROWS
    assert places[0] == places[1]
    assert not any(isinstance(value, list) for value in vars(room).values())


def test_everything_is_stored_where_it_belongs():
    """S5-storage."""
    room = buffer()
    fill(room, STEPS)
    sequences = room.sequences()
    number = torch.tensor([1.0, 2.0, 3.0]).expand(ROWS, STEPS)
    for name in ("values", "rewards", "bootstrap"):
        assert torch.equal(getattr(sequences, name), number)
    assert torch.equal(sequences.observation["vector"], number.unsqueeze(-1).expand(-1, -1, 4))
    assert torch.equal(sequences.choices, number.long().unsqueeze(-1).expand(-1, -1, 3))
    assert torch.equal(sequences.log_probs, -number.unsqueeze(-1).expand(-1, -1, 3))
    assert sequences.starts.tolist() == [[True, False, False], [False] * 3]
    assert sequences.valid.all()
    assert sequences.free.all()
    assert not sequences.ends.any()
    assert (sequences.state.hidden == 1).all()
    assert (sequences.state.cell == -1).all()


def test_a_shorter_rollout_leaves_no_trace_of_a_longer_one():
    """R0-R3."""
    room = buffer()
    fill(room, STEPS, level=50.0, ends=True)
    fill(room, 2)
    sequences = room.sequences()
    assert sequences.rewards.tolist() == [[1.0, 2.0]] * ROWS
    assert not sequences.ends.any()


def test_an_episode_longer_than_the_room_is_an_error_that_says_so():
    """S5-no-lists: a size limit with a clear error."""
    with pytest.raises(BufferFull, match="longer than the 3 steps there is room for; make a buffer of more steps"):
        fill(buffer(), STEPS + 1)


def test_an_empty_buffer_is_an_error_that_says_so():
    """R2-CRIT1."""
    room = buffer()
    with pytest.raises(NoSteps, match="the buffer is empty; collect at least one step"):
        room.sequences()
    fill(room, 2)
    fill(room, 0)
    with pytest.raises(NoSteps, match="the buffer is empty; collect at least one step"):
        room.sequences()


def test_a_cut_ends_the_rows_that_go_on_and_leaves_the_others():
    """R4-H4: a terminated row keeps its bootstrap of 0."""
    room = buffer()
    fill(room, 2)
    room.conclude(torch.zeros(2), torch.zeros(2), torch.tensor([True, False]), torch.zeros(2))
    room.cut(torch.tensor([8.0, 9.0]))
    sequences = room.sequences()
    assert sequences.ends[:, -1].tolist() == [True, True]
    assert sequences.bootstrap[:, -1].tolist() == [0.0, 9.0]
    assert not sequences.ends[:, :-1].any()


def test_one_step_episodes_are_learned_from():
    """R2-CRIT1: rows of one step, and rows in which every step is an episode."""
    network = small_network()
    for sequences in (rollout(network, rows=1, steps=1), rollout(network, rows=3, steps=5, ends=1.0)):
        learner = Learner(small_network(), STEADY)
        metrics = learner.update(sequences)
        assert metrics.finite
        assert metrics.optimiser_steps == STEADY.epochs
        assert all(value.isfinite().all() for value in learner.network.state_dict().values())


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_joined_rows_are_the_parts_with_zeros_behind(lengths):
    """R0-R3."""
    network = small_network()
    parts = [rollout(network, 1 + place % 2, length, seed=place) for place, length in enumerate(lengths)]
    joined = join(parts)
    assert joined.rewards.shape == (sum(part.rows for part in parts), max(lengths))
    row = 0
    for part, length in zip(parts, lengths, strict=True):
        for one in range(part.rows):
            for name, tensor in tensors_of(part).items():
                if name in ("hidden", "cell"):
                    assert torch.equal(tensors_of(joined)[name][:, row], tensor[:, one])
                else:
                    assert torch.equal(tensors_of(joined)[name][row, :length], tensor[one])
                    assert not tensors_of(joined)[name][row, length:].any(), name
            row += 1
    assert joined.valid.sum(dim=1).tolist() == [
        length for part, length in zip(parts, lengths, strict=True) for _ in range(part.rows)
    ]


def test_joining_gives_room_to_observations_of_fewer_entries():
    network = small_network()
    wide, narrow = (rollout(network, 1, 2, seed=seed) for seed in (0, 1))
    narrow.observation["slots"], wide.observation["slots"] = torch.ones(1, 2, 3, 5), torch.ones(1, 2, 7, 5)
    joined = join([narrow, wide]).observation["slots"]
    assert joined.shape == (2, 2, 7, 5)
    assert joined[0].sum().item() == 2 * 3 * 5
    assert not joined[0, :, 3:].any()


def test_joining_nothing_is_an_error():
    """R2-CRIT1."""
    with pytest.raises(NoSteps, match="there are no sequences to join"):
        join([])


def test_joining_and_taking_leave_the_parts():
    """R0-A2."""
    network = small_network()
    parts = [rollout(network, 2, 3), rollout(network, 1, 5)]
    before = [{name: tensor.clone() for name, tensor in tensors_of(part).items()} for part in parts]
    join(parts).take(torch.tensor([2, 0])).rewards.zero_()
    for part, copies in zip(parts, before, strict=True):
        assert_same(tensors_of(part), copies)


def test_taken_rows_are_whole_and_in_the_order_asked_for():
    """R4-C3: with their first states, so that they replay as before."""
    network = small_network()
    sequences = ragged(network)
    rows = torch.tensor([3, 1])
    taken = sequences.take(rows)
    for name, tensor in tensors_of(taken).items():
        whole = tensors_of(sequences)[name]
        assert torch.equal(tensor, whole[:, rows] if name in ("hidden", "cell") else whole[rows])
    expected = replay(network, sequences)
    for found, wanted in zip(replay(network, taken), expected, strict=True):
        torch.testing.assert_close(found, wanted[rows], rtol=1e-5, atol=1e-6)


def broken(name: str, place: tuple[int, ...], value: float):
    """Experience with one wrong number."""
    sequences = rollout(small_network())
    part = sequences.observation.get(name, getattr(sequences, name, None)).clone()
    part[place] = value
    if name in sequences.observation:
        return sequences._replace(observation=sequences.observation | {name: part})
    return sequences._replace(**{name: part})


def narrow(name: str):
    """Experience of two heads, in one of its parts."""
    sequences = rollout(small_network())
    return sequences._replace(**{name: getattr(sequences, name)[..., :2]})


TWO_HEADS = r" of shape \(3, 6, 2\); the network's 3 heads need \(3, 6, 3\)"
WRONG = {
    "observation is nan": (
        lambda: broken("vector", (1, 2, 0), torch.nan),
        NonFinite,
        r"vector at .* = \[1, 2, 0\] is nan",
    ),
    "reward is inf": (lambda: broken("rewards", (2, 5), torch.inf), NonFinite, r"rewards at .* = \[2, 5\] is inf"),
    "value is -inf": (lambda: broken("values", (0, 0), -torch.inf), NonFinite, r"values at .* = \[0, 0\] is -inf"),
    "bootstrap is nan": (
        lambda: broken("bootstrap", (0, 1), torch.nan),
        NonFinite,
        r"bootstrap at .* = \[0, 1\] is nan",
    ),
    "log-prob is nan": (
        lambda: broken("log_probs", (0, 1, 2), torch.nan),
        NonFinite,
        r"log_probs at .*\[0, 1, 2\] is nan",
    ),
    "no step": (lambda: broken("valid", (...,), False), NoSteps, "hold no step; collect at least one before an update"),
    "open row": (lambda: broken("ends", (1, -1), False), OpenRow, "row 1 stops inside an episode; cut it"),
    "open padded row": (
        lambda: broken("ends", (2, 3), False)._replace(valid=torch.tensor([6, 6, 4]).unsqueeze(-1) > torch.arange(6)),
        OpenRow,
        "row 2 stops inside an episode; cut it",
    ),
    "choices of two heads": (lambda: narrow("choices"), WrongShape, "choices" + TWO_HEADS),
    "log-probs of two heads": (lambda: narrow("log_probs"), WrongShape, "log_probs" + TWO_HEADS),
    "marks of two heads": (lambda: narrow("free"), WrongShape, "free" + TWO_HEADS),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_cannot_be_learned_from_is_refused_before_anything_changed(wrong):
    """R2-CRIT1: weights, optimiser, scale, counters and random numbers are as before."""
    sequences, error, said = WRONG[wrong]
    learner = Learner(small_network(), STEADY)
    learner.update(rollout(learner.network))
    before = everything_of(learner)
    with pytest.raises(error, match=said):
        learner.update(sequences())
    assert_same(everything_of(learner), before)


def test_padded_rows_that_were_closed_are_accepted():
    network = small_network()
    padded(ragged(network), 2).check(len(SIZES))
