"""Every kind of memory by hand, and rows with starts inside against the same episodes played step by step."""

import math
from itertools import product
from statistics import fmean

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from esper.rl import (
    MEMORIES,
    GRUMemory,
    LinearMemory,
    LSTMMemory,
    MemoryState,
    NoMemory,
    RLError,
    VectorConfig,
    VectorNetwork,
    make_memory,
    memory_gated,
)
from esper.rl.memory_linear import LinearRecurrence, accumulate

SIZE, INPUTS = 4, 3
MAKERS = {
    "linear": lambda: LinearMemory(INPUTS, SIZE),
    "lstm": lambda: LSTMMemory(INPUTS, SIZE),
    "lstm, 2 layers": lambda: LSTMMemory(INPUTS, SIZE, 2),
    "gru": lambda: GRUMemory(INPUTS, SIZE),
    "gru, 2 layers": lambda: GRUMemory(INPUTS, SIZE, 2),
}
kinds = pytest.mark.parametrize("kind", MAKERS)


def trained(kind, seed):
    """A memory whose parameters have all moved away from their first values."""
    memory, generator = MAKERS[kind](), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in memory.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return memory


def random_state(memory, rows, generator=None):
    return MemoryState(*(torch.randn(part.shape, generator=generator).tanh() for part in memory.start(rows)))


def by_hand(memory, inputs, hidden, cell):
    """One step of one layer, with the gates in the order input, forget, cell, output."""
    w = dict(memory.lstm.named_parameters())
    gates = w["weight_ih_l0"] @ inputs + w["bias_ih_l0"] + w["weight_hh_l0"] @ hidden + w["bias_hh_l0"]
    i, f, g, o = gates.split(memory.size)
    cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


@pytest.mark.parametrize("layers", [1, 2])
def test_forget_gate_starts_open_and_all_other_biases_at_zero(layers):
    """R2-MED4, R4-M9: the second quarter of one of the two biases is 1."""
    memory = LSTMMemory(INPUTS, SIZE, layers)
    for layer in range(layers):
        total = getattr(memory.lstm, f"bias_ih_l{layer}") + getattr(memory.lstm, f"bias_hh_l{layer}")
        i, f, g, o = total.split(SIZE)
        assert (f == 1).all()
        assert not i.any()
        assert not g.any()
        assert not o.any()


def test_gates_lie_in_the_order_input_forget_cell_output():
    """R2-MED4, R4-M9: so the bias above is indeed that of the forget gate."""
    memory, inputs = LSTMMemory(INPUTS, SIZE), torch.randn(1, INPUTS)
    state = random_state(memory, 1)
    output, after = memory(inputs, state, torch.tensor([False]))
    hidden, cell = by_hand(memory, inputs[0], state.hidden[0, 0], state.cell[0, 0])
    torch.testing.assert_close(output[0], hidden)
    torch.testing.assert_close(after.hidden[0, 0], hidden)
    torch.testing.assert_close(after.cell[0, 0], cell)


def test_gru_keeps_its_state_where_the_update_gate_is_open():
    """So the signal that holds the state indeed goes to the update gate."""
    memory, inputs = GRUMemory(INPUTS, SIZE), torch.randn(1, INPUTS)
    with torch.no_grad():
        memory.gru.bias_ih_l0[SIZE : 2 * SIZE] = 1e4
    state = random_state(memory, 1)
    output, _ = memory(inputs, state, torch.tensor([False]))
    torch.testing.assert_close(output, state.hidden[0])


def test_linear_cells_turn_and_fade_at_the_pace_of_the_input():
    memory, inputs = LinearMemory(INPUTS, SIZE), torch.randn(1, INPUTS)
    state = random_state(memory, 1)
    _, after = memory(inputs, state, torch.tensor([False]))
    pace = 2 * memory.pace(inputs)[0].sigmoid()
    real, imaginary = memory.write(inputs)[0].view(SIZE, 2).t()
    fading = torch.exp(-memory.log_rates.exp() * pace)
    held = torch.complex(state.hidden[0, 0, :SIZE], state.cell[0, 0])
    turned = torch.exp(1j * memory.frequencies * pace) * held
    expected = fading * turned + pace * torch.complex(real, imaginary)
    torch.testing.assert_close(torch.complex(after.hidden[0, 0, :SIZE], after.cell[0, 0]), expected)
    assert torch.equal(after.hidden[0, 0, SIZE:], inputs[0])


