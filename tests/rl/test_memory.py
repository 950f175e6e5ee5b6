"""The LSTM by hand, and rows with starts inside against the same episodes played one by one."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from esper.rl import Memory, MemoryState, NoMemory, VectorNetwork

SIZE, INPUTS = 4, 3


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
    memory = Memory(INPUTS, SIZE, layers)
    for layer in range(layers):
        total = getattr(memory.lstm, f"bias_ih_l{layer}") + getattr(memory.lstm, f"bias_hh_l{layer}")
        i, f, g, o = total.split(SIZE)
        assert (f == 1).all()
        assert not i.any()
        assert not g.any()
        assert not o.any()


def test_gates_lie_in_the_order_input_forget_cell_output():
    """R2-MED4, R4-M9: so the bias above is indeed that of the forget gate."""
    memory, inputs = Memory(INPUTS, SIZE), torch.randn(1, INPUTS)
    state = random_state(memory, 1)
    output, after = memory(inputs, state, torch.tensor([False]))
    hidden, cell = by_hand(memory, inputs[0], state.hidden[0, 0], state.cell[0, 0])
    torch.testing.assert_close(output[0], hidden)
    torch.testing.assert_close(after.hidden[0, 0], hidden)
    torch.testing.assert_close(after.cell[0, 0], cell)


@pytest.mark.parametrize("layers", [1, 2])
def test_first_state_has_shape_and_kind_of_the_lstm(layers):
    """R2-HIGH2."""
    memory = Memory(INPUTS, SIZE, layers).double()
    state = memory.start(5)
    for part in state:
        assert part.shape == (layers, 5, SIZE)
        assert part.dtype is torch.float64
        assert not part.any()
    assert state.hidden.data_ptr() != state.cell.data_ptr()
    memory(torch.zeros(5, 2, INPUTS).double(), state, torch.zeros(5, 2, dtype=torch.bool))


def test_one_step_with_and_without_a_time_axis_agree():
    """R2-LOW5: inputs (B, D) and (B, T, D)."""
    memory, inputs, starts = Memory(INPUTS, SIZE), torch.randn(5, INPUTS), torch.rand(5) < 0.5
    state = random_state(memory, 5)
    flat, after_flat = memory(inputs, state, starts)
    deep, after_deep = memory(inputs.unsqueeze(1), state, starts.unsqueeze(1))
    assert flat.shape == (5, SIZE)
    assert torch.equal(flat, deep.squeeze(1))
    assert all(torch.equal(one, other) for one, other in zip(after_flat, after_deep, strict=True))


def episode_by_episode(memory, inputs, state, starts):
    """Each row alone, each episode in it in a call of its own, from zeros where it starts."""
    outputs, lasts = [], []
    for row in range(len(inputs)):
        now = MemoryState(*(part[:, row : row + 1] for part in state))
        marks = [t for t in range(inputs.shape[1]) if t == 0 or starts[row, t]]
        parts = []
        for begin, end in zip(marks, [*marks[1:], inputs.shape[1]], strict=True):
            now = memory.start(1) if starts[row, begin] else now
            output, last = memory.lstm(inputs[row : row + 1, begin:end], now)
            now = MemoryState(*last)
            parts.append(output)
        outputs.append(torch.cat(parts, dim=1))
        lasts.append(now)
    return torch.cat(outputs), MemoryState(*(torch.cat(column, dim=1) for column in zip(*lasts, strict=True)))


@given(st.integers(1, 4), st.integers(1, 9), st.integers(1, 2), st.sampled_from([0.0, 0.3, 1.0]), st.integers(0, 10**6))
def test_rows_with_starts_inside_equal_separate_episodes(rows, steps, layers, share, seed):
    """R0-P9, R0-X2: outputs, last states and all gradients, wherever episodes start."""
    generator = torch.Generator().manual_seed(seed)
    memory = Memory(INPUTS, SIZE, layers)
    inputs = torch.randn(rows, steps, INPUTS, generator=generator, requires_grad=True)
    starts = torch.rand(rows, steps, generator=generator) < share
    state = random_state(memory, rows, generator)
    aim = torch.randn(rows, steps, SIZE, generator=generator)

    def outcome(run):
        memory.zero_grad()
        inputs.grad = None
        output, last = run(inputs, state, starts)
        ((output * aim).sum() + last.hidden.sum() + last.cell.square().sum()).backward()
        grads = [inputs.grad, *(parameter.grad for parameter in memory.parameters())]
        return [output.detach(), *last.detached(), *(grad.clone() for grad in grads)]

    expected = outcome(lambda *given: episode_by_episode(memory, *given))
    for found, wanted in zip(outcome(memory), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


@given(st.integers(1, 7), st.integers(0, 10**6))
def test_state_carried_over_two_calls_equals_one_call(cut, seed):
    """R0-P9, R0-X2: a rollout that goes on in the next one."""
    generator = torch.Generator().manual_seed(seed)
    memory, inputs = Memory(INPUTS, SIZE, 2), torch.randn(3, 8, INPUTS, generator=generator)
    starts = torch.rand(3, 8, generator=generator) < 0.2
    state = random_state(memory, 3, generator)
    whole, last = memory(inputs, state, starts)
    one, middle = memory(inputs[:, :cut], state, starts[:, :cut])
    two, end = memory(inputs[:, cut:], middle, starts[:, cut:])
    torch.testing.assert_close(torch.cat([one, two], dim=1), whole, rtol=1e-5, atol=1e-6)
    for part, wanted in zip(end, last, strict=True):
        torch.testing.assert_close(part, wanted, rtol=1e-5, atol=1e-6)


def test_neither_inputs_nor_state_nor_starts_are_changed():
    """R0-A2."""
    memory = Memory(INPUTS, SIZE)
    given = (torch.randn(2, 5, INPUTS), random_state(memory, 2), torch.rand(2, 5) < 0.5)
    flat = [given[0], *given[1], given[2]]
    copies = [tensor.clone() for tensor in flat]
    memory(*given)
    assert all(torch.equal(tensor, copy) for tensor, copy in zip(flat, copies, strict=True))


def test_output_is_bounded_so_nothing_normalises_it():
    """R2-MED2, R4-M7: the reason stands in the docstring, and there is no normalisation layer anywhere."""
    memory = Memory(INPUTS, SIZE)
    output, _ = memory(1e6 * torch.randn(4, 50, INPUTS), memory.start(4), torch.zeros(4, 50, dtype=torch.bool))
    assert output.abs().max() <= 1
    written = " ".join((Memory.__doc__ or "").split())
    assert "no normalisation behind the LSTM: its output lies in (-1, 1) by construction" in written
    norms = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.modules.batchnorm._NormBase)
    assert not any(isinstance(module, norms) for module in VectorNetwork(INPUTS, {"op": 2}).modules())


def test_no_memory_passes_inputs_on_and_keeps_an_empty_state():
    memory, inputs = NoMemory(INPUTS), torch.randn(2, 5, INPUTS)
    state = memory.start(2)
    output, after = memory(inputs, state, torch.zeros(2, 5, dtype=torch.bool))
    assert output is inputs
    assert [part.numel() for part in after] == [0, 0]
    assert [part.shape[1] for part in after] == [2, 2]
    assert memory.size == INPUTS