@pytest.mark.parametrize("backwards", [False, True])
@given(st.integers(1, 40), st.integers(0, 10**6))
def test_states_are_accumulated_in_blocks_as_step_by_step(backwards, steps, seed):
    """Some factors are 0, as at starts."""
    generator = torch.Generator().manual_seed(seed)
    factors, states = torch.randn(2, steps, 2, 3, dtype=torch.cdouble, generator=generator)
    factors *= torch.rand(steps, 2, 1, generator=generator) < 0.8
    expected = states.clone()
    for step in range(steps - 2, -1, -1) if backwards else range(1, steps):
        expected[step] += factors[step] * expected[step + 1 if backwards else step - 1]
    accumulate(factors, states, backwards)
    torch.testing.assert_close(states, expected)


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_written_gradient_of_the_recurrence_is_that_of_numeric_differences(steps):
    """With an episode that starts inside a row."""
    generator = torch.Generator().manual_seed(steps)

    def drawn(*shape, dtype=torch.double):
        return torch.randn(*shape, generator=generator, dtype=dtype).requires_grad_()

    pace = (2 * torch.rand(steps, 3, SIZE, generator=generator, dtype=torch.double)).requires_grad_()
    rates = torch.rand(SIZE, generator=generator, dtype=torch.double).requires_grad_()
    keep = torch.rand(steps, 3, 1, generator=generator) < 0.7
    written, first = (drawn(*shape, dtype=torch.cdouble) for shape in ((steps, 3, SIZE), (3, SIZE)))
    assert torch.autograd.gradcheck(LinearRecurrence.apply, (pace, written, rates, drawn(SIZE), keep, first))


def test_linear_cells_start_with_times_from_4_to_1000_steps_an_eighth_of_them_still():
    memory = LinearMemory(INPUTS, 512)
    times = (-memory.log_rates).exp()
    assert 4 <= times.min() < 5
    assert 900 < times.max() < 1001
    still, turning = memory.frequencies.split([64, 448])
    assert not still.any()
    assert 0 <= turning.min() < 0.1
    assert math.pi - 0.1 < turning.max() <= math.pi
    assert 64 <= times[:64].min() < 65
    assert 900 < times[:64].max() < 1001


def behind_a_cue(memory, delays):
    """Features so many steps behind a first cue that nothing followed, (delays, 2, size): two opposite cues."""
    inputs = torch.zeros(2, max(delays) + 1, INPUTS)
    inputs[:, 0, 0] = torch.tensor([1.0, -1.0])
    starts = (torch.arange(max(delays) + 1) == 0).expand(2, -1)
    with torch.no_grad():
        features, _ = memory(inputs, memory.start(2), starts)
    return features[:, list(delays)].transpose(0, 1)


def told_apart(memory):
    """How well weights that tell the cues apart by 1 and -1 after 55 to 75 steps do so after 50; 0 is not at all."""
    seen = behind_a_cue(memory, range(55, 76, 2)).flatten(0, 1)
    cues = torch.tensor([1.0, -1.0]).repeat(len(seen) // 2)
    weights = torch.linalg.solve(seen.t() @ seen + 0.1 * torch.eye(memory.size), seen.t() @ cues)
    return ((behind_a_cue(memory, [50]) @ weights) * torch.tensor([1.0, -1.0])).mean().item()


def test_cue_is_read_by_the_same_weights_whenever_it_is_asked_for():
    """Sooner than it ever was, too; if all cells turn it is not."""
    found = {0: [], 1: []}
    for seed, turning in product(range(24), found):
        torch.manual_seed(seed)
        memory = LinearMemory(INPUTS, 64)
        if turning:
            nn.init.uniform_(memory.frequencies, 0.0, math.pi)
            nn.init.zeros_(memory.pace.bias)
            nn.init.zeros_(memory.opening)
        found[turning].append(told_apart(memory))
    assert fmean(found[0]) > 0.5 > 0.2 > fmean(found[1]), found


def test_still_cells_take_in_the_first_step_and_little_ever_after():
    memory = LinearMemory(INPUTS, 64)
    inputs = torch.ones(1, 40, INPUTS)
    starts = torch.arange(40).unsqueeze(0) == 0
    _, opened = memory(inputs[:, :1], memory.start(1), starts[:, :1])
    _, later = memory(inputs[:, :1], memory.start(1), ~starts[:, :1])
    assert (opened.hidden[0, 0, :8].abs() > 5 * later.hidden[0, 0, :8].abs()).all()
    assert torch.equal(opened.hidden[0, 0, 8:], later.hidden[0, 0, 8:]), "others know no first step yet"
    assert memory.opening.grad is None
    memory(inputs, memory.start(1), starts)[0].sum().backward()
    assert memory.opening.grad.all(), "all of them can learn to"


def test_what_still_cells_hold_does_not_drown_what_turning_cells_hold():
    """Both parts are read with a root mean square of 1."""
    memory, read = LinearMemory(INPUTS, 64), []
    memory.read.register_forward_hook(lambda _, given, __: read.append(given[0]))
    memory(torch.ones(1, 200, INPUTS), memory.start(1), (torch.arange(200) == 0).unsqueeze(0))
    still, turning = read[0][-1, 0].split([16, 112])
    torch.testing.assert_close(still.square().mean(), torch.tensor(1.0), atol=0.05, rtol=0)
    torch.testing.assert_close(turning.square().mean(), torch.tensor(1.0), atol=0.05, rtol=0)


def test_change_of_the_input_is_read_on_a_scale_of_1_however_small_it_usually_is():
    """In a first step nothing has changed."""
    generator = torch.Generator().manual_seed(0)
    walk = 1.0 + 0.02 * torch.randn(4, 200, INPUTS, generator=generator).cumsum(dim=1)
    starts = torch.rand(4, 200, generator=generator) < 0.1
    memory, read = LinearMemory(INPUTS, 64), []
    before = memory.change.weight.clone()
    memory.take_in(walk, torch.ones_like(starts))
    torch.testing.assert_close(memory.change.weight, 50 * before, rtol=0.1, atol=0)
    memory.change.register_forward_hook(lambda _, given, __: read.append(given[0]))
    memory(walk, random_state(memory, 4, generator), starts)
    changes = read[0].transpose(0, 1)
    assert not changes[starts].any()
    torch.testing.assert_close(changes[:, 1:][~starts[:, 1:]], walk.diff(dim=1)[~starts[:, 1:]])


def test_what_never_changes_leaves_the_first_weights_of_the_change_as_they_are():
    """Nor do rollouts of one step, or rows of which no two steps follow each other."""
    memory, yes = LinearMemory(INPUTS, SIZE), torch.ones(3, 8, dtype=torch.bool)
    before = memory.change.weight.clone()
    memory.take_in(torch.ones(3, 8, INPUTS), yes)
    memory.take_in(torch.randn(3, 1, INPUTS), yes[:, :1])
    memory.take_in(torch.randn(3, 8, INPUTS), (torch.arange(8) % 2 == 0).expand(3, -1))
    assert torch.equal(memory.change.weight, before)


@kinds
def test_first_state_has_shape_and_type_of_the_memory(kind):
    """R2-HIGH2."""
    memory = MAKERS[kind]().double()
    state = memory.start(5)
    _, after = memory(torch.ones(5, 2, INPUTS).double(), state, torch.zeros(5, 2, dtype=torch.bool))
    for part, later in zip(state, after, strict=True):
        assert part.shape == later.shape
        assert part.dtype is later.dtype is torch.float64
        assert not part.any()
    assert state.hidden.data_ptr() != state.cell.data_ptr()


@kinds
def test_one_step_with_and_without_a_time_axis_agree(kind):
    """R2-LOW5: inputs (B, D) and (B, T, D)."""
    memory, inputs, starts = MAKERS[kind](), torch.randn(5, INPUTS), torch.rand(5) < 0.5
    state = random_state(memory, 5)
    flat, after_flat = memory(inputs, state, starts)
    deep, after_deep = memory(inputs.unsqueeze(1), state, starts.unsqueeze(1))
    assert flat.shape == (5, SIZE)
    assert torch.equal(flat, deep.squeeze(1))
    assert all(torch.equal(one, other) for one, other in zip(after_flat, after_deep, strict=True))


def step_by_step(memory, inputs, state, starts):
    """Each row alone, each step in a call of its own, from the first state where an episode starts."""
    outputs, lasts = [], []
    for row in range(len(inputs)):
        now = MemoryState(*(part[:, row : row + 1] for part in state))
        features = []
        for step in range(inputs.shape[1]):
            now = memory.start(1) if starts[row, step] else now
            output, now = memory(inputs[row : row + 1, step], now, starts[row, step : step + 1])
            features.append(output)
        outputs.append(torch.stack(features, dim=1))
        lasts.append(now)
    return torch.cat(outputs), MemoryState(*(torch.cat(column, dim=1) for column in zip(*lasts, strict=True)))


@kinds
@settings(max_examples=25)
@given(st.integers(1, 4), st.integers(1, 9), st.sampled_from([0.0, 0.3, 1.0]), st.integers(0, 10**6))
def test_rows_with_starts_inside_equal_separate_episodes(kind, rows, steps, share, seed):
    """R0-P9, R0-X2: outputs, last states and all gradients, wherever episodes start."""
    generator = torch.Generator().manual_seed(seed)
    memory = trained(kind, seed)
    inputs = torch.randn(rows, steps, INPUTS, generator=generator, requires_grad=True)
    starts = torch.rand(rows, steps, generator=generator) < share
    state = random_state(memory, rows, generator)
    for part in state:
        part.requires_grad_()
    aim = torch.randn(rows, steps, SIZE, generator=generator)

    def outcome(run):
        memory.zero_grad()
        for given_tensor in (inputs, *state):
            given_tensor.grad = None
        output, last = run(inputs, state, starts)
        ((output * aim).sum() + last.hidden.sum() + last.cell.square().sum()).backward()
        grads = [tensor.grad for tensor in (inputs, *state, *memory.parameters())]
        zeros = [grad is None or not grad.any() for grad in grads]
        return [
            output.detach(),
            *last.detached(),
            *(torch.zeros(1) if z else g for g, z in zip(grads, zeros, strict=True)),
        ]

    expected = outcome(lambda *given: step_by_step(memory, *given))
    for found, wanted in zip(outcome(memory), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@kinds
@given(st.integers(1, 7), st.integers(0, 10**6))
def test_state_carried_over_two_calls_equals_one_call(kind, cut, seed):
    """R0-P9, R0-X2: a rollout that goes on in the next one."""
    generator = torch.Generator().manual_seed(seed)
    memory, inputs = trained(kind, seed), torch.randn(3, 8, INPUTS, generator=generator)
    starts = torch.rand(3, 8, generator=generator) < 0.2
    state = random_state(memory, 3, generator)
    whole, last = memory(inputs, state, starts)
    one, middle = memory(inputs[:, :cut], state, starts[:, :cut])
    two, end = memory(inputs[:, cut:], middle, starts[:, cut:])
    torch.testing.assert_close(torch.cat([one, two], dim=1), whole, rtol=1e-5, atol=1e-5)
    for part, wanted in zip(end, last, strict=True):
        torch.testing.assert_close(part, wanted, rtol=1e-5, atol=1e-5)


@kinds
def test_neither_inputs_nor_state_nor_starts_are_changed(kind):
    """R0-A2."""
    memory = MAKERS[kind]()
    given = (torch.randn(2, 5, INPUTS), random_state(memory, 2), torch.rand(2, 5) < 0.5)
    flat = [given[0], *given[1], given[2]]
    copies = [tensor.clone() for tensor in flat]
    memory(*given)
    assert all(torch.equal(tensor, copy) for tensor, copy in zip(flat, copies, strict=True))


@kinds
def test_output_is_bounded_so_nothing_normalises_it(kind):
    """R2-MED2, R4-M7: the reason stands in the docstrings, and there is no normalisation layer anywhere."""
    memory = MAKERS[kind]()
    output, _ = memory(1e3 * torch.randn(4, 50, INPUTS), memory.start(4), torch.zeros(4, 50, dtype=torch.bool))
    assert output.abs().max() <= 1
    assert "output lies in (-1, 1) by construction" in " ".join((memory_gated.__doc__ or "").split())
    assert "and lie in (-1, 1)" in " ".join((LinearMemory.__doc__ or "").split())
    norms = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.modules.batchnorm._NormBase)
    network = VectorNetwork(INPUTS, {"op": 2}, config=VectorConfig(memory_kind=kind.split(",")[0]))
    assert not any(isinstance(module, norms) for module in network.modules())


def recall_after(memory, updates, back=None):
    """Share of right answers to which of four symbols was shown `back` steps ago, or first, after so many updates."""
    encoder, reader = nn.Linear(4, 32), nn.Linear(memory.size, 4)
    parameters = [p for part in (encoder, memory, reader) for p in part.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=3e-3)
    starts = torch.zeros(8, 48, dtype=torch.bool)
    starts[:, 0] = True
    for _ in range(updates):
        shown = torch.randint(4, (8, 48))
        features, _ = memory(torch.tanh(encoder(nn.functional.one_hot(shown, 4).float())), memory.start(8), starts)
        answers = reader(features if back is None else features[:, back:])
        right = shown[:, :1].expand(-1, 48) if back is None else shown[:, :-back]
        loss = nn.functional.cross_entropy(answers.flatten(0, 1), right.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return (answers.argmax(dim=-1) == right).float().mean().item()


def test_linear_memory_learns_to_recall_what_an_lstm_does_not_in_the_same_updates():
    torch.manual_seed(0)
    assert recall_after(LinearMemory(32, 32), back=8, updates=80) > 0.9
    assert recall_after(LSTMMemory(32, 32), back=8, updates=80) < 0.6


def test_linear_memory_learns_what_an_episode_began_with_though_nothing_shown_tells_the_first_step():
    torch.manual_seed(0)
    assert recall_after(LinearMemory(32, 32), updates=60) > 0.9
    without = LinearMemory(32, 32)
    for parameter in (without.opening.requires_grad_(False), without.pace.bias):
        nn.init.zeros_(parameter)
    assert recall_after(without, updates=60) < 0.6


def test_unknown_kind_is_refused_with_the_kinds_there_are():
    with pytest.raises(RLError, match="memory_kind = 'lstn'; choose one of linear, lstm, gru"):
        VectorConfig(memory_kind="lstn")
    with pytest.raises(RLError, match="choose one of linear, lstm, gru"):
        make_memory("lstn", 3, 4)


@pytest.mark.parametrize("kind", MEMORIES)
def test_size_0_makes_no_memory_of_any_kind(kind):
    assert isinstance(make_memory(kind, INPUTS, 0), NoMemory)
    assert type(make_memory(kind, INPUTS, SIZE)) is MEMORIES[kind]


def test_no_memory_passes_inputs_on_and_keeps_an_empty_state():
    memory, inputs = NoMemory(INPUTS), torch.randn(2, 5, INPUTS)
    state = memory.start(2)
    output, after = memory(inputs, state, torch.zeros(2, 5, dtype=torch.bool))
    assert output is inputs
    assert [part.numel() for part in after] == [0, 0]
    assert [part.shape[1] for part in after] == [2, 2]
    assert memory.size == INPUTS
